"""Imports the packages that only some formats need, when they are used."""

import importlib
from types import ModuleType

from bert_tf.errors import missing_package


def import_package(name: str, package: str, needed_by: str, extra: str = "export") -> ModuleType:
    """Returns the module `name` of a package that only an extra of setup.py installs.

    Args:
        package: the package's name for pip.
        needed_by: what needs it, such as a flag, for the message.
        extra: the extra's name.

    Raises:
        UserError: the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_package(needed_by, package, extra, error) from error
