"""`CheckpointDirectory` saves and restores the checkpoints of a run, and deletes old ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import checkpoint_names, checkpoints, storage
from bert_tf.files.paths import names_in
from bert_tf.files.temporary_names import is_left_behind
from bert_tf.start import lazy_tensorflow as tf


class CheckpointDirectory:
    """The checkpoints of a run in its output directory. Only the newest few are kept.

    The file `checkpoint` lists them. Whatever it lists, only files `model.ckpt-NUMBER.*` in the
    directory are read or deleted. Unlisted checkpoints are left alone, with two exceptions. Saving
    a step overwrites an unlisted checkpoint of that step. If `checkpoint` is missing or empty, the
    checkpoint that this run resumed from is listed again and later deleted like the rest.

    Args:
        keep: number of checkpoints to keep; 0 keeps all.
        keep_every: the checkpoint of every N-th step is never deleted, but leaves the list; 0 for
            none.
    """

    def __init__(self, directory: str, keep: int = 5, keep_every: int = 0):
        checkpoint_names.check_path(directory, "output_dir")
        self.directory = directory
        self.keep = keep
        self.keep_every = keep_every
        self._restored: str | None = None

    def _listed(self) -> list[str]:
        """Returns the prefixes of the run's checkpoints in the file `checkpoint`, newest last."""
        listed = checkpoint_names.listed_in(self.directory)
        return [prefix for prefix in listed if checkpoint_names.number_of(prefix) is not None]

    def _candidates(self, listed: list[str]) -> list[str]:
        """Returns the prefixes to resume from, the best last; unlisted checkpoints come first."""
        numbered = checkpoint_names.numbered_in(self.directory)
        return [prefix for prefix in numbered if prefix not in listed] + listed

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint: the last listed, else the highest number."""
        candidates = self._candidates(self._listed())
        return candidates[-1] if candidates else None

    def restore_latest(self, variables: Mapping[str, tf.Variable]) -> str | None:
        """Sets all variables from the newest undamaged checkpoint; returns its prefix, or None."""
        state_file = checkpoint_names.state_file(self.directory)
        listed = self._listed()
        candidates = self._candidates(listed)
        for prefix in reversed(candidates):
            try:
                checkpoints.restore(variables, prefix)
            except checkpoints.DamagedCheckpointError as error:
                logging.warning("%s. Trying the checkpoint before it", error)
                continue
            if prefix not in listed:
                logging.warning(
                    "%s lists no undamaged checkpoint: resuming from %s, the undamaged one with the"
                    " highest number",
                    state_file,
                    prefix,
                )
            self._restored = prefix
            return prefix
        if candidates or tf.io.gfile.exists(state_file):
            found = f": {checkpoint_names.some(candidates)}" if candidates else ""
            raise UserError(
                f"--output_dir={self.directory} must hold an undamaged checkpoint to resume from,"
                f" or neither checkpoints nor a file `checkpoint`; all checkpoints are missing or"
                f" damaged{found}. Copy one back, or choose a new --output_dir to start over"
            )
        return None

    def prefix(self, step: int) -> str:
        return os.path.join(self.directory, f"model.ckpt-{step}")

    def save(
        self,
        variables: Mapping[str, tf.Variable],
        step: int,
        write_beside: Callable[[str], None] = lambda prefix: None,
        when_complete: Callable[[str], None] = lambda prefix: None,
    ) -> str:
        """Writes a checkpoint, deletes the oldest ones, and returns the new one's prefix.

        The file `checkpoint` lists the new checkpoint once it is complete, and an old checkpoint
        until it is deleted. So a run that is killed at any moment leaves a complete checkpoint, and
        the next run knows what is left to delete.

        Args:
            variables: every variable by name, `global_step` included.
            write_beside: called with the prefix; writes other data of the step to files whose names
                begin with the prefix.
            when_complete: called with the prefix before the file `checkpoint` lists it.
        """
        prefix = self.prefix(step)
        listed = self._listed()
        # Without the file `checkpoint`, only the checkpoint resumed from is surely the run's own.
        known = listed or ([self._restored] if self._restored else [])
        kept = [p for p in known if p != prefix]
        try:
            if prefix not in listed:
                _delete(prefix)  # left by a save that was killed
            write_beside(prefix)
            checkpoints.write(prefix, variables)
            when_complete(prefix)
            checkpoint_names.write_state(self.directory, [*kept, prefix])
        except (tf.errors.OpError, OSError, UserError) as error:
            if prefix not in self._listed():
                _delete(prefix)
            cause = error.__cause__ or error
            reason = storage.error_text(str(getattr(cause, "message", cause)))
            then = f"resumes from {kept[-1]}" if kept else "starts over: there is no checkpoint yet"
            raise OSError(
                f"The checkpoint of step {step} cannot be written to --output_dir="
                f"{self.directory} ({reason}). Make the directory writable and free some space; the"
                f" same command then {then}."
            ) from error
        self._delete_oldest([*kept, prefix])
        return prefix

    def _delete_oldest(self, listed: list[str]) -> None:
        if not self.keep or len(listed) <= self.keep:
            return
        for prefix in listed[: -self.keep]:
            step = checkpoint_names.number_of(prefix)
            if not (self.keep_every and step and step % self.keep_every == 0):
                _delete(prefix)
        try:
            checkpoint_names.write_state(self.directory, listed[-self.keep :])
        except (UserError, OSError) as error:
            logging.warning("%s; the next save tries again", error)

    def remove_left_behind(self) -> None:
        """Removes files left by killed runs; no other run may be training in the directory."""
        for name in names_in(self.directory):
            if is_left_behind(name) or checkpoint_names.is_part(name):
                _remove(os.path.join(self.directory, name))
        self._delete_oldest(self._listed())


def _delete(prefix: str) -> None:
    """Deletes a checkpoint's files, the index first, so that the rest never count as complete."""
    for path in sorted(checkpoint_names.files_of(prefix), key=lambda p: not p.endswith(".index")):
        _remove(path)


def _remove(name: str) -> None:
    path = name if storage.is_unicode(name) else os.fsencode(name)  # TensorFlow takes bytes
    try:
        if tf.io.gfile.isdir(path):  # left by an interrupted tf.train.Checkpoint write
            tf.io.gfile.rmtree(path)
        else:
            tf.io.gfile.remove(path)
    except tf.errors.OpError as error:
        logging.warning("%s cannot be deleted: %s", name, error.message)
