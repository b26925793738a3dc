"""Byte-level BPE and fairseq's SentencePiece models, encoded with the package `tokenizers`.

In a BPE, as in RoBERTa and GPT-2, the bytes of a text are merged into pieces, so every text can be
encoded unchanged. A space belongs to the word after it. fairseq puts its special tokens around the
pieces of a SentencePiece model, as in XLM-RoBERTa and CamemBERT.
"""

import copy
import functools
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

from bert_tf.errors import UserError, quoted
from bert_tf.files.storage import is_unicode
from bert_tf.files.whole_files import read_text
from bert_tf.text import sentence_piece_model as spm
from bert_tf.text.base_tokenizer import Piece, Tokenizer, without_space
from bert_tf.text.tokenizer_settings import (
    BYTE_PAIRS,
    DEFAULTS,
    FAIRSEQ_PIECES,
    AddedToken,
    TokenizerSettings,
)

MERGES = "merges.txt"
SPACE = "Ġ"  # stands for a space in a piece
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # in the order of RoBERTa's ids
MASK = AddedToken("<mask>", lstrip=True)  # as in fairseq's models; a model's files may differ
_UNKNOWN = "<unk>"


class BytePairTokenizer(Tokenizer):
    """Converts texts to the ids of a byte-level BPE, without lower-casing.

    Tokens in `vocab` have one character for each byte (except in `FairseqTokenizer`). A special
    token written in a text becomes that token, as in Hugging Face's tokenizer. The space before a
    <mask> belongs to the <mask>, unless `settings.added_tokens` says otherwise.
    """

    sequence_tokens = ("<s>", "</s>")
    mask_token = "<mask>"
    do_lower_case = False
    carries_space = True
    _kind, _space = "byte-level BPE", SPACE
    _between = 2, 0  # <s> a </s></s> b </s>, all of segment 0

    def __init__(
        self,
        vocab_file: str,
        do_lower_case: bool = False,
        required_tokens: Sequence[str] = (),
        settings: TokenizerSettings = DEFAULTS,
        files: Mapping[str, Any] | None = None,
    ):
        """Reads a `vocab.json`, and the `merges.txt` beside it.

        Args:
            do_lower_case: must be False.
            required_tokens: tokens that the vocabulary must have in addition to <unk>.
            files: the content of both files by name, instead of reading them.

        Raises:
            UserError: a file is missing or damaged, tokens are missing, or `do_lower_case` is True.
        """
        place = f"--vocab_file={vocab_file}"
        if do_lower_case:
            raise UserError(
                f"{place} is a {self._kind}, which is trained on text as it is written; set"
                " --do_lower_case=False"
            )
        self._merges_file = os.path.join(os.path.dirname(vocab_file), MERGES)
        files = files or read_files(vocab_file, place)
        self.settings = settings
        own = self._own_vocabulary(files, place)
        self.settings = settings.with_ids(own, place)
        self.files: dict[str, str | bytes] = {**files, **self.settings.files()}
        self.vocab = {**own, **self.settings.added_vocabulary}
        missing = [t for t in dict.fromkeys([_UNKNOWN, *required_tokens]) if t not in self.vocab]
        if missing:
            raise UserError(
                f"{place}: the vocabulary lacks {', '.join(missing)}; RoBERTa's has"
                f" {', '.join(SPECIAL_TOKENS)}. This one has {len(self.vocab)} tokens"
            )
        self.inv_vocab = {i: token for token, i in self.vocab.items()}
        self.unknown_id = self.vocab[_UNKNOWN]
        self._tokenizer = self._make_tokenizer(files, place)
        added = {t: AddedToken(t) for t in SPECIAL_TOKENS if t in self.vocab}
        found = (MASK, *self.settings.added_tokens)
        added |= {t.content: t for t in found if t.content in self.vocab}
        tokens = [tokenizers.AddedToken(**x.options) for x in added.values()]
        self._tokenizer.add_special_tokens(tokens)

    def _own_vocabulary(self, files: Mapping[str, Any], place: str) -> dict[str, int]:
        return parse_vocabulary(files[BYTE_PAIRS], place)

    def _make_tokenizer(self, files: Mapping[str, Any], place: str) -> Any:
        lines = [x for x in files[MERGES].split("\n") if x and not x.startswith("#version")]
        pairs: list[Any] = [tuple(line.split(" ")) for line in lines]
        try:
            model = tokenizers.models.BPE(dict(self.vocab), pairs, unk_token=_UNKNOWN)
        except Exception as error:
            raise UserError(
                f"{self._merges_file}: each line must have two tokens of {place} that make a third"
                f" token when joined; {quoted(str(error))}. Are both files from the same model?"
            ) from error
        tokenizer = tokenizers.Tokenizer(model)
        prefix = self.settings.add_prefix_space
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix)
        tokenizer.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        return tokenizer

    def after_lowering(self) -> "BytePairTokenizer":
        """Returns a tokenizer that first lower-cases each character of a text."""
        other = copy.copy(self)
        other._tokenizer = type(self._tokenizer).from_str(self._tokenizer.to_str())
        steps = [tokenizers.normalizers.Lowercase(), self._tokenizer.normalizer]
        other._tokenizer.normalizer = tokenizers.normalizers.Sequence([x for x in steps if x])
        return other

    added = None  # the package `tokenizers` finds added tokens

    @functools.cached_property
    def continuations(self) -> frozenset[int]:
        """Ids of pieces that continue a word: those that do not begin with a space."""
        inside = (piece for piece in self.vocab if not piece.startswith(self._space))
        added = {*SPECIAL_TOKENS, *self.settings.added_vocabulary}
        return frozenset(self.vocab[piece] for piece in inside if piece not in added)

    @functools.cached_property
    def never_drawn(self) -> frozenset[int]:
        """Ids of special tokens. A random <pad> has no position, so later positions would shift."""
        return frozenset(self.vocab[token] for token in SPECIAL_TOKENS if token in self.vocab)

    @functools.cached_property
    def aliases(self) -> Mapping[int, int]:
        """Extra id -> id of the piece, for pieces without a space that begin a text."""
        size = len(self.vocab)
        return {size + i: i for i in self.continuations}

    def _encode(self, texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
        rows = [encoding.ids for encoding in self._encodings(texts)]
        lengths = [len(row) for row in rows]
        return np.fromiter((i for row in rows for i in row), np.int32, sum(lengths)), lengths

    def encode_for_masking(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Like `encode`, but with an alias for a text's first piece if it lacks a space."""
        ids, row_splits = self.encode(texts)
        first = row_splits[:-1][np.diff(row_splits) > 0]
        begins = first[np.isin(ids[first], list(self.continuations))]
        ids[begins] += len(self.vocab)
        return ids, row_splits

    def encode_masks(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Like `encode`, which already finds every <mask>."""
        return self.encode(texts)

    def _pieces(self, text: str) -> list[Piece]:
        (encoding,) = self._encodings([text])
        words = encoding.word_ids
        found = zip(encoding.ids, encoding.offsets, words, [None, *words], strict=False)
        return [
            Piece(token_id, *without_space(text, *span), word is None or word != last_word)
            for token_id, span, word, last_word in found
        ]

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Converts token ids to text; U+FFFD replaces bytes that are not valid UTF-8."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def _encodings(self, texts: Sequence[str]) -> list[Any]:
        # Half a surrogate pair, which UTF-8 cannot encode, becomes a question mark.
        valid = [text.encode("utf-8", "replace").decode() for text in texts]
        return self._tokenizer.encode_batch(valid, add_special_tokens=False)


def read_files(vocab_file: str, place: str) -> dict[str, str]:
    """Reads a `vocab.json`, called `place` in messages, and its `merges.txt`; name -> content."""
    merges_file = os.path.join(os.path.dirname(vocab_file), MERGES)
    rule = f"it says how the bytes of {place} are merged"
    return {
        BYTE_PAIRS: read_text(vocab_file, place),
        MERGES: read_text(merges_file, merges_file, rule),
    }


def parse_vocabulary(content: str, place: str) -> dict[str, int]:
    """Parses a `vocab.json`, called `place` in messages: token -> id, in the order of ids."""
    rule = "the file must map tokens to ids, which must be the numbers from 0 on, each once"
    try:
        vocab = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: {rule}; it is not JSON: {error}") from error
    found = in_order_of_ids(vocab) if isinstance(vocab, dict) else None
    if not found:
        raise UserError(f"{place}: {rule}; received {quoted(vocab)}")
    check_text(found, place)
    return found


def check_text(tokens: Iterable[str], place: str) -> None:
    """Raises UserError if a token of the file `place` is not Unicode."""
    odd = next(itertools.filterfalse(is_unicode, tokens), None)
    if odd is not None:
        raise UserError(
            f"{place}: tokens must be Unicode text; {quoted(odd)} has half a surrogate pair. The"
            " file is damaged: copy or download it again"
        )


def in_order_of_ids(vocab: Mapping[str, Any]) -> dict[str, int]:
    """Sorts token -> id by id; returns {} if the ids are not the numbers from 0 on."""
    ids = list(vocab.values())
    if any(type(i) is not int for i in ids) or sorted(ids) != list(range(len(ids))):
        return {}
    return dict(sorted(vocab.items(), key=lambda item: item[1]))


XLM_ROBERTA, CAMEMBERT = "XLMRobertaTokenizer", "CamembertTokenizer"
# Tokenizer class -> (token -> score, number of the model's first pieces that the tokens replace).
_FIRST = {
    XLM_ROBERTA: (dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>"], 0.0), 3),
    CAMEMBERT: (dict.fromkeys(["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"], 0.0), 1),
}
_FIRST[CAMEMBERT][0]["<unk>NOTUSED"] = -100.0
# The model's first pieces, and their types.
_REPLACED = {"<unk>": spm.UNKNOWN, "<s>": spm.CONTROL, "</s>": spm.CONTROL}
UNKNOWN_ID = 3


def class_of(pieces: list[str], place: str) -> str:
    """Returns the tokenizer class of the file `place` by its pieces, which are ordered by id."""
    for class_, (first, _) in _FIRST.items():
        if [*pieces[: len(first)], *pieces[-1:]] == [*first, MASK.content]:
            return class_
    raise UserError(
        f"{place}: the vocabulary must begin and end like XLM-RoBERTa's or CamemBERT's; it begins"
        f" with {quoted(pieces[:4])} and ends with {quoted(pieces[-1:])}. Choose a different model"
    )


def with_special_pieces(unigrams: spm.Unigrams, settings: TokenizerSettings) -> spm.Unigrams:
    """Adds fairseq's tokens to a model's pieces, which keep their order."""
    first, replaced = _FIRST[settings.tokenizer_class or XLM_ROBERTA]
    pieces = [*first.items(), *unigrams.pieces[replaced:], (MASK.content, 0.0)]
    return unigrams._replace(pieces=pieces, unknown_id=UNKNOWN_ID)


def fairseq_model(unigrams: spm.Unigrams, settings: TokenizerSettings) -> bytes:
    """Makes a SentencePiece model's file from the result of `with_special_pieces`."""
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
        self._unigrams = with_special_pieces(spm.parse(files[FAIRSEQ_PIECES]), self.settings)
        return {piece: i for i, (piece, _) in enumerate(self._unigrams.pieces)}

    def _make_tokenizer(self, files: Mapping[str, Any], place: str) -> Any:
        model = tokenizers.models.Unigram([*self._unigrams.pieces], UNKNOWN_ID)
        tokenizer, steps = tokenizers.Tokenizer(model), tokenizers.pre_tokenizers
        if self._unigrams.charsmap:
            tokenizer.normalizer = tokenizers.normalizers.Precompiled(self._unigrams.charsmap)
        tokenizer.pre_tokenizer = steps.Sequence([steps.WhitespaceSplit(), steps.Metaspace()])
        tokenizer.decoder = tokenizers.decoders.Metaspace()
        return tokenizer
