"""One name for a model: programs read what is beside --init_checkpoint, in every form of it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.model.family import read_config
from bert_tf.model_folder.hugging_face.vector_settings import read_as_hugging_face
from bert_tf.runs.flags.command_flags import check_model_named, follow_model
from bert_tf.runs.flags.settings import ModelSettings, TextSettings
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.tasks.extraction.settings import ExtractionSettings
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from tests.support.hugging_face_folders import ENCODER, POOLER, make_tensors, write_folder
from tests.support.pretraining_runs import run
from tests.support.refusals import refuses
from tests.support.small_classification import VOCAB
from tests.support.tokenizer_json import word_piece_json
from tools import convert_checkpoint

ROOT = Path(__file__).resolve().parents[1]
TOOLS = sorted(x.stem for x in (ROOT / "tools").glob("*.py") if "__main__" in x.read_text())
WORDS = [*VOCAB[:11], "Ab", "ab"]  # as many as the model has embeddings


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a model in Hugging Face's format, hf, and its conversion, tf."""
    folder = tmp_path_factory.mktemp("models")
    tensors = make_tensors(ENCODER | POOLER, "bert.")
    hf = write_folder(folder / "hf", tensors, "\n".join(WORDS) + "\n", model_type="bert")
    (Path(hf) / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "model_max_length": 6})
    )
    convert_checkpoint.convert(hf, str(folder / "tf"), "checkpoint")
    convert_checkpoint.convert(str(folder / "tf"), str(folder / "garden"), "model_garden")
    shutil.copytree(hf, folder / "json")
    (folder / "json" / "vocab.txt").unlink()
    content = word_piece_json({word: i for i, word in enumerate(WORDS)}, lowercase=False)
    (folder / "json" / "tokenizer.json").write_text(json.dumps(content))
    (folder / "bare").mkdir()
    for file in (folder / "tf").glob("bert_model.ckpt.*"):
        shutil.copy(file, folder / "bare")
    rows = [f"good\t{WORDS[5 + i % 6]} {WORDS[5 + i % 5]} Ab ab" for i in range(8)]
    rows += [row.replace("good", "bad", 1) for row in rows]
    (folder / "data").mkdir()
    for name in ("train", "dev"):
        text = "\n".join(["label\ttext", *rows]) + "\n"
        (folder / "data" / f"{name}.tsv").write_text(text)
    (folder / "lines.txt").write_text("Ab ab film\nthe film was Ab ||| plot\n")
    return folder


def three(folder):
    """Returns the original's three flags, and what the folder says of the text."""
    return [
        *(f"--init_checkpoint={folder}/tf/bert_model.ckpt", f"--vocab_file={folder}/tf/vocab.txt"),
        *(f"--bert_config_file={folder}/tf/bert_config.json", "--do_lower_case=False"),
        "--max_seq_length=6",
    ]


FORMS = {
    "prefix": lambda x: [f"--init_checkpoint={x}/tf/bert_model.ckpt", "--max_seq_length=6"],
    "Hugging Face": lambda x: [f"--init_checkpoint={x}/hf"],
    "Model Garden": lambda x: [f"--init_checkpoint={x}/garden", "--max_seq_length=6"],
    "tokenizer.json": lambda x: [f"--init_checkpoint={x}/json"],
    "mixed": lambda x: [
        *(f"--init_checkpoint={x}/bare", f"--bert_config_file={x}/tf/bert_config.json"),
        *(*three(x)[-2:], f"--vocab_file={x}/tf/vocab.txt"),
    ],
}


def classify(folder, out, *flags):
    data = "--task_name=table", "--text_a_column=text", "--label_column=label"
    more = "--train_batch_size=4", "--num_train_epochs=1", "--learning_rate=1e-2"
    folders = f"--data_dir={folder}/data", f"--output_dir={out}"
    return run(*data, *folders, *more, *flags, program="run_classifier.py")


@pytest.fixture(scope="module")
def trained(models):
    out = models / "out"
    classify(models, out, "--do_train", "--do_eval", *three(models))
    return out


@pytest.mark.parametrize("form", ["Hugging Face", "Model Garden", "mixed"])
def test_a_program_trains_the_same_bits_from_every_form(models, trained, tmp_path, form):
    out = tmp_path / "out"
    log = classify(models, out, "--do_train", "--do_eval", *FORMS[form](models))
    assert log.count("From --init_checkpoint=") == (form != "mixed")
    expected, found = (CheckpointReader(str(x)).read_weights() for x in (trained, out))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)
    for name in ("eval_results.txt", "bert_config.json", "vocab.txt"):
        assert (out / name).read_bytes() == (trained / name).read_bytes()


def test_a_run_s_folder_is_a_model_with_its_length_casing_and_classes(models, trained, tmp_path):
    copy, again = tmp_path / "copy", tmp_path / "again"
    shutil.copytree(trained, copy)
    log = classify(models, again, "--do_eval", f"--init_checkpoint={copy}")
    assert "--do_lower_case=False --max_seq_length=6" in log
    # Without --init_checkpoint the run's own folder is the model.
    log = classify(models, copy, "--do_eval")
    assert f"From --output_dir={copy}: --bert_config_file={copy}/bert_config.json" in log
    expected = (trained / "eval_results.txt").read_text()
    assert (copy / "eval_results.txt").read_text() == expected
    of_new_run = expected.replace("global_step = 4", "global_step = 0")
    assert (again / "eval_results.txt").read_text() == of_new_run


def test_vectors_are_the_same(models, tmp_path):
    files = {"three": three(models), **{x: form(models) for x, form in FORMS.items()}}
    for name, flags in files.items():
        words = f"--input_file={models}/lines.txt", f"--output_file={tmp_path}/{name}.jsonl"
        run(*words, "--layers=-1", *flags, program="extract_features.py")
    outputs = [(tmp_path / f"{name}.jsonl").read_bytes() for name in files]
    assert len({*outputs}) == 1 and outputs[0].count(b"\n") == 2


SETTINGS = {
    "text": [
        ExtractionSettings(input_file="i", output_file="o", init_checkpoint="m"),
        ModelSettings(),
    ],
    "records": [PretrainingDataSettings(output_file="o", input_file="i")],
}


@pytest.mark.parametrize(
    ("kind", "flags", "expected"),
    [
        ("text", {"init_checkpoint": "tf"}, "tf/bert_config.json tf/vocab.txt False 6"),
        ("text", {"init_checkpoint": "hf"}, "hf/config.json hf/vocab.txt False 6"),
        ("text", {"init_checkpoint": "hf", "max_seq_length": 5},
         "hf/config.json hf/vocab.txt False"),
        ("text", {"init_checkpoint": "hf", "do_lower_case": True}, "hf/config.json hf/vocab.txt 6"),
        ("text", {"init_checkpoint": "hf", "vocab_file": "tf/vocab.txt"}, "hf/config.json"),
        ("text", {"init_checkpoint": "bare", "bert_config_file": "tf/bert_config.json",
                  "vocab_file": "tf/vocab.txt"}, ""),
        ("text", {"init_checkpoint": "tf", "bert_config_file": "tf/bert_config.json"},
         "tf/vocab.txt False 6"),
        ("text", {"init_checkpoint": "hf", "bert_config_file": "tf/bert_config.json"},
         "hf/vocab.txt False 6"),
        ("text", {"init_checkpoint": "json"}, "json/config.json json/tokenizer.json False 6"),
        ("records", {"init_checkpoint": "hf"}, "hf/vocab.txt False"),
        ("records", {"vocab_file": "tf/vocab.txt"}, ""),
    ],
)  # fmt: skip
def test_what_the_folder_decides(models, monkeypatch, kind, flags, expected):
    monkeypatch.chdir(models)
    values = {"vocab_file": None, "do_lower_case": True, "max_seq_length": 128, **flags}
    if kind == "text":
        values.setdefault("bert_config_file", None)
    config, found = follow_model(SETTINGS[kind], values, flags)
    order = ("bert_config_file", "vocab_file", "do_lower_case", "max_seq_length")
    assert " ".join(str(found[name]) for name in order if name in found) == expected
    assert (config is None) == (kind == "records")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--init_checkpoint=FOLDER must be given, .* --bert_config_file and --vocab_file$"),
        ({"vocab_file": "tf/vocab.txt"}, "without such a model, --bert_config_file$"),
        ({"init_checkpoint": "bare"}, "bare must have bert_config.json or .* --bert_config_file$"),
        (
            {"init_checkpoint": "bare", "bert_config_file": "tf/bert_config.json"},
            "bare must have vocab.txt or .* --vocab_file$",
        ),
        ({"init_checkpoint": "data"}, "^--init_checkpoint=data is a directory without"),
    ],
)
def test_what_is_missing(models, monkeypatch, flags, message):
    monkeypatch.chdir(models)
    values = {"vocab_file": None, "bert_config_file": None, **flags}
    refuses(message, follow_model, SETTINGS["text"], values, flags)
    if "init_checkpoint" in flags:
        return check_model_named(SETTINGS["text"], values)
    with pytest.raises(UserError, match=message):  # without TensorFlow
        check_model_named(SETTINGS["text"], values)
    check_model_named(SETTINGS["text"], {**values, "output_dir": "data"})  # a run's, perhaps


@pytest.mark.parametrize(
    ("vocab_file", "model", "expected"),
    [
        ("hf/vocab.txt", "hf", True),
        ("hf/vocab.txt", "hf/", True),
        ("hf/vocab.txt", "hf/model.safetensors", True),
        ("json/tokenizer.json", "json", True),
        # The original's flags read it as they always have.
        ("hf/vocab.txt", "bare", False),
        ("hf/vocab.txt", None, False),
        ("tf/vocab.txt", "hf", False),
        ("tf/vocab.txt", "tf", False),
    ],
)
def test_whose_rules_read_a_vocabulary(models, monkeypatch, vocab_file, model, expected):
    monkeypatch.chdir(models)
    assert read_as_hugging_face(vocab_file, model) == expected
    settings = TextSettings(vocab_file=vocab_file, do_lower_case=False)
    tokenizer = make_tokenizer(read_config("tf/bert_config.json"), settings, model)
    by_file = "json" in vocab_file or "tf/" in vocab_file  # which names the tokenizer's class
    assert tokenizer.settings.hugging_face == (expected or by_file)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_run_as_a_file_says_how(tool):
    words = [sys.executable, "-S", f"tools/{tool}.py"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and f": python -m tools.{tool}\n" in done.stderr
