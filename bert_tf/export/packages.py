"""Packages that some formats need, imported when they are used."""

import importlib
from types import ModuleType

from bert_tf.errors import UserError


def import_package(name: str, package: str, needed_by: str) -> ModuleType:
    """Returns a module of a package of the extra `export`.

    Args:
        name: of the module.
        package: its name for pip.
        needed_by: what needs it, for the message.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"{needed_by} needs {package}; run `pip install {package}`, or install the extra"
            f' `export`: `pip install "bert-tf[export]"`, in a checkout `pip install -e'
            f' ".[export]"` ({error})'
        ) from error
