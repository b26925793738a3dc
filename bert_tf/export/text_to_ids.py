"""`TextToIds`: text to word-piece ids in core TensorFlow operations.

The ids equal `tokenization.FullTokenizer`'s exactly. Only TensorFlow itself is needed, so a
SavedModel with it loads in TensorFlow Serving and through the C API. The tables are constants of
the graph, made from the Unicode data of the Python that creates the object.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.export import unicode_tables
from bert_tf.export.piece_trie import PieceTrie
from bert_tf.export.text_symbols import TextSymbols


class TextToIds(tf.Module):
    """Converts texts to ids in a graph. Making the tables takes about a second.

    Args:
        vocab: token -> id.
        do_lower_case: whether to lower-case text and strip its accents.

    Raises:
        UserError: the vocabulary has no [UNK].
    """

    def __init__(self, vocab: Mapping[str, int], do_lower_case: bool):
        super().__init__()
        if tokenization.UNKNOWN_TOKEN not in vocab:
            raise UserError(
                f"The vocabulary lacks {tokenization.UNKNOWN_TOKEN}, which stands for words that it"
                f" cannot spell; it has {len(vocab)} tokens"
            )
        wordpiece = tokenization.WordpieceTokenizer(vocab)
        letters = unicode_tables.letters_of(vocab)
        # TensorFlow keeps strings on the CPU, so each call would copy tables from a GPU.
        with tf.device("CPU:0"):
            self._symbols = TextSymbols(letters, do_lower_case)
            longest = wordpiece.max_input_chars_per_word
            self._trie = PieceTrie(vocab, letters, vocab[wordpiece.unk_token], longest)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts, int32 [N, None].

        `texts` are string [N], UTF-8; bytes that are not UTF-8 are ignored.
        """
        with tf.device("CPU:0"):
            return self._trie(*self._symbols(texts))
