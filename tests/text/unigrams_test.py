"""Python splits texts by a SentencePiece model into the pieces of tensorflow-text."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

from bert_tf.start.local_files import only_local_files
from bert_tf.text.sentence_piece_model import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    model_class,
    parsed_unigram,
)
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from tests.support.golden import needs_golden
from tests.support.refusals import refuses

HUB = Path(__file__).resolve().parents[1] / "hugging_face/hub"
LETTERS = [chr(x) for x in range(32, 127)] + [" "] * 30
CHARACTERS = LETTERS + [
    chr(x)
    for first, last in [(1, 592), (768, 880), (4352, 4480), (8192, 8304), (44032, 44096)]
    for x in range(first, last)
]
CHARACTERS += [*"ﬁＡ①½ǆ한각が゙あ\ufeff\u200d😀\U0010ffff"]


def texts(count=400, seed=0):
    draw = random.Random(seed)
    found = ["", " ", "  a  ", "the cat sat, 12,345 (maybe)", "▁▁a▁"]
    while len(found) < count:
        found.append("".join(draw.choices(draw.choice([LETTERS, CHARACTERS]), k=len(found) % 40)))
    return found


def content_of(charsmap=b"", **settings):
    """Returns a model with each kind of piece, and scores that all differ."""
    pieces = {"<pad>": CONTROL, "<unk>": UNKNOWN, "[CLS]": CONTROL, "(": USER_DEFINED}
    pieces |= {"xy z": USER_DEFINED, "the": UNUSED, "q": UNUSED}
    pieces |= dict.fromkeys(["▁", "▁the", "▁t", "he", "ca", "cat", "at", "s", "é", "ﬁ"], NORMAL)
    pieces |= dict.fromkeys([*"abcdehtx12,zy"], NORMAL)
    model, draw = model_class()(), random.Random(1)
    for piece, kind in pieces.items():
        score = -draw.uniform(1, 9) if kind == NORMAL else 0.0
        model.pieces.add(piece=piece.encode(), score=score, type=kind)
    model.normalizer_spec.precompiled_charsmap = charsmap
    for name, value in settings.items():
        part = model.trainer_spec if name in ("model_type", "byte_fallback") else None
        setattr(part or model.normalizer_spec, name, value)
    return model.SerializeToString()


def check(path):
    ours_and_theirs = []
    for lower in (True, False):
        theirs = SentencePieceTokenizer(path, lower)
        with only_local_files():
            ours = SentencePieceTokenizer(path, lower)
        ours_and_theirs += [(ours, theirs)]
    for ours, theirs in ours_and_theirs:
        assert ours.vocab == theirs.vocab
        for made in ("encode", "encode_for_masking"):
            found, expected = getattr(ours, made)(texts()), getattr(theirs, made)(texts())
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(x, y)
    for text in texts()[:40]:
        assert ours.pieces(text) == theirs.pieces(text)


def test_each_kind_of_piece(tmp_path):
    (tmp_path / "spm.model").write_bytes(content_of())
    check(str(tmp_path / "spm.model"))


@pytest.mark.parametrize("number", ["005", "011", "017"])
def test_models_with_a_map_of_characters(number):
    check(str(HUB / number / "spiece.model"))


@needs_golden
def test_the_model_of_the_original():
    check(f"{os.environ['BERT_TF_GOLDEN']}/albert/text/albert_layout.model")


def test_other_kinds_of_models_need_tensorflow():
    for settings, message in (
        ({"model_type": 2}, "must have the model_type 1; it is 2"),
        ({"byte_fallback": True}, "must have the byte_fallback False; it is True"),
        ({"add_dummy_prefix": False}, "must have the add_dummy_prefix True; it is False"),
    ):
        refuses(message, parsed_unigram, content_of(**settings), "spm.model")
        assert parsed_unigram(content_of(model_type=1), "spm.model").pieces
