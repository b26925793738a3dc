"""`FairseqTokenizer`: text to the ids of a SentencePiece model, as in XLM-RoBERTa and CamemBERT.

fairseq puts its special tokens around the model's pieces. The package `tokenizers` splits the text,
as in transformers.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers

from bert_tf.errors import UserError, quoted
from bert_tf.text import sentence_piece_model as spm
from bert_tf.text.byte_pairs import BytePairTokenizer
from bert_tf.text.tokenizer_settings import FAIRSEQ_PIECES, TokenizerSettings

XLM_ROBERTA, CAMEMBERT = "XLMRobertaTokenizer", "CamembertTokenizer"
# Class of the tokenizer -> the tokens, with scores, that replace the model's first pieces, and the
# number of these pieces.
_FIRST = {
    XLM_ROBERTA: (dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>"], 0.0), 3),
    CAMEMBERT: (dict.fromkeys(["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"], 0.0), 1),
}
_FIRST[CAMEMBERT][0]["<unk>NOTUSED"] = -100.0
_REPLACED = {"<unk>": spm.UNKNOWN, "<s>": spm.CONTROL, "</s>": spm.CONTROL}  # the first pieces
_MASK, UNKNOWN_ID = "<mask>", 3


def class_of(pieces: list[str], place: str) -> str:
    """Returns the class of a tokenizer by its pieces in the order of ids, from the file `place`."""
    for class_, (first, _) in _FIRST.items():
        if [*pieces[: len(first)], *pieces[-1:]] == [*first, _MASK]:
            return class_
    raise UserError(
        f"{place}: the vocabulary must begin and end like XLM-RoBERTa's or CamemBERT's; it begins"
        f" with {quoted(pieces[:4])} and ends with {quoted(pieces[-1:])}. Choose a different model"
    )


def in_order_of_ids(unigrams: spm.Unigrams, settings: TokenizerSettings) -> spm.Unigrams:
    """Adds fairseq's tokens to a model's pieces, which keep their order."""
    first, replaced = _FIRST[settings.tokenizer_class or XLM_ROBERTA]
    pieces = [*first.items(), *unigrams.pieces[replaced:], (_MASK, 0.0)]
    return unigrams._replace(pieces=pieces, unknown_id=UNKNOWN_ID)


def model_of(unigrams: spm.Unigrams, settings: TokenizerSettings) -> bytes:
    """Makes the model's file from the pieces with fairseq's tokens; undoes `in_order_of_ids`."""
    first, replaced = _FIRST[settings.tokenizer_class or XLM_ROBERTA]
    model = spm.model_class()()
    head = [(piece, 0.0) for piece in _REPLACED][:replaced]
    for text, score in [*head, *unigrams.pieces[len(first) : -1]]:
        model.pieces.add(piece=text.encode(), score=score, type=_REPLACED.get(text, spm.NORMAL))
    model.normalizer_spec.precompiled_charsmap = unigrams.charsmap
    return model.SerializeToString()


class FairseqTokenizer(BytePairTokenizer):
    """Converts texts to the ids of a SentencePiece model with fairseq's tokens; no lower-casing."""

    _kind, _space = "SentencePiece model of fairseq", "▁"

    def _own_vocabulary(self, files: Mapping[str, Any], place: str) -> dict[str, int]:
        if problem := spm.problem_of(files[FAIRSEQ_PIECES]):
            raise UserError(f"{place}: the file must be a SentencePiece model; {problem}")
        self._unigrams = in_order_of_ids(spm.parse(files[FAIRSEQ_PIECES]), self.settings)
        return {piece: i for i, (piece, _) in enumerate(self._unigrams.pieces)}

    def _make_tokenizer(self, files: Mapping[str, Any], place: str) -> Any:
        model = tokenizers.models.Unigram([*self._unigrams.pieces], UNKNOWN_ID)
        tokenizer, steps = tokenizers.Tokenizer(model), tokenizers.pre_tokenizers
        if self._unigrams.charsmap:
            tokenizer.normalizer = tokenizers.normalizers.Precompiled(self._unigrams.charsmap)
        tokenizer.pre_tokenizer = steps.Sequence([steps.WhitespaceSplit(), steps.Metaspace()])
        tokenizer.decoder = tokenizers.decoders.Metaspace()
        return tokenizer
