"""Writes a SentencePiece model of given pieces: the file's format is a protocol buffer.

Fields: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3


def write_model(
    path: Path, pieces: Sequence[str], unknown: str = "<unk>", first: Sequence[str] = ()
) -> str:
    """Returns the path. Pieces in brackets are control symbols, those of `first` come first.

    Then comes the unknown piece. All other pieces have the same score, so that a text gets the
    fewest pieces.
    """
    types = [(piece, _CONTROL) for piece in first] + [(unknown, _UNKNOWN)]
    types += [(piece, _CONTROL if piece.startswith("[") else _NORMAL) for piece in pieces]
    path.write_bytes(b"".join(_field(1, _piece(piece, kind)) for piece, kind in types))
    return str(path)


def _piece(piece: str, kind: int) -> bytes:
    return _field(1, piece.encode()) + b"\x15" + struct.pack("<f", -1.0) + bytes([3 << 3, kind])


def _field(number: int, value: bytes) -> bytes:
    assert len(value) < 128  # one byte of length
    return bytes([number << 3 | 2, len(value)]) + value
