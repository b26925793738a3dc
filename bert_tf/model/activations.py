"""Activation functions and their names in `bert_config.json`."""

import math
from collections.abc import Callable

from bert_tf.errors import UserError, quoted
from bert_tf.start import lazy_tensorflow as tf

_NAMES = ("gelu", "gelu_erf", "relu", "tanh", "linear")
Activation = Callable[["tf.Tensor"], "tf.Tensor"]


def gelu(x: "tf.Tensor") -> "tf.Tensor":
    """Returns the Gaussian error linear unit in its tanh form (original: modeling.gelu)."""
    import keras  # imports TensorFlow

    return keras.activations.gelu(x, approximate=True)


def gelu_erf(x: "tf.Tensor") -> "tf.Tensor":
    """Returns the Gaussian error linear unit of `x`, float [...], with the exact error function.

    Hugging Face calls this form "gelu", and the original's form "gelu_new".
    """
    # keras.activations.gelu computes erfc, which takes TensorFlow twice the time on a CPU. LiteRT
    # recognises the function only if the factors are in this order.
    return 0.5 * x * (1.0 + tf.math.erf(x * math.sqrt(0.5)))


def get_activation(activation_string: str | Activation | None) -> Activation | None:
    """Returns the activation function of a name (original: modeling.get_activation).

    Args:
        activation_string: "gelu", "gelu_erf", "relu", "tanh" or "linear", ignoring case, or a
            function, returned unchanged. "linear", "" and None give None.

    Raises:
        UserError: the name is unknown.
    """
    check_activation(activation_string)
    if activation_string is None or callable(activation_string):
        return activation_string
    functions = {"gelu": gelu, "gelu_erf": gelu_erf, "relu": tf.nn.relu, "tanh": tf.tanh}
    return functions.get(str(activation_string).lower())


def check_activation(activation_string: str | Activation | None) -> None:
    """Raises UserError if `get_activation` does not know a name. Does not import TensorFlow."""
    if activation_string is None or callable(activation_string):
        return
    if str(activation_string).lower() not in ("", *_NAMES):
        raise UserError(
            f"Unsupported activation {quoted(activation_string)}; it must be one of"
            f" {', '.join(_NAMES)}."
        )
