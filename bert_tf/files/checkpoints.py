"""Name-based TF1 checkpoints in and out: the format of google-research/bert.

A checkpoint is `model.ckpt-STEP.index` and `model.ckpt-STEP.data-00000-of-00001`, holding every
variable under its name, the Adam slots as `NAME/adam_m` and `NAME/adam_v`, and `global_step`. The
file `checkpoint` beside them names the newest and all that are kept.
"""

import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import storage

SLOT_PATTERN = re.compile(r"(.*/adam_[mv]|global_step)$")


class DamagedCheckpointError(UserError):
    """A checkpoint is missing or not whole: files deleted, truncated, or copied in part."""


def find_prefix(path: str, flag: str = "init_checkpoint") -> str:
    """Returns the prefix of the checkpoint that `path` names.

    Args:
        path: a prefix (`.../bert_model.ckpt`), one of the checkpoint's files, or a directory whose
            `checkpoint` file names the newest one, or which holds but one.
        flag: the flag (no dashes) that gave the path, for messages.

    Raises:
        UserError: there is no checkpoint, or a file of it is missing.
    """
    _check_path(path, flag)
    prefix = path
    # On ram:// whatever a name begins with passes for a directory.
    if not tf.io.gfile.exists(path + ".index") and tf.io.gfile.isdir(path):
        kept = _named_in(path)
        if not kept:
            found = sorted(name for name in tf.io.gfile.listdir(path) if name.endswith(".index"))
            if len(found) != 1:
                names = ", ".join(name.removesuffix(".index") for name in found)
                raise UserError(
                    f"--{flag}={path} is a directory, and it has no file `checkpoint` that names a"
                    f" checkpoint{f'; name one of {names}' if found else ''}"
                )
            kept = [os.path.join(path, found[0])]
        prefix = kept[-1]
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", prefix)
    suffixes = (".index", ".data-00000-of-*")
    missing = [s for s in suffixes if not tf.io.gfile.glob(prefix + s)]
    if missing:
        raise DamagedCheckpointError(
            f"--{flag}={path}: a checkpoint is named by its prefix and consists of files"
            f" PREFIX.index and PREFIX.data-00000-of-...; not found:"
            f" {', '.join(prefix + s for s in missing)}"
        )
    return prefix


def _check_path(path: str, flag: str) -> None:
    storage.check_file_system(path, flag)
    if re.search(r"[\[*?]", path):
        raise UserError(
            f"--{flag}={path}: the path of a checkpoint must not have [, * or ?, which TensorFlow"
            " takes for a pattern; rename the directory"
        )


def _named_in(directory: str) -> list[str]:
    """Returns the prefixes that the file `checkpoint` of a directory names, the newest last.

    Raises:
        UserError: the file is damaged.
    """
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError:  # it names nothing
        state = None
    if state:
        newest = state.model_checkpoint_path
        return [p for p in state.all_model_checkpoint_paths if p != newest] + [newest]
    path = os.path.join(directory, "checkpoint")
    if tf.io.gfile.exists(path):
        raise UserError(
            f"The file {path} must name the newest checkpoint in a line like"
            ' model_checkpoint_path: "model.ckpt-1000", and it does not. Mend or delete it.'
        )
    return []


def open_checkpoint(path: str, flag: str = "init_checkpoint") -> Any:
    """Returns a reader of the tensors by name, as `tf.train.load_checkpoint` does.

    Raises:
        UserError: there is no checkpoint at `path` (see `find_prefix`), it cannot be read, or it
            is an object-based one of TensorFlow 2, which has no variable names.
    """
    prefix = find_prefix(path, flag)
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise DamagedCheckpointError(
            f"--{flag}={path}: {prefix} cannot be read: {error}"
        ) from error
    if reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"):
        raise UserError(
            f"--{flag}={path}: {prefix} was written by tf.train.Checkpoint or Keras and does not"
            " hold its variables by name; a checkpoint in the format of google-research/bert is"
            " needed"
        )
    return reader


def initialize(variables: Mapping[str, tf.Variable], init_checkpoint: str) -> list[str]:
    """Returns the names of the variables that got their values from the checkpoint.

    Weights only: slots and the step in the checkpoint are left aside, as the original's
    get_assignment_map_from_checkpoint does. Variables that the checkpoint does not have keep
    their initial values, and variables that only the checkpoint has are left aside; both are
    listed in warnings.

    Args:
        variables: the model's variables by name.
        init_checkpoint: a prefix or a directory.

    Raises:
        UserError: a variable has another shape or type in the checkpoint, or the two have no
            variable in common; the message lists both sides. Or the data file is damaged.
    """
    reader = open_checkpoint(init_checkpoint)
    shapes = reader.get_variable_to_shape_map()
    common = [name for name in variables if name in shapes]
    missing = [name for name in variables if name not in shapes]
    unexpected = sorted(n for n in shapes if n not in variables and not SLOT_PATTERN.match(n))
    if not common:
        raise UserError(
            f"--init_checkpoint={init_checkpoint} has none of the model's variables.\n"
            f"Missing: {_lines(missing)}\nUnexpected: {_lines(unexpected)}"
        )
    _check_shapes(variables, reader, common, f"--init_checkpoint={init_checkpoint}")
    _assign(variables, reader, common, f"--init_checkpoint={init_checkpoint}")
    logging.info("Initialised %d variables from %s", len(common), init_checkpoint)
    if missing:
        logging.warning(
            "Not in --init_checkpoint=%s, so left at their initial values: %s",
            init_checkpoint,
            _lines(missing),
        )
    if unexpected:
        logging.warning(
            "Only in --init_checkpoint=%s, so left aside: %s", init_checkpoint, _lines(unexpected)
        )
    return common


def restore(variables: Mapping[str, tf.Variable], prefix: str) -> None:
    """Sets every variable, slots and `global_step` included, from the checkpoint at `prefix`.

    Raises:
        UserError: the checkpoint lacks a variable or has one of another shape; both sides are
            listed, and nothing is set.
        DamagedCheckpointError: a file of it is missing or damaged.
    """
    reader = open_checkpoint(prefix, "output_dir")
    shapes = reader.get_variable_to_shape_map()
    missing = [name for name in variables if name not in shapes]
    # Slots of weights that are frozen now, or of a run that only evaluates.
    unexpected = sorted(n for n in shapes if n not in variables and not SLOT_PATTERN.match(n))
    if missing:
        raise UserError(
            f"The checkpoint {prefix} in --output_dir must hold every variable of this run to be"
            f" resumed.\nMissing: {_lines(missing)}\nUnexpected: {_lines(unexpected)}\nChoose"
            " another --output_dir, and name this checkpoint by --init_checkpoint if its weights"
            " are to be the initial ones."
        )
    _check_shapes(variables, reader, list(variables), f"The checkpoint {prefix} in --output_dir")
    if unexpected:
        logging.warning("Only in %s, so left aside: %s", prefix, _lines(unexpected))
    _assign(variables, reader, list(variables), f"The checkpoint {prefix} in --output_dir")


def _check_shapes(
    variables: Mapping[str, tf.Variable],
    reader: Any,
    names: Sequence[str],
    checkpoint: str,
) -> None:
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    different = [
        f"{name}: {dtypes[name].name} {shapes[name]} in the checkpoint,"
        f" {variables[name].dtype.name} {variables[name].shape.as_list()} in the model"
        for name in names
        if shapes[name] != variables[name].shape.as_list() or dtypes[name] != variables[name].dtype
    ]
    if different:
        raise UserError(
            f"{checkpoint} does not fit the configuration; check --bert_config_file (vocab_size is"
            " the first size of bert/embeddings/word_embeddings), and the classes, whose number is"
            f" that of output_weights.\nDifferent: {_lines(different)}"
        )


def _assign(
    variables: Mapping[str, tf.Variable],
    reader: Any,
    names: Sequence[str],
    checkpoint: str,
) -> None:
    """Sets the variables of these names, one at a time to spare memory."""
    for name in names:
        try:
            value = reader.get_tensor(name)
        except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
            raise DamagedCheckpointError(
                f"{checkpoint} is damaged, perhaps copied or downloaded in part: {name} cannot be"
                f" read ({error})"
            ) from error
        variables[name].assign(value)


def _lines(names: Sequence[str]) -> str:
    return "".join(f"\n  {name}" for name in names) or "nothing"


def write(prefix: str, tensors: Mapping[str, tf.Tensor | tf.Variable | np.ndarray]) -> None:
    """Writes a checkpoint of named tensors; its files appear under their names when complete."""
    names = sorted(tensors)
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
        )


def make_output_dir(output_dir: str, flag: str = "output_dir") -> None:
    """Makes the output directory and tries to write there, long before the first save.

    Args:
        output_dir: the directory.
        flag: the flag (no dashes) that named it, for messages.

    Raises:
        UserError: it is no directory, or must not be written to.
        OSError: writing failed in another way, perhaps for the moment.
    """
    storage.check_file_system(output_dir, flag)
    probe = os.path.join(output_dir, f".{uuid.uuid4().hex}.probe")
    try:
        tf.io.gfile.makedirs(output_dir)
        with tf.io.gfile.GFile(probe, "w") as writer:
            writer.write("room?")
        tf.io.gfile.remove(probe)
    except tf.errors.OpError as error:
        raise storage.write_error(
            error,
            f"--{flag}={output_dir} must be a directory that can be written to, with room"
            f" left: {error.message}.{storage.advice(output_dir)}",
        ) from error


class CheckpointDirectory:
    """The checkpoints of one run in its output directory: the newest, save, keep the last few.

    Args:
        directory: where they are.
        keep: how many are kept; 0 keeps all.

    Raises:
        UserError: a checkpoint there could not be read again.
    """

    def __init__(self, directory: str, keep: int = 5):
        _check_path(directory, "output_dir")
        self.directory = directory
        self.keep = keep

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint that is named, or None."""
        kept = _named_in(self.directory)
        return kept[-1] if kept else None

    def restore_latest(self, variables: Mapping[str, tf.Variable]) -> str | None:
        """Returns the prefix of the newest whole checkpoint, from which it has set all variables.

        None if there is no checkpoint. One that is damaged is passed over with a warning.

        Raises:
            UserError: the file `checkpoint` is damaged or names no whole checkpoint, or the
                checkpoint does not fit the variables (see `restore`).
        """
        kept = _named_in(self.directory)
        for prefix in reversed(kept):
            try:
                restore(variables, prefix)
                return prefix
            except DamagedCheckpointError as error:
                logging.warning("%s. Looking for the checkpoint before it", error)
        if kept:
            raise UserError(
                f"The file {os.path.join(self.directory, 'checkpoint')} names {', '.join(kept)},"
                " and none of them is there and whole. Delete that file to start anew."
            )
        return None

    def prefix(self, step: int) -> str:
        """Returns what the names of the files of a step's checkpoint begin with."""
        return os.path.join(self.directory, f"model.ckpt-{step}")

    def _name(self, prefixes: Sequence[str]) -> None:
        """Makes `checkpoint` name these, oldest first. Relative, so that a directory can move."""
        names = [os.path.basename(prefix) for prefix in prefixes]
        lines = [f'model_checkpoint_path: "{names[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        path = os.path.join(self.directory, "checkpoint")
        with tf.io.gfile.GFile(path + ".unfinished", "w") as writer:
            writer.write("\n".join(lines) + "\n")
        tf.io.gfile.rename(path + ".unfinished", path, overwrite=True)

    def save(
        self,
        variables: Mapping[str, tf.Variable],
        step: int,
        write_beside: Callable[[str], None] = lambda prefix: None,
    ) -> str:
        """Returns the prefix of the checkpoint that it has written.

        `checkpoint` is updated when everything else is in place and before the oldest is deleted,
        so a run that is killed at any moment leaves a whole checkpoint behind.

        Args:
            variables: every variable by name, `global_step` included.
            step: the number in the file name.
            write_beside: writes what the format has no name for to files that begin with the
                prefix it is given.

        Raises:
            OSError: the checkpoint cannot be written; what was begun is removed, the earlier
                checkpoints are as they were.
        """
        prefix = self.prefix(step)
        # A `checkpoint` file that was copied here may name those of another directory.
        here = os.path.normpath(self.directory)
        named = [
            p for p in _named_in(self.directory) if os.path.normpath(os.path.dirname(p)) == here
        ]
        kept = [p for p in named if p != prefix]
        try:
            if prefix not in named:
                _delete(prefix + ".*")  # what a save that was killed has left
            write_beside(prefix)
            write(prefix, variables)
            remaining = [*kept, prefix][-self.keep :] if self.keep else [*kept, prefix]
            self._name(remaining)
        except (tf.errors.OpError, OSError) as error:
            if prefix not in _named_in(self.directory):
                _delete(prefix + ".*")
            _delete(os.path.join(self.directory, "checkpoint.unfinished"))
            last = f"The last whole one is {kept[-1]}" if kept else "There is none yet"
            raise OSError(
                f"The checkpoint of step {step} cannot be written to --output_dir="
                f"{self.directory} ({getattr(error, 'message', error)}). {last}. The directory"
                " must be writable and have room; then the same command goes on from there."
            ) from error
        for old in kept[: len(kept) + 1 - len(remaining)]:
            _delete(old + ".*")
        return prefix


def _delete(pattern: str) -> None:
    """Deletes files and folders of a pattern; what cannot be is named in a warning."""
    for path in tf.io.gfile.glob(pattern):
        try:
            if tf.io.gfile.isdir(path):  # what tf.train.Checkpoint leaves of an unfinished write
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)
        except tf.errors.OpError as error:
            logging.warning("%s cannot be deleted: %s", path, error.message)
