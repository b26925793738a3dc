"""Copies the installed recipes and model configurations to a folder named flags.

    python -m bert_tf.tools.copy_flags

Recipes refer to other files as flags/..., relative to the current folder. A checkout has them at
the top. With an installed package, run this once in the folder you work in. Then the documented
commands with --flagfile=flags/... work there, and you can edit the recipes.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.copy_flags")

import os
import shutil

from absl import flags

from bert_tf.errors import UserError
from bert_tf.files.temporary_names import temporary_name
from bert_tf.runs.flags import command_flags

from . import ROOT, with_flags


def copy_flags(output_dir: str) -> None:
    """Copies the recipes and model configurations to a new folder, and prints its path."""
    if os.path.lexists(output_dir):
        raise UserError(
            f"--output_dir={output_dir} must not exist, because its files could be yours. Delete it"
            " or name another folder"
        )
    unfinished = temporary_name(os.path.dirname(output_dir.rstrip("/")))
    try:
        shutil.copytree(os.path.join(ROOT, "flags"), unfinished)
        os.rename(unfinished, output_dir)
    except OSError as error:
        wrong = isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError)
        # copytree goes on after an error, and lists all errors at the end.
        cause = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        message = f"--output_dir={output_dir} cannot be created: {cause}"
        raise (UserError if wrong else OSError)(message) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"Recipes and model configurations are in {os.path.abspath(output_dir)}")


if __name__ == "__main__":
    flags.DEFINE_string(
        "output_dir", "flags", "The folder to create. The recipes refer to each other as flags/..."
    )
    command_flags.run_program(with_flags(copy_flags))
