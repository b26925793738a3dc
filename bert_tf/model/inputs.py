"""Inputs of models: their names (`named_inputs`), then their shapes and ranges (`checked_inputs`).

Wrong static shapes and eager values raise `UserError` at once. In a graph `tf.debugging.Assert`
checks the rest and fails with `InvalidArgumentError`. XLA drops assertions, so they cost nothing on
TPUs, and `jit_compile=True` checks nothing. Inside `bounds.inputs_were_checked` graphs do not get
assertions.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.bounds import inputs_are_checked
from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.configuration import BertConfig

Dimensions = Sequence[int | None | tf.Tensor]
WEIGHTS = (0.0, math.inf, "1 counts an example once")  # the bounds of weights


def in_range(
    numbers: tf.Tensor,
    name: str,
    below: int | tf.Tensor,
    source: str,
    counted: tf.Tensor | None = None,
) -> tf.Tensor:
    """Checks that whole numbers are from 0 to `below` - 1; returns them as int32 [...].

    `numbers` are integers, bool, or floats without a fraction, [...]; `source`, for the message, is
    what sets `below`. `counted`, bool [...], is False where any number will do; None checks all.
    """
    dtype = tf.as_dtype(numbers.dtype)
    if not (dtype.is_bool or inputs_are_checked() or isinstance(numbers, keras.KerasTensor)):
        # In the widest type: `below` may not fit into int8, and int32 would hide 2**32.
        wide = tf.cast(numbers, tf.float64 if dtype.is_floating else tf.int64)
        right = (wide >= 0) & (wide < tf.cast(below, wide.dtype))  # False for NaN
        if dtype.is_floating:
            right &= wide == tf.floor(wide)
        if counted is not None:
            right |= ~counted
        rule = [f"{name} must be from 0 to", below - 1, f"({source}); received"]
        numbers = _all_right(right, numbers, rule)
    return as_dtype(numbers, "int32")


def finite(
    numbers: tf.Tensor,
    name: str,
    counted: tf.Tensor | None = None,
    bounds: tuple[float, float, str] = (-math.inf, math.inf, ""),
) -> tf.Tensor:
    """Checks that numbers are finite and within `bounds`; returns them as float32 [...].

    `bounds` are the least and the greatest number, and what sets them, for the message. For
    `counted` see `in_range`.
    """
    floating = as_dtype(numbers, "float32")
    if not (inputs_are_checked() or isinstance(numbers, keras.KerasTensor)):
        least, greatest, source = bounds
        right = tf.math.is_finite(floating) & (floating >= least) & (floating <= greatest)
        if counted is not None:
            right |= ~counted
        rule = f"{name} must be finite"
        if source:
            to = "" if greatest == math.inf else f" and at most {greatest:g}"
            rule += f", at least {least:g}{to} ({source})"
        floating = _all_right(right, floating, [f"{rule}; received"])
    return floating


def shaped(tensor: tf.Tensor, name: str, expected: Dimensions, meaning: str) -> tf.Tensor:
    """Checks a tensor's shape, and returns it without an extra last axis of size 1.

    `expected` is the size of each axis, a number or a scalar tensor, None for any; `meaning` says
    the same in words, for the message.
    """
    symbolic = isinstance(tensor, keras.KerasTensor)
    if not symbolic and tensor.shape.rank is None:
        tensor = tf.ensure_shape(tensor, [None] * len(expected))
    given, sizes = tensor.shape, list(tensor.shape)
    if len(sizes) == len(expected) + 1 and sizes[-1] == 1:
        tensor, sizes = keras.ops.squeeze(tensor, -1), sizes[:-1]
    differ = any(
        isinstance(size, int) and isinstance(wanted, int) and size != wanted
        for size, wanted in zip(sizes, expected, strict=False)
    )
    if differ or len(sizes) != len(expected):
        rule = [wanted if isinstance(wanted, int) else None for wanted in expected]
        raise UserError(f"{name} must have {meaning}, {_any(rule)}; received {_any(given)}")
    if symbolic or inputs_are_checked():
        return tensor
    unknown = [
        (size, wanted)
        for size, wanted in zip(get_shape_list(tensor), expected, strict=True)
        if wanted is not None and not (isinstance(size, int) and isinstance(wanted, int))
    ]
    if unknown:
        found, wanted = (tf.stack(list(sizes)) for sizes in zip(*unknown, strict=True))
        message = [f"{name} must have {meaning}; received sizes", found, "instead of", wanted]
        check = tf.debugging.Assert(tf.reduce_all(found == wanted), message)
        with tf.control_dependencies([check]):
            tensor = tf.identity(tensor)
    return tensor


def as_dtype(tensor: tf.Tensor, dtype: str) -> tf.Tensor:
    return tensor if tf.as_dtype(tensor.dtype).name == dtype else keras.ops.cast(tensor, dtype)


def _any(sizes: Any) -> str:
    return str(list(sizes)).replace("None", "any")


def _all_right(right: tf.Tensor, numbers: tf.Tensor, rule: list[Any]) -> tf.Tensor:
    """Returns `numbers` if all are `right`, bool [...]; the error shows the first wrong number."""
    wrong = ~right
    if tf.executing_eagerly() and not tf.reduce_any(wrong):
        return numbers
    # A wrong number is appended, so that argmax always finds one.
    index = tf.argmax(tf.concat([tf.reshape(wrong, [-1]), [True]], 0), output_type=tf.int32)
    value = tf.concat([tf.reshape(numbers, [-1]), tf.zeros([1], numbers.dtype)], 0)[index]
    position: list[tf.Tensor] = []
    for size in reversed(get_shape_list(numbers)):  # tf.unravel_index does not run under XLA
        size = tf.maximum(size, 1)
        position.insert(0, index % size)
        index //= size
    message = [*rule, value, "at position", tf.stack(position)]
    if tf.executing_eagerly():
        told = (x.numpy().tolist() if tf.is_tensor(x) else x for x in message)
        raise UserError(" ".join(map(str, told)))
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(right), message)]):
        return tf.identity(numbers)


def get_shape_list(
    tensor: tf.Tensor, expected_rank: int | list[int] | None = None, name: str = "tensor"
) -> list[int | tf.Tensor]:
    """Returns the dimensions of a tensor (original: modeling.get_shape_list).

    Static dimensions are Python integers, dynamic ones int32 scalars.

    Args:
        tensor: a tensor of any dtype; its rank must be static.
        expected_rank: the rank, or a list of ranks, that the tensor must have; None allows all.
        name: the tensor's name in the error message.

    Raises:
        ValueError: the tensor has a different rank.
    """
    if expected_rank is not None:
        ranks = [expected_rank] if isinstance(expected_rank, int) else expected_rank
        if tensor.shape.rank not in ranks:
            raise ValueError(
                f"{name} must have rank {' or '.join(map(str, ranks))}, not {tensor.shape.rank}"
                f" (shape {tensor.shape})"
            )
    static, dynamic = tensor.shape.as_list(), tf.shape(tensor)
    return [dynamic[i] if size is None else size for i, size in enumerate(static)]


# Names of one input: google-research/bert's, Hugging Face's, KerasHub's and TensorFlow Hub's.
SYNONYMS = (
    ("input_ids", "input_word_ids", "token_ids"),
    ("input_mask", "attention_mask", "padding_mask"),
    ("segment_ids", "token_type_ids", "input_type_ids"),
    ("label_ids", "labels", "label"),
)
# Also allowed in a dictionary: labels and other features of any task's records, and example ids.
_OTHER_FEATURES = {
    *("label_ids", "label_mask", "label_weights", "start_positions", "end_positions", "unique_ids"),
    *("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"),
    *("next_sentence_labels", "next_sentence_weights", "example_weight"),
    *("guid", "idx", "index", "is_impossible", "is_real_example"),
}
OPTIONAL_INPUTS = ("input_mask", "segment_ids")
_NO_TENSORS = ("training", "dropout_seed")  # arguments of `call` that are not inputs


def input_names(model: keras.Model) -> list[str]:
    """Returns the names of a model's inputs, in the order of `call`."""
    names = inspect.signature(model.call).parameters
    return [name for name in names if name not in _NO_TENSORS]


@tf.autograph.experimental.do_not_convert  # no control flow over tensors, and slow to convert
def named_inputs(model: keras.Model, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call, except None, by the names of `model.call`'s parameters.

    The first of `args` may be a list of inputs or a dictionary of features.
    """
    names = [*inspect.signature(model.call).parameters]
    given: dict[str, Any] = {}
    if args and isinstance(args[0], Mapping):
        given = features_by_name(model, args[0])
        given = {name: value for name, value in given.items() if name in names}
        args = [None, *args[1:]]
    elif args and isinstance(args[0], list | tuple):
        given = paired(args[0], input_names(model))
        args = [None, *args[1:]]
    by_name = renamed(kwargs, names)
    unknown = [name for name in by_name if name not in names]
    if unknown or len(args) > len(names):
        wrong = f"not {listed(unknown)}" if unknown else f"received {len(args)} inputs"
        raise UserError(f"A call of {type(model).__name__} takes {listed(names)}; {wrong}")
    for more in (dict(zip(names, args, strict=False)), by_name):
        more = {name: value for name, value in more.items() if value is not None}
        twice = given.keys() & more.keys()
        if twice:
            raise UserError(f"{type(model).__name__} received {listed(sorted(twice))} twice")
        given |= more
    return {name: value for name, value in given.items() if value is not None}


def paired(values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    if len(values) > len(names):
        raise UserError(
            f"A list of inputs or labels may hold at most {listed(names)}; received"
            f" {len(values)} values. Pass a dictionary, or a batch as an array"
        )
    return dict(zip(names, values, strict=False))


def renamed(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns values by name, with synonyms replaced by the name in `names`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        known = next((x for group in SYNONYMS if name in group for x in group if x in names), name)
        if value is not None and found.get(known) is not None:
            raise UserError(f"Pass either {quoted(name)} or {quoted(known)}: both name one input")
        found[known] = value if value is not None else found.get(known)
    return found


def features_by_name(model: keras.Model, features: Mapping[str, Any]) -> dict[str, Any]:
    """Renames features to a model's inputs and `label_ids`; refuses unknown numeric ones."""
    names = [*input_names(model), "label_ids"]
    found: dict[str, Any] = {}
    for name, value in renamed(features, names).items():
        if name in names or name in _OTHER_FEATURES or value is None or not is_numeric(value):
            found[name] = value
            continue
        raise UserError(
            f"{type(model).__name__} has no input {quoted(name)}; its inputs are"
            f" {listed(input_names(model))}. Rename the feature or take it out of the dictionary"
        )
    return found


def model_signature(names: Sequence[str], rank: int) -> dict[str, keras.InputSpec]:
    """Returns the int32 inputs for `keras.Model.export`; positions have two axes, others `rank`."""
    ranks = {name: 2 if name.endswith("positions") else rank for name in names}
    return {
        name: keras.InputSpec(shape=(None,) * size, dtype="int32", name=name)
        for name, size in ranks.items()
    }


def export_vectors(model: keras.Model, *args: Any, **kwargs: Any) -> None:
    """Calls `keras.Model.export` for a model that returns a `BertOutput`.

    A SavedModel cannot return tuples, so only the last layer and the pooled output are exported.
    """
    names = ("input_ids", *OPTIONAL_INPUTS)
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    output = model(inputs)
    vectors = ("sequence_output", "pooled_output")
    outputs = {name: getattr(output, name) for name in vectors}
    keras.Model(inputs, outputs).export(*args, **kwargs)


@tf.autograph.experimental.do_not_convert
def checked_inputs(
    inputs: Mapping[str, Any], config: BertConfig, rank: int = 2, wide_mask: bool = False
) -> dict[str, Any]:
    """Returns the inputs of a model as int32, with shapes and ranges checked.

    `inputs` are inputs by name. `input_ids` has `rank` axes; the last is the sequence. Arguments
    that are not inputs are returned unchanged. With `wide_mask` the mask may be [B, S, S].
    """
    found = dict(inputs)
    names = [name for name in found if name not in _NO_TENSORS]
    for name in names:
        found[name] = numeric(found[name], name)
    ids = found["input_ids"]
    if _rank(ids) is None:
        ids = tf.ensure_shape(ids, [None] * rank)
    if len(ids.shape) != rank:
        raise ValueError(
            f"input_ids must have rank {rank}, not {len(ids.shape)} (shape {tuple(ids.shape)}); a"
            " list or tuple has one element for each input, so pass a batch as an array"
        )
    sizes = _sizes(ids)
    length = sizes[-1]
    if isinstance(length, int) and not length:
        raise UserError(f"input_ids must have at least one token per row; received {[*ids.shape]}")
    numbered = "position_ids" in found and length is not None  # packed: mask has 1, 2, ...
    types = "segment_ids" if "segment_ids" in found else "token_type_ids"
    in_row = (length, "the length of the sequence")
    limits = {
        **dict.fromkeys(("input_ids", "masked_lm_ids"), (config.vocab_size, "vocab_size")),
        "input_mask": (length + 1 if numbered else 2, "0 for padding"),
        types: (config.type_vocab_size, "type_vocab_size"),
        **dict.fromkeys(("position_ids", "cls_positions", "masked_lm_positions"), in_row),
        "start_positions": in_row,
    }
    for name in names:
        value = ids if name == "input_ids" else found[name]
        below, source = limits[name]
        if name in ("cls_positions", "masked_lm_positions", "masked_lm_ids"):
            value = shaped(value, name, [sizes[0], None], "a row of positions for each example")
        elif name == "start_positions":
            value = shaped(value, name, sizes[:1], "one position for each example")
        elif name != "input_ids":
            wide = wide_mask and name == "input_mask" and _rank(value) == rank + 1
            expected = [*sizes, sizes[-1]] if wide else sizes
            value = shaped(value, name, expected, "the shape of input_ids")
        ignored = name == types and not config.has_token_types
        found[name] = as_dtype(value, "int32") if ignored else in_range(value, name, below, source)
    return found


def numeric(value: Any, name: str) -> Any:
    """Returns a value as a tensor of numbers; a symbolic tensor of Keras stays unchanged."""
    if not isinstance(value, keras.KerasTensor):
        try:
            value = tf.convert_to_tensor(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} must be a tensor of numbers: {error}") from error
    dtype = tf.as_dtype(value.dtype)
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise UserError(f"{name} must be numbers, not {dtype.name}; tokenize texts first")
    return value


def _rank(tensor: Any) -> int | None:
    return len(tensor.shape) if isinstance(tensor, keras.KerasTensor) else tensor.shape.rank


def _sizes(ids: Any) -> list[Any]:
    """Returns each axis's size; for a dynamic one a scalar tensor, or None if not needed."""
    if isinstance(ids, keras.KerasTensor) or inputs_are_checked():
        return list(ids.shape)
    return get_shape_list(ids)


def is_numeric(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    dtype = tf.convert_to_tensor(value).dtype if dtype is None else dtype
    try:
        kind = tf.as_dtype(dtype)
    except TypeError:  # such as NumPy strings
        return False
    return kind.is_floating or kind.is_integer or kind.is_bool
