"""The checkpoints of a run: `CheckpointDirectory` saves, restores and deletes old ones."""

import os
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import checkpoints


class CheckpointDirectory:
    """The checkpoints of a run in its output directory, of which the newest few are kept.

    Args:
        directory: the output directory.
        keep: number of checkpoints to keep; 0 keeps all.

    Raises:
        UserError: the file system is unknown, or the path looks like a glob pattern.
        OSError: the file system does not respond.
    """

    def __init__(self, directory: str, keep: int = 5):
        checkpoints.check_path(directory, "output_dir")
        self.directory = directory
        self.keep = keep

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint in the file `checkpoint`, or None."""
        kept = checkpoints.listed_in(self.directory)
        return kept[-1] if kept else None

    def restore_latest(self, variables: Mapping[str, tf.Variable]) -> str | None:
        """Sets all variables from the newest undamaged checkpoint and returns its prefix.

        Returns None if there is no checkpoint. Skips a damaged one with a warning.

        Raises:
            UserError: the file `checkpoint` is damaged or all checkpoints that it lists are, or a
                checkpoint does not fit the variables (see `checkpoints.restore`).
        """
        kept = checkpoints.listed_in(self.directory)
        for prefix in reversed(kept):
            try:
                checkpoints.restore(variables, prefix)
                return prefix
            except checkpoints.DamagedCheckpointError as error:
                logging.warning("%s. Looking for the checkpoint before it", error)
        if kept:
            raise UserError(
                f"The file {os.path.join(self.directory, 'checkpoint')} lists {', '.join(kept)},"
                " and all of them are missing or damaged. Delete that file to start again."
            )
        return None

    def prefix(self, step: int) -> str:
        """Returns the prefix of the checkpoint of a step."""
        return os.path.join(self.directory, f"model.ckpt-{step}")

    def save(
        self,
        variables: Mapping[str, tf.Variable],
        step: int,
        write_beside: Callable[[str], None] = lambda prefix: None,
    ) -> str:
        """Writes a checkpoint, deletes the oldest ones, and returns the new one's prefix.

        The file `checkpoint` is updated after the new checkpoint is complete and before an old one
        is deleted. So a run that is killed at any moment leaves a complete checkpoint.

        Args:
            variables: every variable by name, `global_step` included.
            step: the number in the file names.
            write_beside: called with the prefix; writes what the format has no place for to files
                whose names begin with it.

        Raises:
            OSError: the checkpoint cannot be written. Its files are removed, and the earlier
                checkpoints are unchanged.
        """
        prefix = self.prefix(step)
        # A `checkpoint` file that was copied here may list checkpoints of another directory.
        here = os.path.normpath(self.directory)
        listed = [
            p
            for p in checkpoints.listed_in(self.directory)
            if os.path.normpath(os.path.dirname(p)) == here
        ]
        kept = [p for p in listed if p != prefix]
        try:
            if prefix not in listed:
                _delete(prefix + ".*")  # left by a save that was killed
            write_beside(prefix)
            checkpoints.write(prefix, variables)
            remaining = [*kept, prefix][-self.keep :] if self.keep else [*kept, prefix]
            self._list(remaining)
        except (tf.errors.OpError, OSError) as error:
            if prefix not in checkpoints.listed_in(self.directory):
                _delete(prefix + ".*")
            _delete(os.path.join(self.directory, "checkpoint.unfinished"))
            last = f"The last complete one is {kept[-1]}" if kept else "There is none yet"
            raise OSError(
                f"The checkpoint of step {step} cannot be written to --output_dir="
                f"{self.directory} ({getattr(error, 'message', error)}). {last}. Make the directory"
                " writable and free some space; the same command then resumes from there."
            ) from error
        for old in kept[: len(kept) + 1 - len(remaining)]:
            _delete(old + ".*")
        return prefix

    def _list(self, prefixes: Sequence[str]) -> None:
        """Writes the file `checkpoint`: these, oldest first, as relative paths.

        So the directory can be moved.
        """
        names = [os.path.basename(prefix) for prefix in prefixes]
        lines = [f'model_checkpoint_path: "{names[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        path = os.path.join(self.directory, "checkpoint")
        with tf.io.gfile.GFile(path + ".unfinished", "w") as writer:
            writer.write("\n".join(lines) + "\n")
        tf.io.gfile.rename(path + ".unfinished", path, overwrite=True)


def _delete(pattern: str) -> None:
    """Deletes the files and folders that match; warns of those that it cannot delete."""
    for path in tf.io.gfile.glob(pattern):
        try:
            if tf.io.gfile.isdir(path):  # left by an interrupted tf.train.Checkpoint write
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)
        except tf.errors.OpError as error:
            logging.warning("%s cannot be deleted: %s", path, error.message)
