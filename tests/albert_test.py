"""The model of ALBERT, against numpy and golden figures of the original."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.files import checkpoints
from bert_tf.model.family import AlbertConfig, read_config
from bert_tf.model.layer_scopes import parse_frozen_layers
from bert_tf.runs.folder import reporting
from bert_tf.tasks.pretraining.schema import MLM_SOP
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.golden import needs_golden
from tests.support.golden_training import FEATURES, check_training
from tests.support.objectives import compute, set_random_weights
from tests.support.pretraining_runs import run, variables
from tests.support.sentence_piece_model import write_model
from tests.support.shapes import variables_without_values
from tests.support.small_classification import VOCAB, WORDS, flags, write_reviews
from tests.support.small_pretraining import difference, make_features, tensors, weights_of

MODELS = ("model_gelu", "model_relu")
INPUTS = FEATURES[:3]


def golden(*names):
    return Path(os.environ["BERT_TF_GOLDEN"]).joinpath("albert", *names)


def build(folder, **options):
    config = read_config(str(folder / "albert_config.json"))
    return PretrainingModel(config, MLM_SOP, **options)


def small_config(**changes):
    sizes = {"vocab_size": 53, "embedding_size": 4, "hidden_size": 8, "num_hidden_layers": 5}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 14, "max_position_embeddings": 11}
    return AlbertConfig(**{**sizes, "type_vocab_size": 4, **changes})


@pytest.mark.parametrize(
    "groups, inner, width, one_hot", [(2, 1, 6, True), (3, 2, 8, False), (7, 1, 6, False)]
)
def test_every_output_against_numpy(groups, inner, width, one_hot):
    config = small_config(embedding_size=width, num_hidden_groups=groups, inner_group_num=inner)
    model = PretrainingModel(config, use_one_hot_embeddings=one_hot)
    values = set_random_weights(model, seed=2)
    assert any("mapping_in" in name for name in values) == (width != 8)
    features = make_features(5, batch_size=3)
    expected = numpy_bert.NumpyAlbert(config.to_dict(), values).losses(features)
    typed = tensors(features)
    output = model.bert(*(typed[name] for name in INPUTS))
    assert len(output.all_encoder_layers) == config.num_layer_outputs == 5 * inner
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert difference(getattr(output, name), expected[name]) < 2e-6, name
    for name in ("all_encoder_layers", "attention_probs"):
        assert difference(tf.stack(getattr(output, name)), np.stack(expected[name])) < 2e-6
    loss, _ = compute(model, typed)
    np.testing.assert_allclose(loss, expected["total_loss"], rtol=2e-6)


@pytest.mark.parametrize(
    "layers, groups, used",
    [(2, 3, [0, 1]), (22, 22, [i for i in range(22) if i != 15]), (3, 5, [0, 1, 3])],
)
def test_only_groups_that_layers_have_are_made(layers, groups, used):
    config = small_config(num_hidden_layers=layers, num_hidden_groups=groups)
    scopes = [f"bert/encoder/transformer/group_{i}/" for i in used]
    assert config.layer_scopes == scopes and set(config.layer_groups) == set(used)
    is_frozen = parse_frozen_layers(str(len(used) - 1), config.layer_scopes)
    few, many = (small_config(num_hidden_layers=2, num_hidden_groups=n) for n in (2, 1000))
    assert few._num_parameters() == many._num_parameters()
    if layers == 22:
        return
    weights = weights_of(PretrainingModel(config))
    names = [name for name in weights if "/group_" in name]
    counts = [sum(name.startswith(scope) for name in names) for scope in scopes]
    assert counts == [16] * len(used) and len(names) == sum(counts)
    assert {name for name in weights if is_frozen(name)} == {
        name for name in names if name.startswith(scopes[-1])
    }


@needs_golden
@pytest.mark.parametrize("name", ["base_v2", "xxlarge_v2"])
def test_the_variables_are_the_originals(name):
    expected = json.loads(golden(f"{name}_variables.json").read_text())
    config = AlbertConfig.from_dict(expected["config"])
    with variables_without_values():
        model = PretrainingModel(config)
        found = {variable.path: list(variable.shape) for variable in model.variables}
    assert found == expected["variables"]


@needs_golden
@pytest.mark.parametrize("name", MODELS)
def test_every_output_is_the_originals(name):
    model = build(golden(name))
    checkpoints.initialize(weights_of(model), str(golden(name, "model.ckpt-0")))
    arrays = dict(np.load(golden(name, "forward.npz")))
    features = {key: tf.constant(arrays[key]) for key in FEATURES}
    bert = model.bert(*(features[key] for key in INPUTS))
    logits, order_logits = model(features)
    loss, sums = compute(model, features)
    order_loss = sums["sentence_order_loss"][0] / sums["sentence_order_loss"][1]
    outputs = {
        "embedding_output": bert.embedding_output,
        "sequence_output": bert.sequence_output,
        "pooled_output": bert.pooled_output,
        "all_encoder_layers": tf.stack(bert.all_encoder_layers),
        "masked_lm_log_probs": tf.nn.log_softmax(logits),
        "sentence_order_log_probs": tf.nn.log_softmax(order_logits),
        "sentence_order_loss": order_loss,
        "masked_lm_loss": loss - order_loss,
        "total_loss": loss,
    }
    for key, output in outputs.items():
        assert difference(output, arrays[key]) < 2e-6, key


@pytest.mark.slow
@needs_golden
@pytest.mark.parametrize("optimizer, num_steps", [("lamb", 12), ("adamw", 8)])
@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_originals(name, optimizer, num_steps):
    folder = golden(name, optimizer)
    one_hot = bool(np.load(folder / "train.npz")["use_one_hot_embeddings"])
    model = build(golden(name), use_one_hot_embeddings=one_hot)
    check_training(model, golden(name, "model.ckpt-0"), folder, num_steps)


CONFIG = {"vocab_size": 40, "embedding_size": 6, "hidden_size": 16, "num_hidden_layers": 4}
CONFIG |= {"num_hidden_groups": 2, "num_attention_heads": 2, "intermediate_size": 24}
CONFIG |= {"inner_group_num": 1, "max_position_embeddings": 40, "type_vocab_size": 2}
CONFIG["net_structure_type"] = 0


def write_albert(folder):
    """Returns the configuration's and the SentencePiece model's path."""
    config = folder / "albert_config.json"
    config.write_text(json.dumps(CONFIG))
    pieces = [*VOCAB[2:5], "▁", *(f"▁{word}" for word in WORDS)]
    return str(config), write_model(folder / "pieces.model", pieces)


def write_text(folder):
    """Returns the path of a text with an empty line after every fifth line."""
    rng = random.Random(3)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) * (i % 6 > 0) for i in range(120)]
    (folder / "text.txt").write_text("\n".join(lines))
    return str(folder / "text.txt")


def classify_as_the_program(reviews, out):
    """Returns the test texts and a loaded model's results, which equal run_classifier's."""
    model = bert_tf.load(str(out))
    lines = (reviews / "test.csv").read_text().splitlines()[1:]
    texts = [line.split(",")[0] for line in lines]
    results = model.classify(texts)
    found = [[r.probabilities[label] for label in model.labels] for r in results]
    np.testing.assert_allclose(found, np.loadtxt(out / "test_results.tsv"), rtol=1e-5)
    return texts, results


@pytest.mark.slow
def test_a_classifier_is_trained_and_loaded(tmp_path):
    reviews = write_reviews(tmp_path)
    config, model_file = write_albert(tmp_path)
    out = tmp_path / "out"
    log = run(
        *flags(reviews, out, "--do_train", "--do_eval", "--do_predict", "--num_train_epochs=12"),
        f"--bert_config_file={config}",
        f"--vocab_file={model_file}",
        "--learning_rate=2e-3",
        program="run_classifier.py",
    )
    assert "unknown keys, which are ignored: ['net_structure_type']" in log
    assert reporting.read_results(str(out / "eval_results.txt"))["eval_accuracy"] > 0.9
    names = variables(out)
    assert "bert/encoder/transformer/group_1/inner_group_0/LayerNorm_1/gamma/adam_v" in names
    assert not any("layer_0" in name or "group_2" in name for name in names)

    classify_as_the_program(reviews, out)
    saved = tmp_path / "saved"
    export(ExportSettings(input=str(out), output=str(saved), input_kind="ids"))
    assert (saved / "spm.model").read_bytes() == (tmp_path / "pieces.model").read_bytes()
    assert not (saved / "vocab.txt").exists()
    assert "ids of the pieces of `spm.model`" in (saved / "README.md").read_text()
    with pytest.raises(UserError, match="--input_kind=text needs a vocabulary of word pieces"):
        export(ExportSettings(input=str(out), output=str(tmp_path / "text")))


@pytest.mark.slow
def test_sentence_order_is_pre_trained(tmp_path):
    config, model_file = write_albert(tmp_path)
    lengths = ["--max_seq_length=24", "--max_predictions_per_seq=5"]
    make = [f"--input_file={write_text(tmp_path)}", f"--vocab_file={model_file}", *lengths]
    make += ["--objective=mlm_sop", "--do_whole_word_mask", "--ngram=2", "--dupe_factor=3"]
    run(*make, f"--output_file={tmp_path}/records", program="create_pretraining_data.py")
    out = tmp_path / "out"
    words = [f"--input_file={tmp_path}/records", f"--bert_config_file={config}", *lengths]
    words += ["--train_batch_size=8", "--objective=mlm_sop", "--optimizer=lamb"]
    words += [f"--output_dir={out}"]
    run(*words, "--do_train", "--do_eval", "--num_train_steps=10", "--num_warmup_steps=2")
    results = reporting.read_results(str(out / "eval_results.txt"))
    assert {"sentence_order_loss", "sentence_order_accuracy", "masked_lm_loss"} < results.keys()
    assert "next_sentence_loss" not in results and results["global_step"] == 10
    assert "cls/seq_relationship/output_weights/adam_m" in variables(out / "model.ckpt-10")
