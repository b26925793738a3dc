"""Loads the tokenizer of a vocabulary: word pieces, a SentencePiece model, or a byte-level BPE."""

import codecs
import functools
import os
from collections.abc import Mapping
from typing import Any

from bert_tf import tokenization
from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.files.whole_files import read_bytes
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text import byte_pairs
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.byte_pairs import MERGES, BytePairTokenizer, FairseqTokenizer
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sentence_piece_model import make_model, read_unigrams
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from bert_tf.text.tokenizer_files import read_settings
from bert_tf.text.tokenizer_json import TOKENIZER_FILE, read_tokenizer_json
from bert_tf.text.tokenizer_settings import (
    BYTE_PAIRS,
    FAIRSEQ_PIECES,
    SENTENCE_PIECES,
    SPECIAL_TOKENS,
    WORD_PIECES,
)

# Names of a model's vocabulary in its folder. The last two are from ALBERT's released models and
# from Hugging Face.
_RENAMED = ("30k-clean.model", "spiece.model")
VOCABULARY_FILES = (WORD_PIECES, SENTENCE_PIECES, BYTE_PAIRS, FAIRSEQ_PIECES, *_RENAMED)

_Kind = type[FastTokenizer] | type[SentencePieceTokenizer] | type[BytePairTokenizer]
_KINDS: dict[str, _Kind] = {
    WORD_PIECES: FastTokenizer,
    SENTENCE_PIECES: SentencePieceTokenizer,
    BYTE_PAIRS: BytePairTokenizer,
    FAIRSEQ_PIECES: FairseqTokenizer,
}


def vocabulary_name(vocab_file: str) -> str:
    """Returns the name of a vocabulary in a model's folder, by the ending of `vocab_file`."""
    if vocab_file.lower().endswith(".bpe.model"):
        return FAIRSEQ_PIECES
    kinds = {".model": SENTENCE_PIECES, ".json": BYTE_PAIRS}
    return kinds.get(storage.ending_of(vocab_file), WORD_PIECES)


def vocabulary_files(vocab_file: str) -> dict[str, str]:
    """Returns the paths of a vocabulary's files by their names in a model's folder."""
    if os.path.basename(vocab_file) == TOKENIZER_FILE:
        return {TOKENIZER_FILE: vocab_file}
    name = vocabulary_name(vocab_file)
    files = {name: vocab_file}
    if name == BYTE_PAIRS:
        files[MERGES] = os.path.join(os.path.dirname(vocab_file), MERGES)
    return files


def read_vocabulary(vocab_file: str, hugging_face: bool = False) -> dict[str, bytes]:
    """Reads a vocabulary's files; returns their content by their names in a model's folder.

    A `tokenizer.json` becomes a `vocab.txt`, a SentencePiece model, or a `vocab.json` with a
    `merges.txt`. The settings of the vocabulary's folder become a `tokenizer_config.json`.
    """
    source = VocabularySource(vocab_file, hugging_face)
    files = {**source.content, **source.settings.files()}
    return {name: x if isinstance(x, bytes) else x.encode() for name, x in files.items()}


class VocabularySource:
    """A vocabulary, with the tokenizer settings of its folder.

    Attributes:
        own: the `tokenizer.json`, if that is the vocabulary.
        in_json: the folder's `tokenizer.json`.
        model: for SentencePiece in Hugging Face's format, a model that splits like `tokenizers`.
    """

    model: bytes | None = None

    def __init__(self, vocab_file: str, hugging_face: bool = False):
        if tf.io.gfile.isdir(vocab_file):
            path = vocabulary_in(vocab_file) or storage.first_file(vocab_file, [TOKENIZER_FILE])
            remedy = f"give --vocab_file={path}" if path else storage.contents(vocab_file)
            raise UserError(f"--vocab_file={vocab_file} must be a file, not a folder; {remedy}")
        self.path = vocab_file
        folder, name = os.path.split(vocab_file)
        self.in_json = read_tokenizer_json(folder)
        self.own = self.in_json if name == TOKENIZER_FILE else None
        self.kind = self.own.kind if self.own else vocabulary_name(vocab_file)
        self.settings = read_settings(folder, self.kind, self.in_json, hugging_face)
        if self.kind in (SENTENCE_PIECES, FAIRSEQ_PIECES) and self.settings.hugging_face:
            in_json = self.in_json.unigrams if self.in_json else None
            unigrams = in_json if in_json and self.own else read_unigrams(vocab_file)
            if self.kind == FAIRSEQ_PIECES and not self.own:
                unigrams = byte_pairs.with_special_pieces(unigrams, self.settings)
            self._pieces = {piece: i for i, (piece, _) in enumerate(unigrams.pieces)}
            self.check_vocabulary(self._pieces)
            unigrams = in_json or unigrams  # transformers takes tokenizer.json's scores
            # transformers also ignores the model's symbols if the files list tokens.
            added, known = self.settings.added_tokens, SPECIAL_TOKENS[self.kind].values()
            if not any(x.token_id is None and x.content not in known for x in added):
                self.settings = self.settings.with_tokens(unigrams.marked)
            if self.kind == FAIRSEQ_PIECES:
                self.model = byte_pairs.fairseq_model(unigrams, self.settings)
            else:
                self.model = make_model(unigrams, vocab_file, self.settings.keep_accents)

    @functools.cached_property
    def content(self) -> Mapping[str, Any]:
        """The vocabulary's files by their names in a model's folder."""
        if self.model:
            return {self.kind: self.model}
        if self.own:
            return self.own.files()
        if self.kind == BYTE_PAIRS:
            return byte_pairs.read_files(self.path, f"--vocab_file={self.path}")
        return {self.kind: read_bytes(self.path, self.path).removeprefix(codecs.BOM_UTF8)}

    @functools.cached_property
    def vocab(self) -> dict[str, int]:
        """Token -> id, with the added tokens."""
        if self.own:
            vocab = self.own.vocab
        elif self.kind == WORD_PIECES:
            vocab = tokenization.load_vocab(self.path)
        elif self.kind == BYTE_PAIRS:
            vocab = byte_pairs.parse_vocabulary(self.content[BYTE_PAIRS], self.path)
        elif self.model:
            vocab = self._pieces
        else:
            vocab = {piece: i for i, (piece, _) in enumerate(read_unigrams(self.path).pieces)}
        return {**vocab, **self.settings.with_ids(vocab, self.path).added_vocabulary}

    def check_vocabulary(self, vocab: Mapping[str, int]) -> None:
        """Raises UserError if `vocab` differs from the `tokenizer.json` beside its file."""
        beside = self.in_json.vocab if self.in_json else {}
        if wrong := next((x for x, i in beside.items() if vocab.get(x) != i), None):
            raise UserError(
                f"{self.path} and the {TOKENIZER_FILE} beside it must have the same vocabulary;"
                f" token {quoted(wrong)} has id {quoted(beside[wrong])} in the latter. Move the"
                " wrong file away"
            )


def vocabulary_in(folder: str) -> str | None:
    """Returns the path of the vocabulary in a model's folder, or None; UserError if it has several.

    A `vocab.json` without `merges.txt` is skipped if there is a `tokenizer.json`, which has both.
    """
    remedy = (
        "Name the model's vocabulary with --vocab_file (load: vocab_file=), or move the others away"
    )
    path = storage.only_file(folder, VOCABULARY_FILES, remedy)
    if path and vocabulary_name(path) == BYTE_PAIRS:
        beside = storage.first_file(folder, [MERGES, TOKENIZER_FILE])
        if beside and os.path.basename(beside) == TOKENIZER_FILE:
            return None
    return path


def load_tokenizer(
    vocab_file: str,
    do_lower_case: bool,
    needs_mask: bool = False,
    hugging_face: bool = False,
    drop_category_c: bool = False,
) -> Tokenizer:
    """Returns the tokenizer of a vocabulary, with the settings of its folder.

    Args:
        vocab_file: a `vocab.txt`; or a SentencePiece model, whose name ends in `.model`; or a
            `vocab.json` with a `merges.txt` beside it; or Hugging Face's `tokenizer.json`.
        do_lower_case: whether to lower-case text. Word pieces then also lose their accents, unless
            the settings say otherwise.
        needs_mask: whether the vocabulary must have the mask token.
        hugging_face: whether the vocabulary's folder is in Hugging Face's format.
        drop_category_c: whether texts lose Unicode's whole category C, as in ELECTRA.

    Raises:
        UserError: the file cannot be read, is not a vocabulary, or lacks a special token; the
            vocabulary is a `vocab.json` and `do_lower_case` is True; or a file beside it asks for
            something unsupported.
    """
    source = VocabularySource(vocab_file, hugging_face)
    kind = _KINDS[source.kind]
    required = (*kind.sequence_tokens, *([kind.mask_token] if needs_mask else []))
    if source.kind == WORD_PIECES:
        source.settings = source.settings.of_model(drop_category_c)
    arguments = do_lower_case, required, source.settings
    tokenizer: Tokenizer
    if source.kind == SENTENCE_PIECES:
        tokenizer = SentencePieceTokenizer(vocab_file, *arguments, source.model)
    elif issubclass(kind, BytePairTokenizer):
        tokenizer = kind(vocab_file, *arguments, source.content)
    elif source.own:
        settings = source.settings.with_ids(source.own.vocab, vocab_file)  # errors name the file
        return FastTokenizer(source.own.vocab, do_lower_case, required, settings)
    else:
        tokenizer = FastTokenizer(vocab_file, *arguments)
    source.check_vocabulary(tokenizer.vocab)
    return tokenizer
