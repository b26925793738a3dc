"""Reads and makes the file of a SentencePiece model; for the format see `sentence_piece_file`."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf import message

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import read_bytes
from bert_tf.text.sentence_piece_file import model_class

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
    except (message.DecodeError, UnicodeDecodeError) as error:
        what = error if isinstance(error, UnicodeDecodeError) else "a field cannot be read"
        raise UserError(
            f"--vocab_file={path}: the file must be a SentencePiece model; it is damaged: {what}"
        ) from error


def _parse(data: bytes) -> Unigrams:
    model = model_class().FromString(data)
    pieces, marked, unknown_id = [], [], None
    for number, piece in enumerate(model.pieces):
        text = piece.piece.decode()
        if piece.type == _UNKNOWN:
            unknown_id = number
        if piece.type in (_CONTROL, _USER_DEFINED):
            marked.append(text)
        pieces.append((text, piece.score))
    return Unigrams(pieces, unknown_id, marked, model.normalizer_spec.precompiled_charsmap)


def make_model(unigrams: Unigrams, place: str, keep_accents: bool = True) -> bytes:
    """Returns the model that gives the pieces of transformers' `AlbertTokenizer`.

    It finds every piece by its score, even control symbols, but none that spans words. Its unknown
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
    model = model_class()()
    for i, (text, score) in enumerate(unigrams.pieces):
        kind = _UNKNOWN if i == _UNKNOWN_ID else _UNUSED if "▁" in text[1:] else _NORMAL
        model.pieces.add(piece=text.encode(), score=score, type=kind)
    model.normalizer_spec.precompiled_charsmap = unigrams.charsmap
    return model.SerializeToString()
