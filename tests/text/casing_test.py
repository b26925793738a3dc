"""Tests of bert_tf.text.casing, and of the programs' calls that read and write it."""

import functools
import json
import os
import re
import string
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.files import checkpoints
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.extraction.run import ExtractionSettings, extract_features
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.text.casing import check_casing, find_casing, is_cased, read_casing, write_casing
from tests.support.refusals import refusal, refuses
from tests.support.registered_tasks import REVIEWS, run_in
from tests.support.small_classification import write_reviews

SPECIAL = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNCASED = [*SPECIAL, *string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase), "über"]
CASED = [*UNCASED, *string.ascii_uppercase, *(f"##{c}" for c in string.ascii_uppercase), "Über"]
CHINESE = [*UNCASED, *map(chr, range(0x4E00, 0x4E00 + 300)), "<S>", "<T>"]
NO_CASE = [*SPECIAL, *map(chr, range(0x4E00, 0x4E00 + 300))]


def write_record(folder, content) -> Path:
    """Returns the path of the folder's record, having written it."""
    folder.mkdir(exist_ok=True)
    path = folder / "tokenizer_config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def record(folder):
    return json.loads(Path(folder, "tokenizer_config.json").read_text())


def test_what_is_written_is_read_and_other_keys_stay(tmp_path):
    folder = str(tmp_path)
    for do_lower_case in (True, False):
        assert read_casing(folder) is None
        write_casing(folder, do_lower_case)
        assert read_casing(folder) is do_lower_case
        assert record(tmp_path) == {"do_lower_case": do_lower_case}
        write_casing(folder, not do_lower_case)
        assert read_casing(folder) is not do_lower_case
        for _ in range(2):
            write_casing(folder, None)
            assert os.listdir(folder) == []
    others = {"tokenizer_class": "BertTokenizer", "model_max_length": 64, "name": "ä\ud800"}
    path = write_record(tmp_path, others)
    assert read_casing(str(tmp_path)) is None
    write_casing(str(tmp_path), False)
    assert record(tmp_path) == {**others, "do_lower_case": False}
    write_casing(str(tmp_path), None)
    assert record(tmp_path) == others
    write_record(tmp_path, content := '{"do_lower_case":true, "x": 1}')
    write_casing(str(tmp_path), True)  # nothing to change
    assert path.read_text() == content


def test_a_damaged_record_is_refused(tmp_path):
    for content, message in (
        ("{", " is not JSON .*; correct or delete it"),
        ("[1]", r" must hold a dictionary; received a list"),
        ('{"do_lower_case": "no"}', ": do_lower_case must be true or false; received 'no'. Corr"),
        ("[" * 100_000, " is not JSON .maximum recursion depth exceeded"),
        (json.dumps(["x" * 10_000] * 3), " must hold a dictionary"),
        ('{"do_lower_case": 1}', ": do_lower_case must be true or false; received 1. Correct or"),
    ):
        path = write_record(tmp_path, content)
        refused = refusal(read_casing, str(tmp_path))
        assert re.match(f"{path}{message}", refused) and len(refused) < 500
        assert refusal(write_casing, str(tmp_path), True) == refused


def test_which_vocabularies_are_cased():
    assert is_cased(CASED)
    for vocab in (UNCASED, CHINESE, NO_CASE, SPECIAL, []):
        assert not is_cased(vocab)
    # The released English vocabularies: 10,898 of 28,996, and none of 30,522.
    assert is_cased([*(f"A{i}" for i in range(10898)), *(f"a{i}" for i in range(28996 - 10898))])
    uncased = [f"a{i}" for i in range(30522 - 994)]
    for rest in ("[unused{}]", "Word{}"):  # users' own words in place of all [unused] lines
        assert not is_cased([*uncased, *map(rest.format, range(994))])
    # A few in a tiny one.
    assert not is_cased([*"abcde", "I", "EU", "Bonn"])


def test_the_casing_is_found(tmp_path):
    (tmp_path / "words").mkdir()
    for name, beside_model, beside_vocabulary, expected in (
        ("model", None, None, None),
        ("model", True, False, True),
        ("model", None, False, False),
        ("uncased_L-12_H-768_A-12", None, None, True),
        ("cased_L-12_H-768_A-12", None, None, False),
        ("uncased_L-12_H-768_A-12", None, False, False),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        write_casing(str(tmp_path / name), beside_model)
        write_casing(str(tmp_path / "words"), beside_vocabulary)
        found = find_casing(str(tmp_path / name), f"{tmp_path}/words/vocab.txt", ["a", "b"])
        assert found is expected


def test_a_cased_vocabulary_with_default_flags_is_refused(tmp_path):
    vocab_file = f"{tmp_path}/vocab.txt"
    assert refusal(check_casing, True, CASED, vocab_file) == (
        f"--vocab_file={vocab_file} is a cased vocabulary: 53 of its {len(CASED)} entries have"
        " upper-case letters ('A', 'B', 'C', ...), and with --do_lower_case=True text never gets"
        " their ids; set --do_lower_case=False. If the model was trained on lowercased text"
        " nevertheless,"
        f' record that: write {{"do_lower_case": true}} to {tmp_path}/tokenizer_config.json'
    )
    check_casing(False, CASED, vocab_file)


def test_a_vocabulary_that_does_not_fit_a_record_or_the_flag_gets_a_warning(tmp_path, warnings):
    vocab_file = f"{tmp_path}/vocab.txt"
    for vocab in (CHINESE, NO_CASE):  # languages without case
        for do_lower_case in (True, False):
            check_casing(do_lower_case, vocab, "vocab.txt")
    assert not warnings
    check_casing(False, UNCASED, vocab_file)
    (text,) = warnings
    assert "has no entry with an upper-case letter, so with --do_lower_case=False" in text
    write_casing(str(tmp_path), False)
    check_casing(False, UNCASED, vocab_file)
    check_casing(True, UNCASED, "vocab.txt")
    assert len(warnings) == 1
    write_casing(str(tmp_path), True)
    check_casing(True, CASED, vocab_file)
    assert len(warnings) == 2 and "is a cased vocabulary: 53 of" in warnings[1]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("path", ["bert_model.ckpt", ""], ids=["prefix", "folder"])
def test_the_folder_of_the_checkpoint_is_asked(tmp_path, recorded, path):
    written = write_record(tmp_path / "model", {"do_lower_case": recorded})
    checkpoints.write(str(tmp_path / "model" / "bert_model.ckpt"), {"a": np.zeros(2)})
    init_checkpoint = os.path.join(tmp_path, "model", path)
    check_casing(recorded, UNCASED, "vocab.txt", init_checkpoint)
    assert refusal(check_casing, not recorded, UNCASED, "vocab.txt", init_checkpoint) == (
        f"{written} says that the model was trained on {'lowercased' if recorded else 'cased'} text"
        f" (do_lower_case is {'true' if recorded else 'false'}), but --do_lower_case="
        f"{not recorded}; set --do_lower_case={recorded}, or correct the file if it is wrong"
    )


def test_the_output_directory_is_asked_if_it_has_a_checkpoint(tmp_path):
    check = functools.partial(check_casing, True, UNCASED, "vocab.txt", None, str(tmp_path / "out"))
    check()  # it need not exist
    written = write_record(tmp_path / "out", {"do_lower_case": False})
    check()  # of a run that came to nothing
    CheckpointDirectory(str(tmp_path / "out")).save({"a": np.zeros(2)}, 3)
    refuses(f"^{written} says .*; set --do_lower_case=False", check)


def test_other_sources_that_contradict(tmp_path):
    write_record(tmp_path, {"do_lower_case": False})
    words = f"{tmp_path}/vocab.txt"
    for vocab_file, checkpoint, message in (
        (words, "x/bert_model.ckpt", f"^{tmp_path}/.* says .*; set --do_lower_case=False"),
        ("vocab.txt", "cased_L-12_H-768_A-12/bert_model.ckpt", "was trained on cased text, but"),
        ("vocab.txt", "nosuch://x", "--init_checkpoint=nosuch://x: .* not support nosuch"),
    ):
        refuses(message, check_casing, True, UNCASED, vocab_file, checkpoint)


def classify(reviews, tmp_path, **changes):
    flags = {"output_dir": tmp_path / "out", "max_seq_length": 24, "num_train_epochs": 1.0}
    run_in(reviews, "classification", **{**REVIEWS, **flags, **changes})


@pytest.mark.usefixtures("eager_if_quick")
def test_fine_tuning_records_the_casing_and_predicting_asks_for_it(tmp_path):
    reviews, export = write_reviews(tmp_path), str(tmp_path / "export")
    saved = {"export_dir": export, "evaluate_every_steps": 1, "keep_best": True}
    classify(reviews, tmp_path, do_train=True, do_lower_case=False, **saved)
    best = str(tmp_path / "out" / "best")
    for folder in (tmp_path / "out", best, export):
        assert record(folder) == {"do_lower_case": False}
    other = {"output_dir": str(tmp_path / "other")}
    message = "tokenizer_config.json says that the model was trained"
    for changes in (
        {},
        {**other, "init_checkpoint": best},
        {**other, "init_checkpoint": f"{export}/bert_model.ckpt"},
        {**other, "vocab_file": f"{export}/vocab.txt"},
    ):
        refuses(message, classify, reviews, tmp_path, do_eval=True, **changes)
    assert not (tmp_path / "other").exists()
    classify(reviews, tmp_path, do_eval=True, do_lower_case=False, init_checkpoint=export, **other)


def test_programs_ask_for_the_casing(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(CASED))
    (tmp_path / "text.txt").write_text("The film\n")
    names = {"input_file": "text.txt", "vocab_file": "vocab.txt", "output_file": "out"}
    paths = {flag: str(tmp_path / name) for flag, name in names.items()}
    records = PretrainingDataSettings(max_seq_length=16, max_predictions_per_seq=2, **paths)
    checkpoint = str(tmp_path / "bert_model.ckpt")
    features = ExtractionSettings(layers="-1", init_checkpoint=checkpoint, **paths)
    extract = functools.partial(extract_features, BertConfig(len(CASED)))
    extract = functools.partial(extract, tf.distribute.get_strategy(), features)
    refuses("vocab.txt is a cased vocabulary", create_pretraining_data, records)
    refuses("vocab.txt is a cased vocabulary", extract)
    write_casing(str(tmp_path), False)
    refuses("tokenizer_config.json says that the model was trained on cased text", extract)
    assert not (tmp_path / "out").exists()
