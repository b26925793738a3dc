"""Reads, checks and makes SentencePiece models, and splits texts by a model in Python.

tensorflow-text's parser trusts the file: a damaged map of characters or a piece with a NUL would
end the process with a segmentation fault. Format:
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
"""

import array
import functools
import itertools
import re
from collections.abc import Callable, Sequence
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
    "Normalizer": {
        "precompiled_charsmap": (2, "BYTES"),
        "add_dummy_prefix": (3, "BOOL"),
        "remove_extra_whitespaces": (4, "BOOL"),
        "escape_whitespaces": (5, "BOOL"),
    },
    "Trainer": {
        "model_type": (3, "INT32"),
        "treat_whitespace_as_suffix": (24, "BOOL"),
        "byte_fallback": (35, "BOOL"),
    },
    "Model": {
        "pieces": (1, "Piece"),
        "trainer_spec": (2, "Trainer"),
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
            return f"it is damaged: piece {i}, {piece.piece[:50]!r}, is there twice"
        seen.add(piece.piece)
    specifications = (model.normalizer_spec, model.denormalizer_spec)
    if not all(_is_sound(x.precompiled_charsmap) for x in specifications):
        return "it is damaged: its map of characters (precompiled_charsmap) is broken"
    return None


# The only values that splitting in Python supports; a file may omit them.
_USUAL = {
    "trainer_spec": {"model_type": 1, "treat_whitespace_as_suffix": False, "byte_fallback": False},
    "normalizer_spec": dict.fromkeys(
        ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"), True
    ),
}


def parsed_unigram(data: bytes, place: str) -> Any:
    """Parses a model for `UnigramSplitter`; raises UserError for kinds it does not support."""
    model = model_class().FromString(data)
    for part, values in _USUAL.items():
        given = getattr(model, part)
        for name, value in values.items():
            if given.HasField(name) and getattr(given, name) != value:
                raise UserError(
                    f"{place}: without TensorFlow a SentencePiece model must have the {name}"
                    f" {value}; it is {getattr(given, name)}. Load the model that was exported,"
                    " with TensorFlow"
                )
    return model


def _is_sound(charsmap: bytes) -> bool:
    # The map has a trie's size, the trie, and texts that end in NUL. The trie is a double array
    # (https://github.com/s-yata/darts-clone): the children of a unit are at its base, combined by
    # exclusive or with the child's byte. If a unit has a leaf, its base holds the place of a text.
    if not charsmap:
        return True
    size = int.from_bytes(charsmap[:4], "little")
    texts = charsmap[4 + size :]
    if size % 4 or not 0 < size < len(charsmap) - 4 or texts[-1:] != b"\0":
        return False
    units = np.frombuffer(charsmap, "<u4", size // 4, 4)
    index = np.flatnonzero(units >> 31 == 0)  # the others are places of texts
    inner = units[index]
    base = index ^ (inner >> 10 << ((inner & 0x200) >> 6))
    if units[0] >> 31 or np.any(base | 0xFF >= len(units)):
        return False
    leaves = units[base[inner & 0x100 != 0]]
    return not np.any(leaves & 0x7FFFFFFF >= len(texts))


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


_SPACE = "▁".encode()
_PENALTY = 10.0  # an unknown character's distance below the lowest score


def _length(first: int) -> int:
    """Returns the number of bytes of a character, by its first byte."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


class UnigramSplitter:
    """Splits texts by a model, a message of `model_class`, into the same pieces as tensorflow-text.

    For exported models, which need no TensorFlow. Sources: `Normalizer::Normalize` and
    `unigram::Model::EncodeOptimized` of https://github.com/google/sentencepiece.
    """

    def __init__(self, model: Any):
        self.pieces = [piece.piece for piece in model.pieces]
        scores = [piece.score for piece in model.pieces]
        kinds = [piece.type or NORMAL for piece in model.pieces]
        normal = [score for score, kind in zip(scores, kinds, strict=True) if kind == NORMAL]
        highest = max(normal, default=0.0)
        self._unknown_score = np.float32(min(normal, default=0.0) - _PENALTY).item()
        self._scores = {}
        self._own = []  # user-defined symbols, which are not normalized
        for piece, score, kind in zip(self.pieces, scores, kinds, strict=True):
            if kind == USER_DEFINED:
                self._own.append(piece)
                score = np.float32(len(piece) * highest).item() - 0.1
            if kind not in (CONTROL, UNKNOWN, UNUSED):
                self._scores[piece] = score
        self._own.sort(key=len, reverse=True)
        self._longest = max(map(len, self._scores), default=0)
        self._rule = _rules(model.normalizer_spec.precompiled_charsmap)

    def __call__(self, texts: Sequence[bytes]) -> tuple[list[bytes], np.ndarray]:
        """Returns the UTF-8 pieces of all texts, and where each text's pieces begin and end."""
        found = [self._split(self._normalized(text)) for text in texts]
        return [*itertools.chain(*found)], np.cumsum([0, *map(len, found)])

    def _normalized(self, text: bytes) -> bytes:
        parts, place, after_space = [_SPACE], 0, True
        while place < len(text):
            own = next((x for x in self._own if text.startswith(x, place)), None)
            length, part = (len(own), own) if own else self._rule(text, place)
            place += length
            part = part.lstrip(b" ") if after_space else part
            if part:
                parts.append(part)
                after_space = part.endswith(b" ")
        found = b"".join(parts).replace(b" ", _SPACE)
        while found.endswith(_SPACE):
            found = found.removesuffix(_SPACE)
        return found

    def _split(self, text: bytes) -> list[bytes]:
        """Returns the pieces with the highest sum of scores; unknown neighbours are joined."""
        size, scores = len(text), self._scores
        rounded = array.array("f", [0.0])  # like the original's floats
        best = rounded * (size + 1)
        starts = [-1] * (size + 1)
        unknown = bytearray(size + 1)
        start = 0
        while start < size:
            till_here, one = best[start], start + _length(text[start])
            end = one
            while end <= size and end - start <= self._longest:
                score = scores.get(text[start:end])
                if score is not None:
                    total = score + till_here
                    if starts[end] < 0 or total > best[end]:
                        best[end], starts[end], unknown[end] = total, start, 0
                if end == size:
                    break
                end += _length(text[end])
            if text[start:one] not in scores:
                rounded[0] = self._unknown_score + till_here
                total = rounded[0]
                if starts[one] < 0 or total > best[one]:
                    best[one], starts[one], unknown[one] = total, start, 1
            start = one
        found: list[bytes] = []
        end, follows = size, False
        while end > 0:
            piece = text[starts[end] : end]
            if unknown[end] and follows:
                found[-1] = piece + found[-1]
            else:
                found.append(piece)
            follows = bool(unknown[end])
            end = starts[end]
        return found[::-1]


def _rules(charsmap: bytes) -> Callable[[bytes, int], tuple[int, bytes]]:
    """Returns the rule of a map (see `_is_sound`): text, place -> replaced length, replacement."""

    def character(text: bytes, place: int) -> tuple[int, bytes]:
        length = _length(text[place])
        return length, text[place : place + length]

    if not charsmap:
        return character
    size = int.from_bytes(charsmap[:4], "little")
    units = np.frombuffer(charsmap, "<u4", size // 4, 4).tolist()
    changes = charsmap[4 + size :]

    def below(node: int, unit: int) -> int:
        return node ^ (unit >> 10 << ((unit & 0x200) >> 6))

    def rule(text: bytes, place: int) -> tuple[int, bytes]:
        node, found = below(0, units[0]), None
        for end in range(place, len(text)):
            node ^= text[end]
            unit = units[node]
            if unit & 0x800000FF != text[end]:
                break
            node = below(node, unit)
            if unit & 0x100:
                found = end + 1 - place, units[node] & 0x7FFFFFFF
        if found is None:
            return character(text, place)
        length, start = found
        return length, changes[start : changes.index(b"\0", start)]

    return rule
