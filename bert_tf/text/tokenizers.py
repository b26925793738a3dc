"""The tokenizer of a vocabulary: word pieces, a SentencePiece model, or a byte-level BPE."""

import codecs
import os

import tensorflow as tf

from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.files.whole_files import read_bytes
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.byte_pairs import MERGES, BytePairTokenizer, read_files
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from bert_tf.text.tokenizer_files import read_settings
from bert_tf.text.tokenizer_json import (
    BYTE_PAIRS,
    SENTENCE_PIECES,
    TOKENIZER_FILE,
    WORD_PIECES,
    TokenizerJson,
    read_tokenizer_json,
)

# Names of a model's vocabulary in its folder. The last two come from ALBERT's released models and
# from Hugging Face's.
VOCABULARY_FILES = (WORD_PIECES, SENTENCE_PIECES, BYTE_PAIRS, "30k-clean.model", "spiece.model")

_KINDS = {
    WORD_PIECES: FastTokenizer,
    SENTENCE_PIECES: SentencePieceTokenizer,
    BYTE_PAIRS: BytePairTokenizer,
}


def vocabulary_name(vocab_file: str) -> str:
    """Returns the name of a vocabulary in a model's folder, by the ending of `vocab_file`."""
    if vocab_file.endswith(".model"):
        return SENTENCE_PIECES
    return BYTE_PAIRS if vocab_file.endswith(".json") else WORD_PIECES


def vocabulary_files(vocab_file: str) -> dict[str, str]:
    """Returns the paths of a vocabulary's files by their names in a model's folder."""
    name = vocabulary_name(vocab_file)
    files = {name: vocab_file}
    if name == BYTE_PAIRS:
        files[MERGES] = os.path.join(os.path.dirname(vocab_file), MERGES)
    return files


def read_vocabulary(vocab_file: str, hugging_face: bool = False) -> dict[str, bytes]:
    """Returns the content of a vocabulary's files by their names in a model's folder.

    A `tokenizer.json` becomes a `vocab.txt`, or a `vocab.json` with a `merges.txt`. The settings of
    the vocabulary's folder become a `tokenizer_config.json`.

    Args:
        hugging_face: see `read_settings`.

    Raises:
        UserError: a file cannot be read, or asks for something unsupported.
    """
    in_json, kind, is_vocabulary = _tokenizer_json(vocab_file)
    files: dict[str, str | bytes] = {}
    if in_json and is_vocabulary:
        files |= in_json.files()
    elif kind == BYTE_PAIRS:
        files |= read_files(vocab_file, vocab_file)
    else:
        files[kind] = read_bytes(vocab_file, vocab_file).removeprefix(codecs.BOM_UTF8)
    files |= read_settings(os.path.dirname(vocab_file), kind, in_json, hugging_face).files()
    return {name: x if isinstance(x, bytes) else x.encode() for name, x in files.items()}


def _tokenizer_json(vocab_file: str) -> tuple[TokenizerJson | None, str, bool]:
    """Returns the folder's `tokenizer.json`, the kind of vocabulary, and whether that file has it.

    Raises:
        UserError: the file is damaged, or it is the vocabulary and has none.
    """
    if tf.io.gfile.isdir(vocab_file):
        path = vocabulary_in(vocab_file) or storage.first_file(vocab_file, [TOKENIZER_FILE])
        remedy = f"give --vocab_file={path}" if path else storage.contents(vocab_file)
        raise UserError(f"--vocab_file={vocab_file} must be a file, not a folder; {remedy}")
    folder, name = os.path.split(vocab_file)
    in_json = read_tokenizer_json(folder)
    if in_json is None or name != TOKENIZER_FILE:
        return in_json, vocabulary_name(vocab_file), False
    if not in_json.vocab:
        raise UserError(
            f"{vocab_file} is ALBERT's tokenizer, which is read from its SentencePiece model: copy"
            f" the model's spiece.model to {folder}"
        )
    return in_json, in_json.kind, True


def vocabulary_in(folder: str) -> str | None:
    """Returns the path of the vocabulary in a model's folder; None if there is none.

    A `vocab.json` without `merges.txt` is skipped if there is a `tokenizer.json`, which has both.
    Raises UserError if there are several vocabularies.
    """
    remedy = "Name the model's with --vocab_file (load: vocab_file=), or move the others away"
    path = storage.only_file(folder, VOCABULARY_FILES, remedy)
    if path and vocabulary_name(path) == BYTE_PAIRS:
        beside = storage.first_file(folder, [MERGES, TOKENIZER_FILE])
        if beside and os.path.basename(beside) == TOKENIZER_FILE:
            return None
    return path


def load_tokenizer(
    vocab_file: str, do_lower_case: bool, needs_mask: bool = False, hugging_face: bool = False
) -> Tokenizer:
    """Returns the tokenizer of a vocabulary, with the settings of its folder.

    Args:
        vocab_file: a `vocab.txt`; or a SentencePiece model, whose name ends in `.model`; or a
            `vocab.json` with a `merges.txt` beside it; or Hugging Face's `tokenizer.json`.
        do_lower_case: whether to lower-case text; word pieces then lose their accents, too, unless
            the settings say otherwise.
        needs_mask: whether the vocabulary must have the mask token.
        hugging_face: see `read_settings`.

    Raises:
        UserError: the file cannot be read, is not a vocabulary, or lacks a special token. Or the
            vocabulary is a `vocab.json` and `do_lower_case` is True, or a file beside it asks for
            something unsupported.
    """
    in_json, name, is_vocabulary = _tokenizer_json(vocab_file)
    settings = read_settings(os.path.dirname(vocab_file), name, in_json, hugging_face)
    kind = _KINDS[name]
    required = (*kind.sequence_tokens, *([kind.mask_token] if needs_mask else []))
    arguments = do_lower_case, required, settings
    if in_json and is_vocabulary and name == BYTE_PAIRS:
        return BytePairTokenizer(vocab_file, *arguments, in_json.files())
    if in_json and is_vocabulary:
        return FastTokenizer(in_json.vocab, *arguments)
    tokenizer = kind(vocab_file, *arguments)
    vocab = in_json.vocab if in_json else {}
    if wrong := next((x for x, i in vocab.items() if tokenizer.vocab.get(x) != i), None):
        raise UserError(
            f"{vocab_file} and the {TOKENIZER_FILE} beside it must have the same vocabulary; token"
            f" {quoted(wrong)} has id {vocab[wrong]} in the latter. Move the file that is not the"
            " model's away"
        )
    return tokenizer
