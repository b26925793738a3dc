"""The dtype of a model, as Keras has it: a name, a policy, or None for the global policy."""

from typing import Any

import keras

from bert_tf.errors import UserError, quoted

# Variables are float32 in any case, so that bfloat16 means Keras's mixed_bfloat16.
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "mixed_bfloat16": "mixed_bfloat16"}
# For models that only answer: variables are bfloat16, too. Half the memory, and no casts.
ROUNDED = keras.DTypePolicy("bfloat16")


def dtype_name(dtype: Any) -> Any:
    """Returns the name of a policy of Keras or a dtype of TensorFlow or NumPy; else the value."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    return name or getattr(dtype, "__name__", dtype)  # np.float32 is a class


def dtype_policy(dtype: Any = None) -> keras.DTypePolicy:
    """Returns the policy of a model's layers.

    Args:
        dtype: a name such as "float32", "bfloat16" or "mixed_bfloat16", a dtype of TensorFlow or
            NumPy, a `keras.DTypePolicy`, `ROUNDED`, or None for `keras.config.dtype_policy()`.

    Raises:
        UserError: another dtype.
    """
    if dtype is ROUNDED:
        return ROUNDED
    name = dtype_name(keras.config.dtype_policy() if dtype is None else dtype)
    if not isinstance(name, str) or name not in _POLICIES:
        source = " (keras.config.dtype_policy())" if dtype is None else ""
        raise UserError(
            "dtype must be float32, or bfloat16 or mixed_bfloat16, which both keep variables in"
            f" float32; received {quoted(name)}{source}"
        )
    return keras.DTypePolicy(_POLICIES[name])
