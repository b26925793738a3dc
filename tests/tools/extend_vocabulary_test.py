"""Tests of tools/extend_vocabulary.py: the folder that it writes, and programs that read it."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import checkpoints
from bert_tf.files.model_notes import ModelInput, read_model_input, write_model_input
from bert_tf.model_folder.hugging_face.vector_settings import (
    VectorSettings,
    read_vector_settings,
    write_vector_settings,
)
from bert_tf.pretrained.build import build_model
from bert_tf.pretrained.folder import read_folder
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.text.casing import read_casing
from bert_tf.text.new_words import choose_entries, count_tokens, count_words
from bert_tf.tokenization import FullTokenizer, load_vocab
from tests.support.hugging_face_folders import assert_same_bits
from tests.support.model_folders import CONFIG, VOCAB, random_weights, write_model
from tests.support.pretraining_runs import ROOT, run, variables
from tests.support.record_files import read_records
from tests.support.refusals import refusal, refuses
from tests.support.text_in_shards import contents
from tools import convert_checkpoint
from tools.build_vocabulary import learn_vocabulary
from tools.extend_vocabulary import ExtensionSettings, extend_vocabulary, report

pytestmark = pytest.mark.usefixtures("eager")

EMBEDDINGS, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
# Words of VOCAB, and: unaffable un ##aff ##able, cats cat ##s, dogs dog ##s, unaff un ##aff.
TEXT = """The unaffable dogs, the unaffable cats. Unaffable cats sat.

A cat ran, the unaff dogs sat on the mat in Paris. Zebra.
"""
OLD_TEXT = ["the cat sat on a mat .", "paris is in [MASK] ( the dog ran )", "an un able"]
FILES = ["bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"]
FILES += ["new_words.tsv", "tokenizer_config.json", "vocab.txt"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A folder with a model, with slots and step as after a run, and text.txt."""
    folder = tmp_path_factory.mktemp("model")
    weights = random_weights("squad")
    slots = {f"{name}/adam_{k}": value for name, value in weights.items() for k in "mv"}
    write_model(folder, weights | slots | {"global_step": np.int64(7)})
    config = {**CONFIG, "made_by": "tests"}
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "text.txt").write_text(TEXT)
    return folder


def files_of(model: Path) -> dict[str, str]:
    files = {"input_file": "text.txt", "init_checkpoint": "bert_model.ckpt"}
    files |= {"bert_config_file": "bert_config.json", "vocab_file": "vocab.txt"}
    return {flag: str(model / name) for flag, name in files.items()}


def extend(model: Path, output_dir: Path, **changes) -> str:
    values = {**files_of(model), "output_dir": str(output_dir), "num_words": 3, "min_count": 1}
    extend_vocabulary(ExtensionSettings(**{**values, **changes}))
    return str(output_dir)


@pytest.fixture(scope="module")
def extended(model, tmp_path_factory) -> str:
    return extend(model, tmp_path_factory.mktemp("extended") / "new")


def logits(folder: str, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the masked-LM logits of every position and the next-sentence logits."""
    found = read_folder(folder)
    model = build_model("masked_lm", found)
    positions = np.tile(np.arange(ids.shape[1], dtype=np.int32), [len(ids), 1])
    mask = (np.arange(ids.shape[1]) < ids.shape[1] - np.arange(len(ids))[:, None]).astype(np.int32)
    masked_lm, next_sentence = model(*map(tf.constant, (ids, mask, ids % 2, positions)))
    return masked_lm.numpy(), next_sentence.numpy()


def test_what_is_written(extended):
    assert sorted(os.listdir(extended)) == FILES
    config = json.loads(Path(extended, "bert_config.json").read_text())
    assert config == {**CONFIG, "made_by": "tests", "vocab_size": len(VOCAB) + 3}
    lines = Path(extended, "vocab.txt").read_text().split("\n")
    assert lines == [*VOCAB, "unaffable", "cats", "dogs", ""]
    assert read_casing(extended) is True
    assert Path(extended, "new_words.tsv").read_text().splitlines() == [
        *("entry\tid\tcount\tpieces", "unaffable\t27\t3\tun ##aff ##able", "cats\t28\t2\tcat ##s"),
        "dogs\t29\t2\tdog ##s",
    ]
    tokenizer = FullTokenizer(f"{extended}/vocab.txt")
    assert tokenizer.tokenize("Unaffable dogs, unaff") == ["unaffable", "dogs", ",", "un", "##aff"]
    filled = bert_tf.load(extended).fill_mask("the [MASK] sat", top_k=len(VOCAB) + 3)
    assert {"unaffable", "cats", "dogs"} <= {found.token for found in filled[0]}


def test_new_rows_are_means_and_all_else_stays(model, extended):
    old, new = variables(model / "bert_model.ckpt"), variables(f"{extended}/bert_model.ckpt")
    kept = {name for name in old if "adam" not in name and name != "global_step"}
    assert set(new) == kept and len(kept) > 40
    replaced = [["un", "##aff", "##able"], ["cat", "##s"], ["dog", "##s"]]
    rows = [list(map(VOCAB.index, pieces)) for pieces in replaced]
    for name in (EMBEDDINGS, BIAS):
        values = new.pop(name)
        assert_same_bits({name: values[: len(VOCAB)]}, {name: old[name]})
        means = [old[name].astype(np.float64)[row].mean(axis=0) for row in rows]
        np.testing.assert_allclose(values[len(VOCAB) :], means, rtol=1e-7)
    assert_same_bits(new, {name: old[name] for name in new})


def test_texts_whose_tokens_are_old_ones_get_the_same_bits(model, extended):
    old, new = bert_tf.load(str(model)), bert_tf.load(extended)
    for text in OLD_TEXT:
        assert old.tokenizer.reference.tokenize(text) == new.tokenizer.reference.tokenize(text)
    np.testing.assert_array_equal(old.encode(OLD_TEXT), new.encode(OLD_TEXT))
    before = old.answer("is the cat in paris", OLD_TEXT[0])
    assert new.answer("is the cat in paris", OLD_TEXT[0]) == before
    ids = np.random.default_rng(3).integers(0, len(VOCAB), size=(5, 11), dtype=np.int32)
    (old_logits, old_next), (new_logits, new_next) = logits(str(model), ids), logits(extended, ids)
    assert new_logits.shape == (55, len(VOCAB) + 3)
    np.testing.assert_array_equal(new_logits[:, : len(VOCAB)], old_logits)
    np.testing.assert_array_equal(new_next, old_next)


def test_the_report_is_measured(model, tmp_path, capsys, warnings):
    extend(model, tmp_path / "new")
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    shown = [[part.strip() for part in line if part.strip()] for line in lines]
    # 28 words, including marks. Of the 8 that were split, "unaff" still is. "Zebra" is [UNK].
    assert shown == [
        ["before", "after"],
        ["tokens", "39", "29"],
        ["tokens per word", "1.3929", "1.0357"],
        ["split words", "28.57%", "3.57%"],
        ["words that are [UNK]", "1", "1"],
        ["3 new entries save 25.64% of the tokens. The first:"],
        ["3", "unaffable", "un ##aff ##able"],
        ["2", "cats", "cat ##s"],
        ["2", "dogs", "dog ##s"],
    ]
    # Fewer candidates than asked for are all taken.
    extend(model, tmp_path / "new", num_words=1000)
    message = "Only 4 words and pieces save tokens, fewer than --num_words=1000: adding all of them"
    assert message in warnings
    assert len(load_vocab(str(tmp_path / "new" / "vocab.txt"))) == len(VOCAB) + 4


@pytest.fixture(scope="module")
def spare(model, tmp_path_factory) -> Path:
    """The model with [unusedN] lines in the middle of its vocabulary."""
    folder = tmp_path_factory.mktemp("spare")
    lines = list(VOCAB)
    for token, line in (("'", "[unused7]"), ("france", "[unused3]"), ("b", "[unused11]")):
        lines[lines.index(token)] = line
    write_model(folder, random_weights())
    (folder / "vocab.txt").write_text("\r\n".join(lines) + "\r\n")
    (folder / "text.txt").write_text(TEXT)
    return folder


def test_into_unused_lines(spare, tmp_path):
    new = extend(spare, tmp_path / "new", num_words=2, use_unused=True)
    lines = Path(new, "vocab.txt").read_text().split("\n")
    expected = list(VOCAB)
    for token, line in (("france", "unaffable"), ("'", "cats"), ("b", "[unused11]")):
        expected[expected.index(token)] = line
    assert lines == [*expected, ""]
    assert json.loads(Path(new, "bert_config.json").read_text()) == CONFIG
    old_table, table = (variables(f"{x}/bert_model.ckpt")[EMBEDDINGS] for x in (spare, new))
    rows = [VOCAB.index("france"), VOCAB.index("'")]
    pieces = [VOCAB.index(piece) for piece in ("un", "##aff", "##able")]
    np.testing.assert_allclose(table[rows[0]], old_table[pieces].mean(axis=0), rtol=1e-6)
    others = np.delete(np.arange(len(VOCAB)), rows)
    np.testing.assert_array_equal(table[others], old_table[others])
    assert table.shape == old_table.shape
    ids = np.random.default_rng(4).choice(others, size=(5, 11)).astype(np.int32)
    (old_logits, _), (new_logits, _) = logits(str(spare), ids), logits(new, ids)
    np.testing.assert_array_equal(new_logits[:, others], old_logits[:, others])


def test_too_few_unused_lines(model, spare, tmp_path):
    for folder, num_words, most in ((spare, 4, 3), (model, 3, 0)):
        told = refusal(extend, folder, tmp_path / "new", num_words=num_words, use_unused=True)
        message = f"--num_words={num_words} must be at most {most} with --use_unused, the number of"
        assert f"{message} [unusedN]" in told
    assert os.listdir(tmp_path) == []


def test_a_checkpoint_without_the_masked_lm_head_and_with_classes(tmp_path):
    weights = random_weights("classifier")
    weights = {name: x for name, x in weights.items() if not name.startswith("cls/")}
    folder = write_model(tmp_path / "classifier", weights, labels=["no", "perhaps", "yes"])
    Path(folder, "text.txt").write_text(TEXT)
    settings = VectorSettings(("max", "cls"), truncate_dim=5, prompt="a ")
    write_vector_settings(folder, settings, 12)
    write_model_input(folder, ModelInput("texts", 30))
    for _ in range(2):  # replaces a folder of its own
        new = extend(Path(folder), tmp_path / "new")
    assert read_vector_settings(new) == settings
    assert read_model_input(new) == ModelInput("texts", 30)
    assert BIAS not in variables(f"{new}/bert_model.ckpt")
    old = bert_tf.load(folder).classify(OLD_TEXT)
    assert bert_tf.load(new).classify(OLD_TEXT) == old
    assert {found.label for found in old} <= {"no", "perhaps", "yes"}


@pytest.mark.parametrize("name", ["text.txt", "text.jsonl"])
def test_casing_and_formats_of_text(model, tmp_path, name):
    text = TEXT if name == "text.txt" else json.dumps({"body": TEXT.replace("\n", " ")})
    (tmp_path / name).write_text(text)
    options = {"input_file": str(tmp_path / name), "do_lower_case": False}
    new = extend(model, tmp_path / "new", **options, text_field="body")
    assert read_casing(new) is False
    table = Path(new, "new_words.tsv").read_text()
    assert "unaffable\t27\t2\t" in table  # "Unaffable" is a different word, and [UNK]
    message = refusal(extend, Path(new), tmp_path / "more", input_file=str(tmp_path / name))
    assert "but --do_lower_case=True" in message


def test_wrong_input_leaves_nothing_behind(model, tmp_path):
    for text, changes, message in (
        ("The cat sat.\n", {}, "no word that occurs at least --min_count=1 times is split into"),
        (TEXT, {"min_count": 4}, "at least --min_count=4 times is split into pieces. Give more"),
        ("\n \n", {}, "--input_file: no new entry would save a token: no word that occurs at"),
        ("", {}, "text.txt is empty"),
        (TEXT, {"num_words": 0}, "--num_words=0 must be at least 1"),
        (TEXT, {"vocab_file": "nowhere.txt"}, "--vocab_file=nowhere.txt cannot be read"),
        (TEXT, {"init_checkpoint": "nowhere.ckpt"}, "nowhere.ckpt: there is no such folder"),
    ):
        (tmp_path / "text.txt").write_text(text)
        values = {"input_file": str(tmp_path / "text.txt"), **changes}
        told = refusal(extend, model, tmp_path / "new", **values)
        assert message in told and "\n" not in told
        assert os.listdir(tmp_path) == ["text.txt"]
    refuses("--output_dir= must not be empty", extend, model, "")


def test_files_of_another_model(model, tmp_path):
    short = tmp_path / "vocab.txt"
    short.write_text("\n".join(VOCAB[:-1]) + "\n")
    prefix = str(tmp_path / "other" / "x.ckpt")
    checkpoints.write(prefix, variables(model / "bert_model.ckpt"))
    given = {"vocab_file": str(short), "init_checkpoint": prefix}
    message = refusal(extend, model, tmp_path / "new", **given)
    assert f"there are 26 tokens of --vocab_file={short}, 27 vocab_size of" in message
    assert f"27 {EMBEDDINGS} of --init_checkpoint, 27 {BIAS} of" in message
    assert "add lines such as [unused1]" in message
    short.write_text("\n".join([*VOCAB[:-1], "[unused1]"]) + "\n")
    extend(model, tmp_path / "new", **given)

    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps({**CONFIG, "vocab_size": 28}))
    short.write_text("\n".join([*VOCAB[:5], *VOCAB[6:], VOCAB[5]]) + "\n")
    lstm = tmp_path / "lstm" / "x.ckpt"
    checkpoints.write(str(lstm), {"lstm/kernel": np.ones(3, np.float32)})
    for flag, path, message in (
        ("bert_config_file", config, "27 tokens of --vocab_file.* 28 vocab_size of"),
        (
            "vocab_file",
            short,
            "every token in the same line as the vocabulary of --init_checkpoint",
        ),
        ("init_checkpoint", lstm, f"x.ckpt must have {EMBEDDINGS}; it has 'lstm/kernel'"),
    ):
        refuses(message, extend, model, tmp_path / "other_new", **{flag: str(path)})


def test_only_its_own_folder_is_replaced(model, extended, tmp_path):
    message = refusal(extend, model, model)
    assert f"--output_dir={model}/bert_model.ckpt.index must not be a file of" in message
    message = refusal(extend, Path(extended), Path(extended), input_file=str(model / "text.txt"))
    assert "which it would replace" in message
    export = tmp_path / "export"
    write_model(export, random_weights())
    message = refusal(extend, model, export)
    assert f"--output_dir={export} must be a new or empty folder, or one that this tool" in message
    assert sorted(os.listdir(export)) == [*FILES[:3], "vocab.txt"]

    new = extend(model, tmp_path / "new", num_words=2)
    extend(model, tmp_path / "new", num_words=1)
    assert len(load_vocab(f"{new}/vocab.txt")) == len(VOCAB) + 1
    Path(new, "notes.txt").write_text("mine")
    assert "it has 'notes.txt'" in refusal(extend, model, tmp_path / "new")
    assert Path(new, "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["export", "new"]


def test_what_stops_the_writing_leaves_the_old_folder(model, tmp_path, monkeypatch):
    extend(model, tmp_path / "new", num_words=2)
    before = contents(tmp_path / "new")

    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr("bert_tf.model_folder.writer.write_casing", full)
    refuses("No space", extend, model, tmp_path / "new", kind=OSError)
    assert contents(tmp_path / "new") == before and os.listdir(tmp_path) == ["new"]


def test_records_and_conversion(extended, tmp_path):
    """create_pretraining_data reads the vocabulary, convert_checkpoint the folder."""
    (tmp_path / "text.txt").write_text(TEXT)
    files = {"input_file": f"{tmp_path}/text.txt", "output_file": f"{tmp_path}/records"}
    sizes = {"max_seq_length": 16, "max_predictions_per_seq": 3, "dupe_factor": 4}
    settings = PretrainingDataSettings(**files, vocab_file=f"{extended}/vocab.txt", **sizes)
    count = create_pretraining_data(settings)
    records = read_records(tmp_path / "records")
    assert len(records) == count > 4
    assert {27, 28, 29} <= {number for record in records for number in record["input_ids"]}
    convert_checkpoint.convert(extended, str(tmp_path / "hf"), "safetensors")
    old, new = bert_tf.load(extended), bert_tf.load(str(tmp_path / "hf"))
    np.testing.assert_array_equal(old.encode(TEXT), new.encode(TEXT))


def test_the_page_shows_what_is_printed():
    """For its own text, with the quickstart's vocabulary."""
    page = Path(ROOT, "docs", "domain-vocabulary.md").read_text()
    (text,) = re.findall(r"<<'END_OF_TEXT'\n(.*?)^END_OF_TEXT$", page, re.M | re.S)
    corpus = Path(ROOT, "flags", "quickstart", "corpus.txt").read_text()
    learned = learn_vocabulary(count_words([corpus.split("\n")], True), 1000, 1000)
    vocab = {token: number for number, token in enumerate(learned)}
    words = count_words([text.split("\n")], True)
    chosen = choose_entries(words, vocab, 8, 2)
    grown = {**vocab, **{entry: 1000 + i for i, entry in enumerate(chosen)}}
    printed = report(count_tokens(words, vocab), count_tokens(words, grown), chosen)
    assert f"\n```\n{printed}\n```\n" in page


@pytest.mark.slow
def test_the_program(model, tmp_path):
    values = {**files_of(model), "init_checkpoint": model, "min_count": 1}
    flags = [f"--{name}={value}" for name, value in values.items()]
    program = "tools.extend_vocabulary"
    printed = run(*flags, f"--output_dir={tmp_path}/new", "--num_words=3", program=program)
    assert "3 new entries save 25.64% of the tokens. The first:" in printed
    assert sorted(os.listdir(tmp_path / "new")) == FILES
    printed = run(*flags, f"--output_dir={model}", program=program, status=1)
    assert printed.splitlines()[-1].startswith("extend_vocabulary.py: --output_dir=")


def test_added_tokens_become_lines(model, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in os.listdir(model):
        (source / name).write_bytes((model / name).read_bytes())
    (source / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB[:-1]))
    added = {str(len(VOCAB) - 1): {"content": "[E1]", "lstrip": True}}
    config = {"do_lower_case": True, "added_tokens_decoder": added}
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    folder = extend(source, tmp_path / "new")
    lines = Path(folder, "vocab.txt").read_text().splitlines()
    assert lines == [*VOCAB[:-1], "[E1]", "unaffable", "cats", "dogs"]
    tokenizer = read_folder(folder).tokenizer
    ids = tokenizer.encode(["the  [E1] cats"])[0].tolist()
    assert [tokenizer.inv_vocab[i] for i in ids] == ["the", "[E1]", "cats"]
