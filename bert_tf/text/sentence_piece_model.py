"""Reads and makes the file of a SentencePiece model, a protocol buffer.

The format is `ModelProto` of SentencePiece's sentencepiece_model.proto.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import read_bytes

# Fields of ModelProto, of a piece and of the NormalizerSpec; wire types.
_PIECES, _NORMALIZER = 1, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_CHARSMAP = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Types of pieces.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = range(1, 6)
_UNKNOWN_ID = 1
_HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]")


class Unigrams(NamedTuple):
    """What a SentencePiece model of type unigram holds.

    pieces: (piece, score) in the order of ids.
    unknown_id: id of the unknown piece; None if there is none, or a file has something else.
    marked: pieces that the file lists as control symbols or as symbols of the user.
    charsmap: the compiled rules by which a text is normalized.
    """

    pieces: Sequence[tuple[str, float]]
    unknown_id: int | None
    marked: Sequence[str]
    charsmap: bytes


def read_unigrams(path: str) -> Unigrams:
    """Returns what the file of a model holds; raises UserError if it is damaged."""
    try:
        return _parse(read_bytes(path, f"--vocab_file={path}"))
    except ValueError as error:
        raise UserError(
            f"--vocab_file={path}: the file must be a SentencePiece model; it is damaged: {error}"
        ) from error


def _parse(model: bytes) -> Unigrams:
    pieces, marked, charsmap, unknown_id = [], [], b"", None
    for field, value in _fields(model):
        if field == _PIECES and isinstance(value, bytes):
            piece = dict(_fields(value))
            text, score = piece.get(_TEXT, b""), piece.get(_SCORE, bytes(4))
            if not isinstance(text, bytes) or not isinstance(score, bytes) or len(score) != 4:
                raise ValueError("a piece must have a text and a score")
            if piece.get(_TYPE) == _UNKNOWN:
                unknown_id = len(pieces)
            if piece.get(_TYPE) in (_CONTROL, _USER_DEFINED):
                marked.append(text.decode())
            pieces.append((text.decode(), struct.unpack("<f", score)[0]))
        elif field == _NORMALIZER and isinstance(value, bytes):
            found = dict(_fields(value)).get(_CHARSMAP, b"")
            charsmap = found if isinstance(found, bytes) else b""
    return Unigrams(pieces, unknown_id, marked, charsmap)


def make_model(unigrams: Unigrams, place: str, keep_accents: bool = True) -> bytes:
    """Returns the model that gives the pieces of transformers' `AlbertTokenizer`.

    It finds every piece by its score, control symbols, too, and none that spans words. Its unknown
    piece has the id 1. Messages name the file `place`.

    Raises:
        UserError: the unknown piece has another id. Or the pieces are Korean: transformers takes
            syllables apart, as `keep_accents` False asks for, and fails to join them again.
    """
    if (
        unigrams.charsmap
        and not keep_accents
        and any(_HANGUL.search(x) for x, _ in unigrams.pieces)
    ):
        raise UserError(
            f"{place}: an ALBERT in Hugging Face's format with Korean pieces must have"
            " keep_accents: true in its tokenizer_config.json. Without it transformers splits"
            " syllables into letters. Choose a different model, or add the key if the model"
            " was trained with it"
        )
    if unigrams.unknown_id != _UNKNOWN_ID:
        raise UserError(
            f"{place}: the unknown piece of an ALBERT in Hugging Face's format must have the id"
            f" {_UNKNOWN_ID}, not {quoted(unigrams.unknown_id)}: transformers takes that id,"
            " whatever the model says. Choose a different model"
        )
    model = bytearray()
    for i, (text, score) in enumerate(unigrams.pieces):
        piece = _field(_TEXT, text.encode()) + bytes([_SCORE << 3 | _FIXED32])
        piece += struct.pack("<f", score)
        kind = _UNKNOWN if i == _UNKNOWN_ID else _UNUSED if "▁" in text[1:] else _NORMAL
        piece += bytes([_TYPE << 3 | _VARINT, kind])
        model += _field(_PIECES, piece)
    return bytes(model + _field(_NORMALIZER, _field(_CHARSMAP, unigrams.charsmap)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and the value of each field of a message."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        sizes = {_FIXED64: 8, _FIXED32: 4}
        size, place = _varint(data, place) if kind == _BYTES else (sizes.get(kind), place)
        if size is None or place + size > len(data):
            raise ValueError("a field has no end")
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place
    raise ValueError("a number has no end")


def _field(number: int, content: bytes) -> bytes:
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | _BYTES, *length, size]) + content
