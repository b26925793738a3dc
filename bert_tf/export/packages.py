"""Imports the packages that only some formats need, when they are used."""

import importlib
from types import ModuleType

from bert_tf.errors import missing_package


def import_package(name: str, package: str, needed_by: str) -> ModuleType:
    """Returns the module `name` of a package of the extra `export`.

    Args:
        package: the package's name for pip.
        needed_by: the flag that needs it, for the message.

    Raises:
        UserError: the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_package(needed_by, package, "export", error) from error
