"""Tests of bert_tf.text.sentence_pieces, with a model of four kinds of pieces and golden ids."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.text.sentence_pieces import SentencePieceTokenizer, preprocess_text
from tests.support.golden import needs_golden
from tests.support.sentence_piece_model import write_model

PIECES = ["[CLS]", "[SEP]", "[MASK]", "▁", "▁the", "▁cat", "s", "1", "2", "12", "▁12,", "2,", ","]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "small.model", PIECES)


def tokens(tokenizer, *texts):
    ids, row_splits = tokenizer.encode(texts)
    assert ids.dtype == np.int32 and row_splits.dtype == np.int64
    rows = [ids[a:b] for a, b in zip(row_splits, row_splits[1:], strict=False)]
    return [[tokenizer.inv_vocab[i] for i in row] for row in rows]


def test_text_is_simplified_before():
    assert preprocess_text("  Ａ  b\tCafé ﬁ\n") == "A b Cafe fi"
    assert preprocess_text("ÀB Ç", lower=True) == "ab c"
    assert preprocess_text("") == ""


def test_pieces_and_numbers(model_file):
    tokenizer = SentencePieceTokenizer(model_file, True, ("[CLS]", "[SEP]"))
    assert tokenizer.vocab["[CLS]"] == 1 and tokenizer.inv_vocab[3] == "[MASK]"
    found = tokens(tokenizer, "The cats", "", "12, cat 12, s", "cat2,", "Ж", "\ud800 cat")
    number = ["▁", "12", ","]  # a word start of its own, as in the original
    assert found[0] == ["▁the", "▁cat", "s"]
    assert found[1] == []
    assert found[2] == [*number, "▁cat", *number, "▁", "s"]
    assert found[3] == ["▁cat", "▁", "2", ","]
    assert found[4] == ["▁", "<unk>"]
    assert found[5][-1] == "▁cat"
    assert tokens(tokenizer) == []


def test_the_places_of_pieces(model_file):
    tokenizer = SentencePieceTokenizer(model_file)
    text = " The\tcats, ﬁ ١ Ж"
    found = [
        (tokenizer.inv_vocab[piece.token_id], text[piece.start : piece.end], piece.begins_word)
        for piece in tokenizer.pieces(text)
    ]
    assert found == [
        ("▁the", "The", True),
        ("▁cat", "cat", True),
        ("s", "s", False),
        (",", ",", True),
        ("▁", "ﬁ", True),  # "fi", which the model has not
        ("<unk>", "ﬁ", False),
        ("▁", "١", True),
        ("<unk>", "١", False),
        ("▁", "Ж", True),
        ("<unk>", "Ж", False),
    ]
    assert tokenizer.pieces("") == []


def test_case_stays_if_it_should(model_file):
    tokenizer = SentencePieceTokenizer(model_file, do_lower_case=False)
    assert tokens(tokenizer, "The cats") == [["▁", "<unk>", "▁cat", "s"]]


def test_what_is_no_model_is_refused(tmp_path, model_file):
    text = tmp_path / "vocab.model"
    text.write_text("[PAD]\n[UNK]\n")
    with pytest.raises(UserError, match="vocab.model: the file must be a SentencePiece model"):
        SentencePieceTokenizer(str(text))
    with pytest.raises(UserError, match="absent.model cannot be read"):
        SentencePieceTokenizer(str(tmp_path / "absent.model"))
    with pytest.raises(UserError, match=r"lacks \[X\]; .* --control_symbols=\[CLS\],\[X\]"):
        SentencePieceTokenizer(model_file, True, ("[CLS]", "[X]"))
    other = write_model(tmp_path / "other.model", PIECES, unknown="<UNK>")
    with pytest.raises(UserError, match="other.model: the model lacks <unk>; .* default --unk_pi"):
        SentencePieceTokenizer(other, True, ("[CLS]", "[SEP]"))
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
    if kind == "raw":
        pieces, row_splits = tokenizer.split(lines)
        unknown = tokenizer.vocab["<unk>"]
        ids = np.array([tokenizer.vocab.get(piece.decode(), unknown) for piece in pieces])
    else:
        ids, row_splits = tokenizer.encode(lines)
    found = [ids[a:b].tolist() for a, b in zip(row_splits, row_splits[1:], strict=False)]
    assert found == expected
