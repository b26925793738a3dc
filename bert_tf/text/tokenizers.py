"""The tokenizer of a vocabulary: word pieces, a SentencePiece model, or a byte-level BPE."""

import os

from bert_tf.files import storage
from bert_tf.files.whole_files import read_bytes
from bert_tf.text import fast_tokenization
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.byte_pairs import MERGES, VOCABULARY, BytePairTokenizer, read_files
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sentence_pieces import MODEL, SentencePieceTokenizer
from bert_tf.text.tokenizer_files import TOKENIZER_FILE, check_byte_pair_files, read_byte_pairs

WORD_PIECES, SENTENCE_PIECES, BYTE_PAIRS = fast_tokenization.VOCABULARY, MODEL, VOCABULARY
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


def read_vocabulary(vocab_file: str) -> dict[str, bytes]:
    """Returns the content of a vocabulary's files by their names in a model's folder.

    For a `tokenizer.json` these are the files of its byte-level BPE; {} if it is not a BPE.
    """
    folder, name = os.path.split(vocab_file)
    if name == TOKENIZER_FILE:
        texts = read_byte_pairs(vocab_file)
    elif vocabulary_name(vocab_file) == BYTE_PAIRS:
        check_byte_pair_files(folder)
        texts = read_files(vocab_file, vocab_file)
    else:
        return {vocabulary_name(vocab_file): read_bytes(vocab_file, vocab_file)}
    return {name: text.encode() for name, text in texts.items()}


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


def load_tokenizer(vocab_file: str, do_lower_case: bool, needs_mask: bool = False) -> Tokenizer:
    """Returns the tokenizer of a vocabulary.

    Args:
        vocab_file: a `vocab.txt`; or a SentencePiece model, whose name ends in `.model`; or a
            `vocab.json` with a `merges.txt` beside it.
        do_lower_case: whether to lower-case text; word pieces then lose their accents, too.
        needs_mask: whether the vocabulary must have the mask token.

    Raises:
        UserError: the file cannot be read, is not a vocabulary, or lacks a special token. Or the
            vocabulary is a `vocab.json` and `do_lower_case` is True, or a file beside it asks for
            something unsupported.
    """
    kind = _KINDS[vocabulary_name(vocab_file)]
    if kind is BytePairTokenizer:
        check_byte_pair_files(os.path.dirname(vocab_file))
    masks = (kind.mask_token,) if needs_mask else ()
    return kind(vocab_file, do_lower_case, (*kind.sequence_tokens, *masks))
