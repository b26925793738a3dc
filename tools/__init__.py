"""Programs around the main ones: `python -m tools.NAME` in the checkout.

Installed, they run as `python -m bert_tf.tools.NAME`, so they import each other relatively.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

from absl import flags

import bert_tf
from bert_tf.errors import UserError

# Holds flags/ and tpu/: the checkout, or the installed package.
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load_input(folder: str) -> Any:
    """Loads the model of --input; messages name the flag."""
    try:
        return bert_tf.load(folder)
    except UserError as error:
        raise UserError(f"--input: {error}") from error


def call_with_flags(function: Callable[..., Any]) -> None:
    """Calls a function whose arguments are flags of the program."""
    function(**{name: flags.FLAGS[name].value for name in inspect.signature(function).parameters})
