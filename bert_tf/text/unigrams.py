"""Splits texts by a SentencePiece model in Python: the same pieces as tensorflow-text.

For exported models, which need no TensorFlow. Sources: `Normalizer::Normalize` and
`unigram::Model::EncodeOptimized` of https://github.com/google/sentencepiece.
"""

import array
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_tf.text.sentence_piece_model import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

_SPACE = "▁".encode()
_PENALTY = 10.0  # an unknown character's distance below the lowest score


def _length(first: int) -> int:
    """Returns the number of bytes of a character, by its first byte."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


class UnigramSplitter:
    """Splits texts by a model, a message of `sentence_piece_model.model_class`."""

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
        """Returns the pieces of texts in UTF-8, and where each text's begin and end."""
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
