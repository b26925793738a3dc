"""The tokenizer of a vocabulary: word pieces in a text file, or a SentencePiece model."""

from collections.abc import Sequence

from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sentence_pieces import SentencePieceTokenizer

Tokenizer = FastTokenizer | SentencePieceTokenizer

# Names of a model's vocabulary in its folder; the last is that of ALBERT's released models.
VOCABULARY_FILES = (WORD_PIECES, SENTENCE_PIECES, _) = ("vocab.txt", "spm.model", "30k-clean.model")


def vocabulary_name(vocab_file: str) -> str:
    """Returns the name that a vocabulary has in a model's folder; its ending says what it is."""
    return SENTENCE_PIECES if vocab_file.endswith(".model") else WORD_PIECES


def load_tokenizer(
    vocab_file: str, do_lower_case: bool = True, required_tokens: Sequence[str] = ()
) -> Tokenizer:
    """Returns the tokenizer of a vocabulary.

    Args:
        vocab_file: a `vocab.txt`, or a SentencePiece model, whose name ends in `.model`.
        do_lower_case: whether to lower-case text; word pieces then lose their accents, too.
        required_tokens: tokens that the vocabulary must have.

    Raises:
        UserError: the file cannot be read, is no vocabulary, or lacks required tokens.
    """
    if vocabulary_name(vocab_file) == SENTENCE_PIECES:
        return SentencePieceTokenizer(vocab_file, do_lower_case, required_tokens)
    return FastTokenizer(vocab_file, do_lower_case, required_tokens)
