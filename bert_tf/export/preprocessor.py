"""`Preprocessor`: makes features from texts in a `tf.data` pipeline or a Keras model."""

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.export.text_inputs import TextInputs
from bert_tf.model.saving import register
from bert_tf.pretrained import text_input
from bert_tf.pretrained.build import INPUTS
from bert_tf.pretrained.folder import read_folder
from bert_tf.tasks.arguments import SWITCH, WHOLE_NUMBER, check_type, received
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.fast_tokenization import FastTokenizer

_SHORTEST = 4  # the shortest sequence, as for `load`


@register
class Preprocessor(keras.layers.Layer):
    """Makes the features of a model from texts, as a function for `tf.data.Dataset.map`.

        preprocessor = bert_tf.Preprocessor("uncased_L-12_H-768_A-12", max_seq_length=128)
        dataset = dataset.batch(32).map(preprocessor, num_parallel_calls=tf.data.AUTOTUNE)

    The ids are exactly the tokenizer's. Long texts are truncated as in the programs.

    Args:
        folder: a folder that `bert_tf.load` takes, or a tokenizer from `bert_tf.load_tokenizer`.
        max_seq_length: length S of every sequence, [CLS] and [SEP] included. None for the folder's.
        in_graph: whether texts are split by core TensorFlow operations only, so that the layer also
            works in an exported graph and in a Keras model that takes texts. With False the graph
            calls Python, which is several times faster, but only works in this process. None is
            True if possible: for a vocabulary of word pieces without added tokens that have
            `single_word` or `normalized` set.
        **kwargs: arguments of a Keras layer, such as `name`.

    Attributes:
        tokenizer: the tokenizer with the same ids.
        max_seq_length: see above.

    Raises:
        UserError: the folder has no model, `max_seq_length` is missing or out of range, or
            `in_graph` is impossible.
    """

    tokenizer: Tokenizer
    max_seq_length: int

    def __init__(
        self,
        folder: str | os.PathLike[str] | Tokenizer,
        max_seq_length: int | None = None,
        in_graph: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._convert_input_args = False  # Keras would convert lists of texts to floats
        self._allow_non_tensor_positional_args = True
        check_type("max_seq_length", max_seq_length, WHOLE_NUMBER, "for the folder's")
        check_type("in_graph", in_graph, SWITCH, "for True if it is possible")
        self._folder = None
        if isinstance(folder, Tokenizer):
            if max_seq_length is None or max_seq_length < _SHORTEST:
                raise UserError(
                    "With a tokenizer, also give max_seq_length, the length of each sequence:"
                    f" at least {_SHORTEST}; {received(max_seq_length)}"
                )
            self.tokenizer, self.max_seq_length = folder, int(max_seq_length)
        else:
            found = read_folder(folder, max_seq_length=max_seq_length)
            self._folder = os.fspath(folder)
            self.tokenizer, self.max_seq_length = found.tokenizer, found.max_seq_length
        self._in_graph: TextInputs | None = None
        tokenizer, added = self.tokenizer, self.tokenizer.settings.added_tokens
        unfindable = [x.content for x in added if x.single_word or x.normalized]
        if in_graph is not False and isinstance(tokenizer, FastTokenizer) and not unfindable:
            self._in_graph = TextInputs(tokenizer, self.max_seq_length)
        elif in_graph:
            has = f"the added tokens {listed(unfindable)}" if unfindable else "a different kind"
            raise UserError(
                "in_graph=True needs a vocabulary of word pieces, without added tokens that are"
                f" single words or normalized; the model has {has}. Leave in_graph out: in"
                " tf.data the graph can call Python"
            )
        self.built = True

    def call(self, texts: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Returns `input_ids`, `input_mask` and `segment_ids` by name, int32 [B, S] each.

        With `y` it returns (features, y); with `y` and `sample_weight`, (features, y,
        sample_weight), as Keras's `fit` takes them.

        Args:
            texts: string [B], or a tuple of two such tensors, the first and the second texts of
                pairs. A single text, string [], gives features [S]. UTF-8; other bytes are ignored.
            y: labels, which are passed on.
            sample_weight: weights, which are passed on.

        Raises:
            UserError: `texts` is something else, or `y` is text.
        """
        if _is_text(y):
            raise UserError(
                "y must be labels, not texts. A pair of texts is one argument, a tuple:"
                " dataset.map(lambda a, b: preprocessor((a, b))). Labels must be numbers"
            )
        parts = [_strings(part) for part in self._parts(texts)]
        is_single = parts[0].shape.rank == 0
        features = self._features([tf.reshape(part, [-1]) for part in parts])
        if is_single:
            features = {name: value[0] for name, value in features.items()}
        return keras.utils.pack_x_y_sample_weight(features, y, sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments to make the layer again, from the same folder."""
        if self._folder is None:
            raise UserError(
                "A Preprocessor of a tokenizer cannot be saved, since it does not know the"
                " vocabulary's folder: make it from a model's folder"
            )
        own = {"folder": self._folder, "max_seq_length": self.max_seq_length}
        own["in_graph"] = self._in_graph is not None
        return {**super().get_config(), **own}

    @staticmethod
    def _parts(texts: Any) -> tuple[Any, ...]:
        if isinstance(texts, list) and len(texts) == 2:  # Keras saves a tuple as a list
            if all(tf.is_tensor(part) and part.shape.rank == 1 for part in texts):
                return tuple(texts)
        if not isinstance(texts, tuple):
            return (texts,)
        if len(texts) != 2:
            raise UserError(
                "A tuple is the first and the second texts of pairs, so it must have two elements;"
                f" received {len(texts)}. Write several texts as a list or a tensor"
            )
        return texts

    def _features(self, parts: list[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the features of texts, or of first and second texts, string [B] each."""
        if self._in_graph is not None:
            found = self._in_graph(*parts)
            room = self.max_seq_length - tf.shape(found["input_ids"])[1]
            found = {name: tf.pad(found[name], [[0, 0], [0, room]]) for name in INPUTS}
        else:
            values = tf.numpy_function(self._encode, parts, [tf.int32] * len(INPUTS))
            found = dict(zip(INPUTS, values, strict=True))
        shape = [parts[0].shape[0], self.max_seq_length]
        return {name: tf.ensure_shape(value, shape) for name, value in found.items()}

    def _encode(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Returns the features of texts as arrays; called from the graph."""
        if len({len(part) for part in parts}) > 1:
            raise ValueError("There must be as many first texts as second texts")
        texts = [[text.decode("utf-8", "ignore") for text in part] for part in parts]
        pairs: list[Any] = texts[0] if len(texts) == 1 else [*zip(*texts, strict=True)]
        packed = [
            sequences.truncate_and_pack(a, b, self.max_seq_length, self.tokenizer.layout)
            for a, b in text_input.tokenize(pairs, self.tokenizer)
        ]
        shape = [len(packed), self.max_seq_length]
        return [np.array([row[name] for row in packed], np.int32).reshape(shape) for name in INPUTS]


def _is_text(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return True
    if isinstance(value, list | tuple):
        return any(map(_is_text, value))
    return tf.as_dtype(getattr(value, "dtype", tf.int32)) == tf.string


def _strings(texts: Any) -> tf.Tensor:
    try:
        tensor = tf.convert_to_tensor(texts)
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.dtype != tf.string or tensor.shape.rank not in (0, 1):
        what = f"a tensor, {tensor.dtype.name} {tensor.shape}" if tensor is not None else ""
        raise UserError(
            "texts must be a string, or a list or tensor of strings with one axis, or a tuple of"
            f" two of these for pairs of texts; received {what or quoted(texts)}"
        )
    return tensor
