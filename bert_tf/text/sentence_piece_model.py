"""Reads, checks and makes SentencePiece models.

The package `sentencepiece` trusts the file: a damaged map of characters or a piece with a NUL could
end the process with a segmentation fault. Its own message classes need a newer `protobuf` than
TensorFlow has. Format:
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import message

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import read_bytes

# Message -> field -> (number, type or message).
_MESSAGES = {
    "Piece": {
        "piece": (1, "BYTES"),
        "score": (2, "FLOAT"),
        "type": (3, "INT32"),
    },
    "Normalizer": {"precompiled_charsmap": (2, "BYTES")},
    "Model": {
        "pieces": (1, "Piece"),
        "normalizer_spec": (3, "Normalizer"),
        "denormalizer_spec": (5, "Normalizer"),
    },
}
# Types of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = range(1, 6)
_UNKNOWN_ID = 1
_HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]")


@functools.cache
def model_class() -> Any:
    """Returns a protocol buffer class with the fields that are checked, read or made."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # slow to import

    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bert_tf/sentence_piece.proto", syntax="proto2")
    file.package = "bert_tf.sentence_piece"
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated = field == "pieces"
            label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            added = described.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                added.type, added.type_name = types.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                added.type = types.Type.Value(f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Model"))


def problem_of(data: bytes) -> str | None:
    """Returns what is wrong with a model's content; None if it is sound."""
    try:
        model = model_class().FromString(data)
    except message.DecodeError:
        return "it is not such a file, or it is damaged"
    if not model.pieces:
        return "it has no pieces"
    seen: set[bytes] = set()
    for i, piece in enumerate(model.pieces):
        text = piece.piece.decode(errors="ignore")
        if not text or "\0" in text or text.encode() != piece.piece:
            return f"it is damaged: piece {i} is {piece.piece[:50]!r}, which is not text"
        if not abs(piece.score) < np.inf:
            return f"it is damaged: the score of piece {i} is {piece.score}"
        if piece.piece in seen:
            return f"it is damaged: piece {i}, {piece.piece[:50]!r}, occurs twice"
        seen.add(piece.piece)
    specifications = (model.normalizer_spec, model.denormalizer_spec)
    if not all(_is_sound(x.precompiled_charsmap) for x in specifications):
        return "it is damaged: its map of characters (precompiled_charsmap) is broken"
    return None


def _is_sound(charsmap: bytes) -> bool:
    # The map has a trie's size, the trie, and texts that end in NUL. The trie is a double array
    # (https://github.com/s-yata/darts-clone): the children of a unit are at its base, combined by
    # exclusive or with the child's byte. If a unit has a leaf, its base holds the place of a text.
    if not charsmap:
        return True
    size = int.from_bytes(charsmap[:4], "little")
    texts = charsmap[4 + size :]
    if size % 4 or not 0 < size < len(charsmap) - 4 or texts[-1:] != b"\0" or not _is_utf8(texts):
        return False
    units = np.frombuffer(charsmap, "<u4", size // 4, 4)
    index = np.flatnonzero(units >> 31 == 0)  # the others are places of texts
    inner = units[index]
    base = index ^ (inner >> 10 << ((inner & 0x200) >> 6))
    if units[0] >> 31 or np.any(base | 0xFF >= len(units)):
        return False
    places = units[base[inner & 0x100 != 0]] & 0x7FFFFFFF
    if np.any(places >= len(texts)):
        return False
    first = np.frombuffer(texts, np.uint8)[places]
    return not np.any(first & 0xC0 == 0x80)  # inside a character


def _is_utf8(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


class Unigrams(NamedTuple):
    """The content of a SentencePiece model of type unigram."""

    pieces: Sequence[tuple[str, float]]  # (piece, score) in the order of ids
    unknown_id: int | None  # None if there is none; a tokenizer.json may have anything here
    marked: Sequence[str]  # control symbols and user-defined symbols
    charsmap: bytes  # the compiled rules that normalize a text


def read_unigrams(path: str) -> Unigrams:
    """Reads a model's file; raises UserError if it is damaged."""
    try:
        return parse(read_bytes(path, f"--vocab_file={path}"))
    except (message.DecodeError, UnicodeDecodeError) as error:
        what = error if isinstance(error, UnicodeDecodeError) else "a field cannot be read"
        raise UserError(
            f"--vocab_file={path}: the file must be a SentencePiece model; it is damaged: {what}"
        ) from error


def parse(data: bytes) -> Unigrams:
    model = model_class().FromString(data)
    pieces, marked, unknown_id = [], [], None
    for number, piece in enumerate(model.pieces):
        text = piece.piece.decode()
        if piece.type == UNKNOWN:
            unknown_id = number
        if piece.type in (CONTROL, USER_DEFINED):
            marked.append(text)
        pieces.append((text, piece.score))
    return Unigrams(pieces, unknown_id, marked, model.normalizer_spec.precompiled_charsmap)


def make_model(unigrams: Unigrams, place: str, keep_accents: bool = True) -> bytes:
    """Makes a model that splits texts like transformers' `AlbertTokenizer`.

    All pieces compete by score, even control symbols; pieces that span words are unused.
    """
    normalizes = unigrams.charsmap and not keep_accents
    if normalizes and any(_HANGUL.search(x) for x, _ in unigrams.pieces):
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
    model = model_class()()
    for i, (text, score) in enumerate(unigrams.pieces):
        kind = UNKNOWN if i == _UNKNOWN_ID else UNUSED if "▁" in text[1:] else NORMAL
        model.pieces.add(piece=text.encode(), score=score, type=kind)
    model.normalizer_spec.precompiled_charsmap = unigrams.charsmap
    return model.SerializeToString()
