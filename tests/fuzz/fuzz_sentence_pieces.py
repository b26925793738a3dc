"""Fuzzes SentencePiece models, whose parser trusts them: read, or refused before the parser."""

import functools
import random
import struct
from pathlib import Path

from bert_tf.text import sentence_piece_model
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from tests.fuzz.cases import attempt, damage

_MODEL = Path(__file__).parents[1] / "hugging_face/hub/005/spiece.model"  # with ALBERT's charsmap
_PIECES = ("[CLS]", "[SEP]", "▁", "▁the", "▁cat", "s", "a", "b", "é", "12", "2,", ",", "<0x41>")
_ODD_PIECES = (b"", b"\0", b"a\0b", b"\xff", b"\xe2\x96", b"\n", b"x" * 3000, b"s", "▁".encode())
_ODD_SCORES = (0.0, -1e30, 3e38, float("nan"), float("inf"), -float("inf"), 1e-40)
_TEXTS = ("The cats 12, é ﬁ Ａ 豈 \u0301", "", "x" * 300, " a  b\u2028가 👍 \0 a")


@functools.cache
def _charsmap() -> bytes:
    model = sentence_piece_model.model_class().FromString(_MODEL.read_bytes())
    return model.normalizer_spec.precompiled_charsmap


def _varint(value: int) -> bytes:
    parts = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([part | 0x80 for part in parts[:-1]] + parts[-1:])


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _piece(piece: bytes, kind: int, score: float) -> bytes:
    return _field(1, _field(1, piece) + b"\x15" + struct.pack("<f", score) + _field(3, kind))


def _odd_charsmap(random: random.Random) -> bytes:
    """Returns a map of characters with damage to its size, its trie or its texts."""
    data = bytearray(_charsmap())
    for _ in range(random.choice([1, 1, 10, 300])):
        at = random.randrange(random.choice([4, 400, len(data)]))
        data[at] = random.randrange(256)
    if random.random() < 0.3:
        del data[random.randrange(len(data)) :]
    return bytes(data)


def _model(random: random.Random) -> bytes:
    """Returns a model with something odd about it, which may still be right."""
    pieces = [(b"<unk>", 2, 0.0)]
    pieces += [(x.encode(), 3 if x.startswith("[") else 1, -1.0 - i) for i, x in enumerate(_PIECES)]
    charsmap, trainer = _charsmap(), b""
    for _ in range(random.choice([0, 1, 1, 2])):
        i = random.randrange(len(pieces))
        piece, kind, score = pieces[i]
        match random.choice(["piece", "kind", "score", "charsmap", "charsmap", "trainer"]):
            case "piece":
                piece = random.choice(_ODD_PIECES)
            case "kind":
                kind = random.choice([0, 1, 2, 3, 4, 5, 6, 7, 2**31])
            case "score":
                score = random.choice(_ODD_SCORES)
            case "charsmap":
                charsmap = random.choice([b"", b"\0", _odd_charsmap(random)])
            case _:  # the kind of model, byte_fallback, ids of special pieces
                number = random.choice([3, 4, 24, 35, 40, 41, 45, 47])
                trainer += _field(number, random.choice([0, 1, 2, 3, 4, 9, 99, 2**31, 2**64 - 1]))
        pieces[i] = (piece, kind, score)
    model = b"".join(_piece(*x) for x in pieces) + _field(2, trainer)
    model += _field(random.choice([3, 3, 3, 5]), _field(2, charsmap))
    return damage(random, model) if random.random() < 0.2 else model


def fuzz_sentence_piece_models(random: random.Random, folder: Path) -> None:
    path = folder / "spm.model"
    path.write_bytes(_model(random))
    place = f"--vocab_file={path}"
    message, tokenizer = attempt(
        lambda: SentencePieceTokenizer(str(path), random.random() < 0.5), naming=place
    )
    if message is None:
        assert list(tokenizer.vocab.values()) == list(range(len(tokenizer.vocab)))
        ids, row_splits = tokenizer.encode(_TEXTS)
        assert row_splits[-1] == len(ids) and set(ids.tolist()) <= set(tokenizer.vocab.values())
        assert row_splits[1] > 0 and row_splits[2] == row_splits[1]
