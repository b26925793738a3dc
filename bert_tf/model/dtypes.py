"""The dtype of a model, as Keras has it: a name, a policy, or None for the global policy."""

from typing import Any

import keras

from bert_tf.errors import UserError, quoted

# Variables are float32 in any case, so that bfloat16 means Keras's mixed_bfloat16.
_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "mixed_bfloat16": "mixed_bfloat16",
}
# For models that only answer: variables are bfloat16, too. Half the memory, and no casts.
ROUNDED = keras.DTypePolicy("bfloat16")


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
    policy = keras.config.dtype_policy() if dtype is None else dtype
    name = policy if isinstance(policy, str) else getattr(policy, "name", None)
    name = name or getattr(policy, "__name__", "")  # np.float32 is a class
    if name not in _POLICIES:
        source = " (keras.config.dtype_policy())" if dtype is None else ""
        raise UserError(
            "dtype must be float32, or bfloat16 or mixed_bfloat16, which both keep variables in"
            f" float32; received {quoted(name or dtype)}{source}"
        )
    return keras.DTypePolicy(_POLICIES[name])
