"""`FairseqTokenizer`: text to the ids of a SentencePiece model, as in XLM-RoBERTa and CamemBERT.

fairseq puts tokens of its own before and after the pieces of the model. The package `tokenizers`
splits the text, as in transformers.
"""

from collections.abc import Sequence

import tokenizers

from bert_tf.errors import UserError, quoted
from bert_tf.text.byte_pairs import BytePairTokenizer, add_tokens
from bert_tf.text.sentence_piece_model import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    Unigrams,
    model_class,
    problem_of,
)
from bert_tf.text.tokenizer_settings import TokenizerSettings

MODEL = "sentencepiece.bpe.model"
# Class of the tokenizer -> the tokens that replace the first of these pieces, and their number.
XLM_ROBERTA, CAMEMBERT = "XLMRobertaTokenizer", "CamembertTokenizer"
_FIRST = {
    XLM_ROBERTA: (("<s>", "<pad>", "</s>", "<unk>"), 3),
    CAMEMBERT: (("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1),
}
_REPLACED, _MASK = ("<unk>", "<s>", "</s>"), "<mask>"
_UNKNOWN_ID = 3
_SCORES = {"<unk>NOTUSED": -100.0}  # others have 0


def class_of(unigrams: Unigrams, place: str) -> str:
    """Returns the class of the tokenizer with these pieces in the order of ids.

    Raises UserError, which names the file `place`, if their order is none of fairseq's.
    """
    pieces = [piece for piece, _ in unigrams.pieces]
    for class_, (first, _) in _FIRST.items():
        ends = pieces[: len(first)], pieces[-1], unigrams.unknown_id
        if ends == ([*first], _MASK, _UNKNOWN_ID):
            return class_
    raise UserError(
        f"{place}: the vocabulary must have fairseq's order: {', '.join(_FIRST[XLM_ROBERTA][0])} or"
        f" CamemBERT's tokens first, {_MASK} last, and unk_id {_UNKNOWN_ID}; it begins with"
        f" {quoted(pieces[:5])} and ends with {quoted(pieces[-1])}, and unk_id is"
        f" {unigrams.unknown_id}. Choose a different model"
    )


def in_order_of_ids(unigrams: Unigrams, tokenizer_class: str) -> Unigrams:
    """Returns a model's pieces with fairseq's tokens; `unigrams` has them in the model's order."""
    first, replaced = _FIRST[tokenizer_class]
    tokens = [(token, _SCORES.get(token, 0.0)) for token in first]
    pieces = [*tokens, *unigrams.pieces[replaced:], (_MASK, 0.0)]
    return unigrams._replace(pieces=pieces, unknown_id=_UNKNOWN_ID)


def in_order_of_model(unigrams: Unigrams, tokenizer_class: str) -> bytes:
    """Returns the model whose pieces are these with fairseq's tokens."""
    first, replaced = _FIRST[tokenizer_class]
    kinds = dict(zip(_REPLACED, (UNKNOWN, CONTROL, CONTROL), strict=True))
    model = model_class()()
    own = unigrams.pieces[len(first) : -1]
    for text, score in [*((x, 0.0) for x in _REPLACED[:replaced]), *own]:
        model.pieces.add(piece=text.encode(), score=score, type=kinds.get(text, NORMAL))
    model.normalizer_spec.precompiled_charsmap = unigrams.charsmap
    return model.SerializeToString()


class FairseqTokenizer(BytePairTokenizer):
    """Converts texts to the ids of a SentencePiece model with fairseq's tokens, without casing."""

    _kind, _space = "SentencePiece model of fairseq", "▁"

    def __init__(
        self,
        model_file: str,
        do_lower_case: bool,
        required_tokens: Sequence[str],
        settings: TokenizerSettings,
        unigrams: Unigrams,
        content: bytes,
    ):
        """Makes the tokenizer.

        Args:
            unigrams: the pieces in the order of ids.
            content: the model's file.
        """
        place = f"--vocab_file={model_file}"
        if problem := problem_of(content):
            raise UserError(f"{place}: the file must be a SentencePiece model; {problem}")
        self._check_casing(do_lower_case, place)
        own = {piece: i for i, (piece, _) in enumerate(unigrams.pieces)}
        self._set(own, {MODEL: content}, required_tokens, settings, place)
        model = tokenizers.models.Unigram([*unigrams.pieces], unigrams.unknown_id)
        tokenizer = self._tokenizer = tokenizers.Tokenizer(model)
        steps, space = tokenizers.pre_tokenizers, tokenizers.decoders.Metaspace()
        if unigrams.charsmap:
            tokenizer.normalizer = tokenizers.normalizers.Precompiled(unigrams.charsmap)
        tokenizer.pre_tokenizer = steps.Sequence([steps.WhitespaceSplit(), steps.Metaspace()])
        tokenizer.decoder = space
        add_tokens(tokenizer, self.vocab, self.settings)
