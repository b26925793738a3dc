"""A vocabulary is held against the one beside the checkpoint."""

import json
import os
import re

import pytest

from bert_tf.text.model_vocabulary import check_model_vocabulary, vocabulary_digest
from bert_tf.text.tokenizers import VocabularySource
from bert_tf.tokenization import load_vocab
from tests.support.byte_pair_files import write_vocabulary
from tests.support.encoded import copy_tokenizer
from tests.support.refusals import refusal
from tests.support.tokenizer_json import word_piece_json

MODEL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "the", "of"]
MORE = ["[CLS]", "[SEP]"]


def check(folder, tokens, checkpoint="bert_model.ckpt"):
    path = folder / "mine.txt"
    path.write_text("".join(f"{token}\n" for token in tokens))
    check_model_vocabulary(load_vocab(str(path)), str(path), str(folder / checkpoint))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(MODEL))
    return tmp_path


def test_the_same_and_own_words_in_free_places_are_accepted(folder):
    check(folder, MODEL)
    check(folder, ["[PAD]", "[unused0]", "aspirin", "[UNK]", "the", "of", "ibuprofen"])
    check(folder, MODEL, "")  # the folder itself
    (folder / "vocab.txt").unlink()
    check(folder, MODEL[:2])


@pytest.mark.parametrize(
    ("tokens", "token", "line", "now"),
    [
        ([*MODEL[:4], "of", "the"], "the", 5, "in line 6"),
        (MODEL[:5], "of", 6, "missing"),
        (["[PAD]", "[UNK]", *MODEL[4:]], "[UNK]", 4, "in line 2"),
    ],
)
def test_another_model_s_vocabulary_is_refused(folder, tokens, token, line, now):
    assert refusal(check, folder, tokens) == (
        f"--vocab_file={folder}/mine.txt must have every token in the same line as the vocabulary"
        f" of --init_checkpoint: '{token}' is in line {line} of {folder}/vocab.txt, but {now} in"
        f" --vocab_file. Give --vocab_file={folder}/vocab.txt; you may replace its [unused...]"
        " lines with your own words, or add words at its end"
    )


def test_pieces_have_ids_instead_of_lines(tmp_path):
    model, other = tmp_path / "model", tmp_path / "other"
    model.mkdir()
    other.mkdir()
    theirs, mine = write_vocabulary(model, ["t h", "h e"]), write_vocabulary(other, ["h e", "t h"])
    vocab = json.loads((other / "vocab.json").read_text())
    checkpoint = str(model / "bert_model.ckpt")
    for flag in ("init_checkpoint", "teacher_checkpoint"):
        assert refusal(check_model_vocabulary, vocab, mine, checkpoint, flag) == (
            f"--vocab_file={mine} must have the pieces of {theirs}, the vocabulary of --{flag}:"
            f" 'th' has the id 261 there, but 262 in --vocab_file. Give --vocab_file={theirs}"
        )
    check_model_vocabulary(json.loads((model / "vocab.json").read_text()), mine, checkpoint)


def test_a_vocabulary_of_another_kind_is_refused(tmp_path):
    theirs = write_vocabulary(tmp_path, [])
    assert refusal(check, tmp_path, MODEL) == (
        f"--vocab_file={tmp_path}/mine.txt must be the vocabulary of --init_checkpoint, {theirs},"
        f" but is a different kind of vocabulary. Give --vocab_file={theirs}"
    )
    (tmp_path / "vocab.txt").write_text("\n".join(MODEL))
    check(tmp_path, MODEL)  # a folder may have both


FIRST_ID = str(len(MODEL))


def check_files(mine, model, flag="init_checkpoint"):
    checkpoint = os.path.join(os.path.dirname(model), "bert_model.ckpt")
    check_model_vocabulary(VocabularySource(mine).vocab, mine, checkpoint, flag)


def write_settings(folder, **config):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in MODEL))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder / "vocab.txt")


def with_token(**flags):
    return {"added_tokens_decoder": {FIRST_ID: {"content": "[E1]", **flags}}}


@pytest.mark.parametrize(
    ("ours", "theirs", "name", "values"),
    [
        ({}, {"strip_accents": False}, "strip_accents", "false.*null"),
        ({"tokenize_chinese_chars": False}, {}, "tokenize_chinese_chars", "true.*false"),
        ({"tokenizer_class": "BertTokenizer"}, {}, "tokenizer_class", 'null.*"BertTokenizer"'),
        ({"do_lower_case": True}, {"do_lower_case": False}, "do_lower_case", "false.*true"),
        ({"max_input_chars_per_word": 9}, {}, "max_input_chars_per_word", "200.*9"),
        (with_token(lstrip=True), with_token(), "added_tokens", "false.*true"),
        (with_token(), {}, "added_tokens", r"\[\].*E1"),
    ],
    ids=["accents", "ideographs", "class", "casing", "long", "flag", "added"],
)
@pytest.mark.parametrize("flag", ["teacher_checkpoint", "init_checkpoint"])
def test_tokenizers_with_other_settings_are_refused(tmp_path, ours, theirs, name, values, flag):
    mine = write_settings(tmp_path / "mine", **ours)
    model = write_settings(tmp_path / "model", **theirs)
    told = refusal(check_files, mine, model, flag)
    assert told.startswith(f"--vocab_file={mine} must have the tokenizer of --{flag}: {name} is ")
    assert re.search(values, told)
    assert told.endswith(
        f"Give --vocab_file={model}, or correct the files of the tokenizer in the folder that is"
        " wrong"
    )
    for same in (ours, theirs):
        for folder in ("mine", "model"):
            write_settings(tmp_path / folder, **same)
        check_files(mine, model, flag)


def test_an_added_token_that_is_missing(tmp_path):
    mine, model = (
        write_settings(tmp_path / "mine"),
        write_settings(tmp_path / "model", **with_token()),
    )
    told = refusal(check_files, mine, model)
    assert "'[E1]' is in line 7 of" in told and "but missing in --vocab_file" in told


@pytest.mark.parametrize("recorded", [True, False])
def test_a_model_s_record_of_its_casing_does_not_contradict_a_vocabulary_without_one(
    tmp_path, recorded
):
    # Every run writes its record to --output_dir; a released vocabulary has none.
    mine = write_settings(tmp_path / "mine")
    model = write_settings(tmp_path / "model", do_lower_case=recorded)
    check_files(mine, model, "output_dir")
    check_files(model, mine, "output_dir")


def test_a_copy_has_the_same_settings(tmp_path):
    settings = {
        "tokenizer_class": "BertTokenizer",
        "strip_accents": False,
        "additional_special_tokens": ["[E1]", {"content": "[E2]", "rstrip": True}],
        "added_tokens_decoder": {FIRST_ID: {"content": "[E3]", "normalized": True}},
    }
    mine = write_settings(tmp_path / "mine", **settings)
    copy_tokenizer(mine, tmp_path / "model")
    check_files(mine, f"{tmp_path}/model/vocab.txt")
    check_files(f"{tmp_path}/model/vocab.txt", mine)


def test_a_tokenizer_json_as_vocabulary(tmp_path):
    model, path = write_settings(tmp_path / "model"), tmp_path / "tokenizer.json"
    path.write_text(json.dumps(word_piece_json({x: i for i, x in enumerate([*MODEL, *MORE])})))
    told = refusal(check_files, str(path), model)
    assert "must have the tokenizer of --init_checkpoint: tokenizer_class is null beside" in told


def test_a_digest_depends_on_the_ids_alone_and_never_changes():
    same = {"a": 0, "b": 1, "c": 2}
    others = [{"a": 0, "b": 1, "d": 2}, {"b": 0, "a": 1, "c": 2}, {"a": 0, "b": 1, "c": 3}]
    others += [{"a": 0, "b, c": 1}, {"a": 0, 'b", "c': 1}, {}, {"a": 0, "c": 1, "b": 2}]
    for vocab in (same, *others):
        backwards = dict(reversed(vocab.items()))
        assert vocabulary_digest(vocab) == vocabulary_digest(backwards)
    assert vocabulary_digest(same) == vocabulary_digest({"b": 1, "c": 2, "a": 0})
    assert len({*map(vocabulary_digest, (same, *others))}) == 8
    # Manifests hold it: with another formula their records would be refused.
    for vocab, digest in (
        ({}, "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"),
        ({"b": 0, "a": 1}, "1afcd7d9710382fc6aded76948aaaa4b8652073bea34d26d01eafa333e6f7803"),
        (
            {"[PAD]": 0, "über": 1, 'a"b': 7},
            "83dbeaa90dd4c53e3ae79b913171a56274ffbd8727461da3a77bc25eba3b7374",
        ),
    ):
        assert vocabulary_digest(vocab) == f"sha256 {digest}"
