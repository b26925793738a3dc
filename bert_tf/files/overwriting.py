"""Keeps a program from overwriting the files that it reads."""

import os
from collections.abc import Iterable, Mapping, Sequence

from bert_tf.errors import UserError
from bert_tf.files.checkpoint_names import belongs_to_run
from bert_tf.files.destinations import check_meant


def check_overwrites(
    written: Sequence[str], flag: str, read: Mapping[str, str | Iterable[str] | None]
) -> None:
    """Checks that the files to write, which --`flag` names, are not also read, or named twice.

    Links are followed, so two spellings of one name count as the same file. Raises UserError if the
    check fails, or if a name is empty.

    Args:
        written: the files to write.
        flag: a flag without its dashes.
        read: flag -> the file or files that it names to be read; None for no file.
    """
    if not all(written):
        raise UserError(f"--{flag} must name a file; received an empty name")
    for path in written:
        check_meant(path, flag, "file")
        if belongs_to_run(os.path.basename(path)):
            raise UserError(
                f"--{flag}={path} must not have the name of a file in which a training run keeps"
                " its checkpoints or its heartbeat; choose another name"
            )
    sources = {
        real_path(path): name
        for name, paths in read.items()
        for path in ([paths] if isinstance(paths, str) else paths or ())
    }
    seen = set()
    for path in written:
        real = real_path(path)
        if real in sources:
            raise UserError(
                f"--{flag}={path} must not be a file of --{sources[real]}, which it would replace"
            )
        if real in seen:
            raise UserError(
                f"--{flag}={path} must not be named twice; each file needs a name of its own"
            )
        seen.add(real)


def real_path(path: str) -> str:
    """Returns the canonical path of a local file or folder; a path in a bucket unchanged."""
    path = path.removeprefix("file://")
    return path if "://" in path else os.path.realpath(path or os.curdir)
