"""Writes a SentencePiece model of given pieces."""

from collections.abc import Sequence
from pathlib import Path

from bert_tf.text.sentence_piece_model import CONTROL, NORMAL, UNKNOWN, model_class


def write_model(
    path: Path, pieces: Sequence[str], unknown: str = "<unk>", first: Sequence[str] = ()
) -> str:
    """Returns the path. Pieces in brackets are control symbols, those of `first` come first.

    Then comes the unknown piece. All other pieces have the same score, so that a text gets the
    fewest pieces.
    """
    kinds = [(piece, CONTROL) for piece in first] + [(unknown, UNKNOWN)]
    kinds += [(piece, CONTROL if piece.startswith("[") else NORMAL) for piece in pieces]
    model = model_class()()
    for piece, kind in kinds:
        model.pieces.add(piece=piece.encode(), score=-1.0, type=kind)
    path.write_bytes(model.SerializeToString())
    return str(path)
