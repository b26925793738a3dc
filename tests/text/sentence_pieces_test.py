"""Tests of bert_tf.text.sentence_pieces, with a model of four kinds of pieces and golden ids."""

import itertools
import json
import os
from pathlib import Path

import pytest

from bert_tf.errors import UserError
from bert_tf.text.sentence_pieces import SentencePieceTokenizer, preprocess_text
from bert_tf.text.tokenizers import load_tokenizer, read_vocabulary
from tests.support.encoded import ids_of_each, placed_pieces, tokens_of_each
from tests.support.golden import needs_golden
from tests.support.sentence_piece_model import write_model

PIECES = ["[CLS]", "[SEP]", "[MASK]", "▁", "▁the", "▁cat", "s", "1", "2", "12", "▁12,", "2,", ","]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "small.model", PIECES)


def test_text_is_simplified_before():
    assert preprocess_text("  Ａ  b\tCafé ﬁ\n") == "A b Cafe fi"
    assert preprocess_text("ÀB Ç", lower=True) == "ab c"
    assert preprocess_text("") == ""
    assert preprocess_text(" Ａ  é\tÀ", lower=True, keep_accents=True) == "ａ é à"
    assert preprocess_text(" Ａ  é\t", remove_space=False) == " A  e\t"


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({}, ["▁the", "▁", "c", "a", "f", "e"]),
        ({"keep_accents": True}, ["▁the", "▁", "c", "a", "f", "é"]),
        ({"tokenizer_class": "AlbertTokenizer"}, ["▁the", "▁", "c", "a", "f", "e", "[MASK]"]),
        ({"additional_special_tokens": ["Café"]}, ["▁the", "Café"]),
    ],
    ids=["plain", "accents", "special", "added"],
)
def test_settings_of_the_folder(tmp_path, config, tokens):
    path = write_model(tmp_path / "spm.model", [*PIECES, *"cafeé"])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(path, do_lower_case=True)
    (found,) = tokens_of_each(tokenizer, "The Café[MASK]")
    assert found[: len(tokens)] == tokens
    assert ("[MASK]" in found) == ("tokenizer_class" in config)
    contents = read_vocabulary(path)
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert tokens_of_each(load_tokenizer(path, do_lower_case=True), "The Café[MASK]") == [found]


def test_pieces_and_numbers(model_file):
    tokenizer = SentencePieceTokenizer(model_file, True, ("[CLS]", "[SEP]"))
    assert tokenizer.vocab["[CLS]"] == 1 and tokenizer.inv_vocab[3] == "[MASK]"
    found = tokens_of_each(tokenizer, "The cats", "", "12, cat 12, s", "cat2,", "Ж", "\ud800 cat")
    number = ["▁", "12", ","]  # a word start of its own, as in the original
    assert found[:2] == [["▁the", "▁cat", "s"], []]
    assert found[2] == [*number, "▁cat", *number, "▁", "s"]
    assert found[3:5] == [["▁cat", "▁", "2", ","], ["▁", "<unk>"]]
    assert found[5][-1] == "▁cat"
    assert tokens_of_each(tokenizer) == []


def test_the_places_of_pieces(model_file):
    tokenizer = SentencePieceTokenizer(model_file)
    assert placed_pieces(tokenizer, " The\tcats, ﬁ ١ Ж") == [
        ("▁the", "The", True),
        ("▁cat", "cat", True),
        ("s", "s", False),
        (",", ",", True),
        ("▁", "", True),
        ("<unk>", "ﬁ", False),  # "fi", which the model has not
        ("▁", "", True),
        ("<unk>", "١", False),
        ("▁", "", True),
        ("<unk>", "Ж", False),
    ]
    assert tokenizer.pieces("") == []


def test_case_stays_if_it_should(model_file):
    tokenizer = SentencePieceTokenizer(model_file, do_lower_case=False)
    assert tokens_of_each(tokenizer, "The cats") == [["▁", "<unk>", "▁cat", "s"]]


def test_what_is_no_model_is_refused(tmp_path, model_file):
    text = tmp_path / "vocab.model"
    text.write_text("[PAD]\n[UNK]\n")
    other = write_model(tmp_path / "other.model", PIECES, unknown="<UNK>")
    for path, required, message in (
        (text, (), "vocab.model: the file must be a SentencePiece model"),
        (tmp_path / "absent.model", (), "absent.model cannot be read"),
        (model_file, ("[CLS]", "[X]"), r"lacks \[X\]; .* --control_symbols=\[CLS\],\[X\]"),
        (other, ("[CLS]", "[SEP]"), "other.model: the model lacks <unk>; .* default --unk_pi"),
    ):
        with pytest.raises(UserError, match=message):
            SentencePieceTokenizer(str(path), True, required)
    with pytest.raises(TypeError, match="not one string"):
        SentencePieceTokenizer(model_file).encode("cats")


@needs_golden
@pytest.mark.parametrize("kind", ["uncased", "cased", "raw"])
@pytest.mark.parametrize("model", ["sentencepiece_test", "albert_layout"])
def test_every_id_is_the_originals(model, kind):
    folder = Path(os.environ["BERT_TF_GOLDEN"]) / "albert" / "text"
    expected = [json.loads(x) for x in (folder / f"{model}_{kind}.jsonl").open()]
    lines = [json.loads(x) for x in (folder / "lines.jsonl").open()][: len(expected)]
    tokenizer = SentencePieceTokenizer(str(folder / f"{model}.model"), kind == "uncased")
    if kind != "raw":
        assert ids_of_each(tokenizer, lines) == expected
        return
    pieces, row_splits = tokenizer.split(lines)
    ids = [tokenizer.vocab.get(piece.decode(), tokenizer.unknown_id) for piece in pieces]
    assert [ids[a:b] for a, b in itertools.pairwise(row_splits)] == expected
