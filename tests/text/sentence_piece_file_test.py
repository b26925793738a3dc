"""Damaged SentencePiece models are refused before tensorflow-text reads them."""

import struct
from pathlib import Path

import pytest

from bert_tf.errors import UserError
from bert_tf.text.sentence_piece_file import model_class, problem_of
from bert_tf.text.sentence_pieces import SentencePieceTokenizer

MODEL = (Path(__file__).parents[1] / "hugging_face/hub/005/spiece.model").read_bytes()
CHARSMAP = model_class().FromString(MODEL).normalizer_spec.precompiled_charsmap
TRIE_SIZE = int.from_bytes(CHARSMAP[:4], "little")


def piece(text, score=-1.0):
    content = bytes([1 << 3 | 2, len(text)]) + text + b"\x15" + struct.pack("<f", score)
    return bytes([1 << 3 | 2, len(content)]) + content


def test_a_sound_model_has_no_problem():
    assert problem_of(MODEL) is None


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (b"", "it has no pieces"),
        (b"[PAD]\n[UNK]\n", "it is not such a file, or it is damaged"),
        (MODEL[:-200], "it is not such a file, or it is damaged"),
        (MODEL + piece(b"a\0b"), r"piece \d+ is b'a\\x00b', which is not text"),
        (MODEL + piece(b"\0"), r"piece \d+ is b'\\x00', which is not text"),
        (MODEL + piece(b""), r"piece \d+ is b'', which is not text"),
        (MODEL + piece("é".encode("latin-1")), r"piece \d+ is b'\\xe9', which is not text"),
        (MODEL + piece(b"x" * 50 + b"\xff"), "is b'x{50}', which is not text"),
        (MODEL + piece(b"twice") * 2, r"piece \d+, b'twice', is there twice"),
        (MODEL + piece(b"new", float("nan")), r"the score of piece \d+ is nan"),
    ],
)
def test_a_damaged_model_is_refused(tmp_path, model, problem):
    path = tmp_path / "spm.model"
    path.write_bytes(model)
    with pytest.raises(UserError, match=problem) as error:
        SentencePieceTokenizer(str(path))
    assert str(error.value).startswith(f"--vocab_file={path}: the file must be a SentencePiece")


@pytest.mark.parametrize(
    ("place", "damage"),
    [
        (0, struct.pack("<I", 2**31)),  # the trie is larger than the file
        (0, struct.pack("<I", TRIE_SIZE - 1)),
        (0, struct.pack("<I", 0)),
        (4, b"\0\xfc\xff\x7f"),  # the root's children are outside of the trie
        (4 + 4 * 97, b"\0\xfc\xff\x7f"),  # those of another unit
        (4, b"\0\0\0\x80"),  # the root is the place of a text
        (-1, b"x"),  # the last text does not end
    ],
)
def test_a_damaged_map_of_characters_is_refused(place, damage):
    at = MODEL.index(CHARSMAP) + place % len(CHARSMAP)
    model = MODEL[:at] + damage + MODEL[at + len(damage) :]
    assert problem_of(model) == (
        "it is damaged: its map of characters (precompiled_charsmap) is broken"
    )
