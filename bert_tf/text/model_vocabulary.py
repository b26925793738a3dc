"""Is a vocabulary the one that a checkpoint was trained with? Its folder may say so."""

import os
import re

import tensorflow as tf

from bert_tf import tokenization
from bert_tf.errors import UserError, quoted
from bert_tf.files import checkpoints
from bert_tf.files.overwriting import real_path
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from bert_tf.text.tokenizers import WORD_PIECES, vocabulary_name

UNUSED_TOKEN = re.compile(r"\[unused\d+\]")  # of a line that is there to be given a meaning


def check_model_vocabulary(vocab: dict[str, int], vocab_file: str, init_checkpoint: str) -> None:
    """Checks that tokens have the ids that they had when the checkpoint was trained.

    The folder of a released model or of an export has the model's `vocab.txt`. A vocabulary may
    differ from it where that one has [unusedN], and may be longer. A SentencePiece model must have
    the pieces of the `spm.model` there.

    Args:
        vocab: token -> id.
        vocab_file: the path that they were read from.
        init_checkpoint: see `checkpoints.find_prefix`.

    Raises:
        UserError: a token of the model's vocabulary has another id now, or none.
    """
    name = vocabulary_name(vocab_file)
    model_file = os.path.join(checkpoints.folder_of(init_checkpoint), name)
    if not tf.io.gfile.exists(model_file) or real_path(vocab_file) == real_path(model_file):
        return
    expected = (
        tokenization.load_vocab(model_file)
        if name == WORD_PIECES
        else SentencePieceTokenizer(model_file).vocab
    )
    for token, number in expected.items():
        if vocab.get(token) != number and not UNUSED_TOKEN.fullmatch(token):
            now = f"in line {vocab[token] + 1}" if token in vocab else "nowhere"
            raise UserError(
                f"--vocab_file={vocab_file} must have every token where the vocabulary of"
                f" --init_checkpoint has it: {quoted(token)} is in line {number + 1} of"
                f" {model_file}, and {now} here. Give --vocab_file={model_file}; own words may"
                " replace its [unused...] lines, or follow at its end"
            )
