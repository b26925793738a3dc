"""What run_classifier finds for a trained model: --temperature_scaling, and the threshold."""

import json
import types
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.writer import write_config
from bert_tf.tasks.classification import decision
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.support.pretraining_runs import variables
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import write_reviews
from tests.support.small_pretraining import SMALL

pytestmark = pytest.mark.usefixtures("uncompiled")

FLAGS = {**REVIEWS, "max_seq_length": 24, "do_eval": True, "do_predict": True}
SCALED = {"temperature_scaling": True}
TRAINING = {"do_train": True, "train_batch_size": 15, "num_train_epochs": 2.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which a model was trained, scaled and exported; its results in `trained`."""
    folder = write_reviews(tmp_path_factory.mktemp("reviews"))
    flags = {**TRAINING, "learning_rate": 0.02, "export_dir": f"{folder}/export"}
    results = run_in(folder, "classification", **FLAGS, **SCALED, **flags)
    (folder / "trained").write_text(json.dumps(results))
    return folder


def probabilities(folder: Path) -> np.ndarray:
    return np.loadtxt(folder / "test_results.tsv", delimiter="\t")


def log_odds(folder: Path) -> np.ndarray:
    return np.diff(np.log(probabilities(folder)), axis=1)


def test_the_export_is_scaled_and_the_checkpoint_is_not(folder):
    report = json.loads((folder / "out/eval_report.json").read_text())
    assert report["temperature"] != pytest.approx(1.0, abs=0.05)
    trained = variables(folder / "out")
    exported = variables(folder / "export/bert_model.ckpt")
    for name, value in exported.items():
        factor = report["temperature"] if name.startswith("output_") else 1.0
        np.testing.assert_allclose(value * factor, trained[name], rtol=1e-5, err_msg=name)
    text = (folder / "out/eval_report.txt").read_text()
    assert f"temperature: {report['temperature']:.4f}\ncalibration error before: " in text


@pytest.mark.slow
def test_the_results_are_those_of_the_scaled_model(folder):
    scaled = json.loads((folder / "trained").read_text())
    temperature = json.loads((folder / "out/eval_report.json").read_text())["temperature"]
    files = {"init_checkpoint": f"{folder}/out", "output_dir": f"{folder}/plain"}
    plain = run_in(folder, "classification", **FLAGS, **files)
    assert scaled["eval_accuracy"] == plain["eval_accuracy"]
    assert scaled["eval_loss"] < plain["eval_loss"]
    expected = log_odds(folder / "plain") / temperature
    np.testing.assert_allclose(log_odds(folder / "out"), expected, rtol=2e-3, atol=1e-4)
    assert "temperature" not in (folder / "plain/eval_report.json").read_text()
    # The export needs no flag, and a later run fits the same temperature again.
    files = {"init_checkpoint": f"{folder}/export/bert_model.ckpt", "output_dir": f"{folder}/later"}
    assert run_in(folder, "classification", **FLAGS, **files) == pytest.approx(
        {**scaled, "global_step": 0}, rel=1e-5
    )
    files = {"init_checkpoint": f"{folder}/out", "output_dir": f"{folder}/again"}
    run_in(folder, "classification", **FLAGS, **SCALED, **files)
    for name in ("later", "again"):
        found = probabilities(folder / name)
        np.testing.assert_allclose(found, probabilities(folder / "out"), rtol=1e-5)


def test_what_is_refused(tmp_path):
    folder = write_reviews(tmp_path)
    for flags in ({}, {**TRAINING, "do_predict": False}):
        with pytest.raises(UserError, match="fitted on the dev set: add --do_eval, or leave"):
            run_in(folder, "classification", **{**FLAGS, **SCALED, "do_eval": False, **flags})
    with pytest.raises(UserError, match="is for classes: a regression has no probabilities. Leave"):
        run_in(folder, "classification", **FLAGS, **SCALED, regression=True)
    message = "--temperature_scaling excludes --long_text=mean, since .* not a softmax of logits"
    with pytest.raises(UserError, match=message):
        files = {"output_dir": "o", "vocab_file": "v"}
        ClassifierSettings(**files, long_text="mean", temperature_scaling=True)


@pytest.mark.slow
def test_fit_in_python_keeps_the_temperature(folder):
    texts, labels = ["fine lovely film", "dull awful plot", "so fine", "very dull"], [1, 0, 1, 0]
    pair = (texts * 2, [*labels, 0, 1, 1, 0])  # no temperature makes two labels of a text right
    models = []
    for scaled in (False, True):
        model = bert_tf.load(f"{folder}/export").for_classification(labels=["bad", "good"])
        options = {"epochs": 2, "batch_size": 2, "seed": 3, "verbose": 0}
        model.fit(texts, labels, validation_data=pair, temperature_scaling=scaled, **options)
        models.append(model)
    plain, scaled = (np.diff(np.log(model.predict(texts)), axis=1) for model in models)
    temperature = plain / scaled
    np.testing.assert_allclose(temperature[1:], temperature[:-1], rtol=1e-4)
    assert temperature[0] != pytest.approx(1.0, abs=0.05)
    with pytest.raises(UserError, match="fitted on the dev set: add"):
        models[0].fit(texts, labels, temperature_scaling=True, **options)


@pytest.mark.parametrize(
    ("changes", "warns", "threshold"),
    [
        ({}, True, 0.3),
        ({"find_threshold": True}, False, 0.3),
        ({"threshold": 0.3}, False, 0.3),
        ({"threshold": 0.9}, False, 0.9),
        ({"do_train": False}, False, 0.3),
    ],
)
def test_a_threshold_of_earlier_weights_is_told(
    tmp_path, caplog, monkeypatch, changes, warns, threshold
):
    config = BertConfig.from_dict(SMALL | {"problem_type": "multi_label_classification"})
    config.threshold = 0.3
    write_config(str(tmp_path), config)
    path = str(tmp_path / "bert_config.json")
    monkeypatch.setattr(decision, "_learned_config", lambda settings: path)
    given = {"threshold": None, "find_threshold": False, "do_train": True, "do_eval": True}
    settings = types.SimpleNamespace(**given | changes, class_weights=None, temperature_scaling=0)
    found = decision.configured(BertConfig.from_dict(SMALL), settings, multi_label=True)
    assert found.threshold == threshold and found.is_multi_label
    message = f"threshold is 0.3 in {path}, found or given for the weights that training goes on"
    assert (message in caplog.text) == warns
