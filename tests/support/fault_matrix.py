"""Tries every fault at every instant of a run (benchmarks/fault_matrix.py).

A small run saves, evaluates, changes its phase and deletes old checkpoints. A fault happens at one
instant. Then the run is started again. It either ends with the same bits as an undisturbed run, or
is refused with a message.

SIGKILL is imitated by a copy of the directory at that instant. For an instant within a write, the
file is cut in half and has the name that TensorFlow gives to unfinished files.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import input_pipeline, interrupts, loops
from bert_tf.errors import UserError
from bert_tf.files import checkpoint_directory, checkpoint_names, checkpoints, whole_files
from bert_tf.files.whole_folders import whole_folder
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.trainer import Trainer
from tests.support.line_task import LineModel, phases, write
from tests.support.pretraining_runs import assert_same_variables

STEPS, BOUNDARY, SAVE_STEPS, SAVED = 16, 10, 4, 8
KEEP = 2
SEED = 20181011
WITHIN_WRITE = ("within the data file", "within the index")
RUN_INSTANTS = (
    "before the first save",
    "within the input's state",
    *WITHIN_WRITE,
    "between the index and `checkpoint`",
    "within the deletion of an old checkpoint",
    "within an evaluation",
    "at the boundary of two phases",
    "at the end",
)
EXPORT = "within an export"
INSTANTS = (*RUN_INSTANTS, EXPORT)
WRITE_ERRORS = {
    "full disk": tf.errors.ResourceExhaustedError(None, None, "No space left on device"),
    "I/O error": tf.errors.InternalError(None, None, "Input/output error"),
    "read-only": tf.errors.PermissionDeniedError(None, None, "Read-only file system"),
}
DAMAGES = ("truncated index", "truncated data", "flipped byte", "no `checkpoint`")
FAULTS = ("SIGTERM", "SIGKILL", *WRITE_ERRORS, *DAMAGES, "second run", "clock set back")
SAME, NONE = "same bits", "-"

Hook = Callable[[str], None]


class Disk:
    """The functions that write a run's files; if `error` is set, each of them raises it."""

    def __init__(self):
        self.error: tf.errors.OpError | None = None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Makes the functions that write raise `error`."""
        save_tensors, write_bytes = tf.raw_ops.SaveV2, whole_files.UnfinishedFile.write

        def guarded_save(prefix, **arguments):
            if self.error:
                Path(f"{prefix}.data-00000-of-00001.tempstate7").write_bytes(b"begun")
                raise self.error
            return save_tensors(prefix=prefix, **arguments)

        def guarded_write(file, data):
            if self.error:
                raise OSError(self.error.message)
            return write_bytes(file, data)

        with (
            mock.patch.object(tf.raw_ops, "SaveV2", guarded_save),
            mock.patch.object(whole_files.UnfinishedFile, "write", guarded_write),
        ):
            yield

    @contextlib.contextmanager
    def attached(self, hook: Hook) -> Iterator[None]:
        """Calls the hook at the instants of a save; an instant within a write comes before it."""
        write_state, remove = checkpoint_names.write_state, checkpoint_directory._remove
        save = checkpoint_directory.CheckpointDirectory.save
        write_all, deleted = checkpoints.write, []

        def hooked_save(directory, values, step, *rest):
            if step == 0:
                hook("before the first save")
            return save(directory, values, step, *rest)

        def hooked_write(prefix, values):
            if checkpoint_names.number_of(prefix) == SAVED:
                for instant in ("within the input's state", *WITHIN_WRITE):
                    hook(instant)
            write_all(prefix, values)

        def hooked_state(directory, prefixes):
            if checkpoint_names.number_of(prefixes[-1]) == SAVED and not deleted:
                hook("between the index and `checkpoint`")
            write_state(directory, prefixes)

        def hooked_remove(path):
            remove(path)
            if os.path.basename(path).startswith("model.ckpt-0.") and not deleted:
                deleted.append(path)
                hook("within the deletion of an old checkpoint")

        with (
            self._guarded(),
            mock.patch.object(checkpoint_directory.CheckpointDirectory, "save", hooked_save),
            mock.patch.object(checkpoints, "write", hooked_write),
            mock.patch.object(checkpoint_names, "write_state", hooked_state),
            mock.patch.object(checkpoint_directory, "_remove", hooked_remove),
        ):
            yield


class Matrix:
    """Makes the runs, in an empty folder."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._files = [write(folder / f"{i}.tfrecord", 40 + 7 * i, i) for i in range(3)]
        self._number = 0
        code = "import os; print(os.getpid())"
        self._dead_pid = int(subprocess.check_output([sys.executable, "-c", code]))
        self._left: dict[str, Path] = {}  # copies of what SIGKILL leaves, by instant
        self._undisturbed = self._new()
        self._train(self._undisturbed, self._snapshot(self._undisturbed))
        self._results = (self._undisturbed / "eval_results.txt").read_text()
        assert set(self._left) == set(RUN_INSTANTS)

    def _new(self) -> Path:
        self._number += 1
        return self._folder / f"run{self._number}"

    def _train(self, output: Path, hook: Hook = lambda instant: None, disk=None) -> None:
        """Runs from the newest checkpoint, if there is one, to the end."""
        every = {"save_checkpoints_steps": SAVE_STEPS, "evaluate_every_steps": SAVE_STEPS}
        settings = TrainingSettings(
            output_dir=str(output), do_train=True, **every, keep_checkpoint_max=KEEP
        )
        strategy = tf.distribute.get_strategy()
        schedule = optimization.linear_schedule(0.05, STEPS, 3)
        boundary = phases(self._files, (BOUNDARY, 16), (STEPS - BOUNDARY, 24))
        with (disk or Disk()).attached(hook), Run(strategy, settings) as run:
            trainer = Trainer(LineModel, run, schedule)

            def evaluate() -> bool:
                step = trainer.global_step
                if step == SAVED:
                    run.wait_for_save()  # so that the instant is the same each time
                    hook("within an evaluation")
                weights = trainer.model.line.kernel.numpy().ravel().tolist()
                run.write_results(run.report({"first": weights[0]}, step))
                return True

            open_input = input_pipeline.TrainingInput.__init__

            def hooked_open(source, files, schema, batch_size, *rest):
                if batch_size == 24 and trainer.global_step == BOUNDARY:
                    run.wait_for_save()
                    hook("at the boundary of two phases")
                open_input(source, files, schema, batch_size, *rest)

            with (
                mock.patch.object(input_pipeline.TrainingInput, "__init__", hooked_open),
                mock.patch.object(loops, "may_compile", lambda strategy: False),
            ):
                trainer.train(boundary, evaluate)
            hook("at the end")

    def _snapshot(self, output: Path) -> Hook:
        """Returns a hook that copies what SIGKILL would leave at each instant."""

        def hook(instant: str) -> None:
            left = self._left[instant] = self._folder / f"left{len(self._left)}"
            shutil.copytree(output, left)
            heartbeat = left / "run.heartbeat"
            text = heartbeat.read_text()
            heartbeat.write_text(text.replace(f" {os.getpid()},", f" {self._dead_pid},"))
            if instant == "within the input's state":
                for path in left.glob(f"model.ckpt-{SAVED}.input*.index"):
                    path.unlink()
                for path in left.glob(f"model.ckpt-{SAVED}.input*.data*"):
                    _unfinish(path)
            elif instant in WITHIN_WRITE:
                # The earlier save's content stands for it. TensorFlow writes both in one call.
                index, data = "index", "data-00000-of-00001"
                for ending in (index, data):
                    path = left / f"model.ckpt-{SAVED}.{ending}"
                    shutil.copyfile(left / f"model.ckpt-4.{ending}", path)
                    if ending == index or instant == "within the data file":
                        _unfinish(path)

        return hook

    def outcome(self, instant: str, fault: str) -> str:
        """Returns the outcome: `SAME`, a refusal's message, or `NONE` if the case cannot happen."""
        if instant == EXPORT:
            return self._export(fault)
        if fault in DAMAGES and not list(self._left[instant].glob("model.ckpt-*.index")):
            return NONE
        output = self._new()
        if fault in ("SIGKILL", "clock set back", *DAMAGES):
            shutil.copytree(self._left[instant], output)
            _damage(output, fault)
            return self._finish(output)
        disk = Disk()
        refused: list[str] = []

        def hook(now: str) -> None:
            if now != instant:
                return
            if fault == "SIGTERM":
                os.kill(os.getpid(), signal.SIGTERM)
            elif fault == "second run":
                try:
                    self._train(output)
                except UserError as error:
                    refused.append(str(error))
            else:
                disk.error = WRITE_ERRORS[fault]

        handler, ended = signal.getsignal(signal.SIGTERM), None
        interrupts.raise_on_sigterm()
        try:
            self._train(output, hook, disk)
        except (OSError, UserError, KeyboardInterrupt) as error:
            ended = error
        finally:
            signal.signal(signal.SIGTERM, handler)
        if fault == "second run":
            assert ended is None and len(refused) == 1 and self._finish(output) == SAME
            return refused[0]
        if fault == "SIGTERM":
            assert isinstance(ended, interrupts.Terminated)
        return self._finish(output)

    def _finish(self, output: Path) -> str:
        """Returns the outcome when the command is started again."""
        try:
            self._train(output)
        except (UserError, OSError) as error:
            return str(error)
        assert_same_variables(output / f"model.ckpt-{STEPS}", self._undisturbed)
        assert (output / "eval_results.txt").read_text() == self._results
        return SAME

    def _export(self, fault: str) -> str:
        """Returns the outcome for an export's folder, which is written differently."""
        if fault in (*DAMAGES, "second run", "clock set back"):
            return NONE
        output = self._new()

        def export(happens: Callable[[], None] = lambda: None) -> None:
            names = ("a", "config.json")
            with whole_folder(str(output), "output_dir", names[1], names, "an export") as name:
                Path(name, "a").write_text("weights")
                happens()
                whole_files.write_whole(f"{name}/config.json", "{}")

        def fail() -> None:
            raise KeyboardInterrupt if fault == "SIGTERM" else WRITE_ERRORS[fault]

        if fault == "SIGKILL":
            killed = self._folder / "killed"
            export(lambda: shutil.copytree(output.parent, killed))
            shutil.rmtree(output)
            assert any(path.is_dir() for path in killed.iterdir())
            shutil.rmtree(killed)
        else:
            with contextlib.suppress(OSError, UserError, KeyboardInterrupt):
                export(fail)
        assert not output.exists()
        export()
        assert (output / "a").read_text() == "weights"
        return SAME


def _unfinish(path: Path) -> None:
    """Replaces a file by its unfinished form, as in the middle of its write."""
    content = path.read_bytes()
    path.with_name(f"{path.name}.tempstate7").write_bytes(content[: len(content) // 2])
    path.unlink()


def _damage(output: Path, fault: str) -> None:
    """Damages the newest checkpoint, or the times of the files."""
    if fault == "clock set back":
        for path in output.rglob("*"):
            later = path.stat().st_mtime + 3600
            os.utime(path, (later, later))
    if fault == "no `checkpoint`":
        (output / "checkpoint").unlink(missing_ok=True)
    if fault in ("truncated index", "truncated data", "flipped byte"):
        index = [p for p in output.glob("model.ckpt-*.index") if ".input" not in p.name]
        newest = max(checkpoint_names.number_of(str(p.with_suffix(""))) for p in index)
        ending = "index" if fault == "truncated index" else "data-00000-of-00001"
        path = output / f"model.ckpt-{newest}.{ending}"
        content = bytearray(path.read_bytes())
        if fault == "flipped byte":
            content[random.Random(SEED).randrange(len(content))] ^= 0x40
        else:
            del content[len(content) // 2 :]
        path.write_bytes(content)


def table(folder: Path) -> str:
    """Returns the matrix in Markdown. A refusal has a number, explained below the table."""
    matrix = Matrix(folder)
    lines = [f"| Instant | {' | '.join(FAULTS)} |", f"|---|{'---|' * len(FAULTS)}"]
    messages: list[str] = []
    for instant in INSTANTS:
        cells = []
        for fault in FAULTS:
            outcome = matrix.outcome(instant, fault)
            if outcome not in (SAME, NONE):
                # Names differ between runs and machines.
                outcome = re.sub(rf"{re.escape(str(folder))}/run\d+", "OUTPUT_DIR", outcome)
                outcome = re.sub(r"process \d+ on \S+", "process PID on HOST", outcome)
                if outcome not in messages:
                    messages.append(outcome)
                outcome = f"refused ({messages.index(outcome) + 1})"
            cells.append(outcome)
        lines.append(f"| {instant} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{i}. {m}" for i, m in enumerate(messages, 1))]) + "\n"
