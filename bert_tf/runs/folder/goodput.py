"""Where a run's wall time goes, over all of its starts: `goodput.json` in the output directory.

Goodput is the share of the time spent on training steps that count. The main thread is in exactly
one part at any moment, so the parts add up to the whole time.
"""

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable, Iterator

from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import temporary_names
from bert_tf.files.whole_files import read_json, write_whole
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.strict_json import checksum

FILE_NAME = "goodput.json"
# The parts of a run's time, and their names in text.
PARTS = {
    "steps": "steps that count",
    "start_up": "start-up",
    "compiling": "tracing and compiling",
    "restoring": "restoring",
    "input": "waiting for input",
    "saving": "saving",
    "evaluating": "evaluating",
    "lost": "steps lost",
    "not_running": "not running",
}
# What a killed run was doing after its last record -> the part that gets the time from then on.
_AFTER_RECORD = {"start_up": "start_up", "steps": "lost", "ended": "not_running"}
# The cost of a restart on any machine, and pauses, which no program can avoid.
_NOT_OF_STEPS = ("start_up", "compiling", "restoring", "not_running")
_REMEMBERED_SAVES = 20  # more than the checkpoints that most runs keep

_from_process_start = False


def count_from_process_start() -> None:
    """Makes a run's time start with this process. For programs, which make one run per process."""
    global _from_process_start
    _from_process_start = True


class Clock:
    """Divides one thread's time among `PARTS`; `elapsed` is the start-up's seconds so far."""

    def __init__(self, elapsed: float = 0.0, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._seconds = {**dict.fromkeys(PARTS, 0.0), "start_up": elapsed}
        self._part = "start_up"
        self._since = now()

    def seconds(self) -> dict[str, float]:
        before, self._since = self._since, self._now()
        self._seconds[self._part] += self._since - before
        return dict(self._seconds)

    def enter(self, part: str) -> None:
        """Counts time from now on as this part."""
        self.seconds()
        self._part = part

    @contextlib.contextmanager
    def spent(self, part: str) -> Iterator[None]:
        """Counts the time within the context as this part."""
        before = self._part
        self.enter(part)
        try:
            yield
        finally:
            self.enter(before)

    def move(self, seconds: float, source: str, target: str) -> None:
        """Moves seconds from one part to another, but no more than the first one has."""
        seconds = min(seconds, self.seconds()[source])
        self._seconds[source] -= seconds
        self._seconds[target] += seconds


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of `goodput.json`.

    first_start, until: when the run first started and when the record was made, in seconds since
        1970.
    starts: how often the run was started.
    seconds: the time from `first_start` to `until` in each of `PARTS`.
    doing: a key of `_AFTER_RECORD`.
    saves: for each of the last saves: its step, and the seconds of useful steps until then.
    """

    first_start: float
    until: float
    starts: int
    seconds: dict[str, float]
    doing: str
    saves: tuple[tuple[int, float], ...] = ()

    def goodput(self) -> float:
        return self.seconds["steps"] / max(sum(self.seconds.values()), 1e-9)

    def goodput_beyond_start_up(self) -> float:
        """Returns the share of useful steps in the time, not counting starts and pauses."""
        rest = sum(s for part, s in self.seconds.items() if part not in _NOT_OF_STEPS)
        return self.seconds["steps"] / max(rest, 1e-9)

    def used(self) -> float:
        """Returns the seconds for which the run had its machine."""
        return sum(self.seconds.values()) - self.seconds["not_running"]


def file_name(process: int) -> str:
    """Returns the name of a process's file: goodput.json, goodput-1.json and so on."""
    return f"-{process}".join(os.path.splitext(FILE_NAME)) if process else FILE_NAME


def read(output_dir: str, process: int = 0) -> Record | None:
    """Reads the record of a process, if there is one."""
    path = os.path.join(output_dir, file_name(process))
    rule = "only runs should write this file"
    try:
        if not tf.io.gfile.exists(path):
            return None
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read ({error.message}); {rule}") from error
    content = read_json(path, path, rule)
    try:
        intact = content.pop("checksum") == checksum(content)
        saves = tuple((int(s), float(t)) for s, t, *_ in content.pop("saves"))
        record = Record(**content, saves=saves)
        if intact and record.seconds.keys() == PARTS.keys() and record.doing in _AFTER_RECORD:
            return record
        raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged; {rule}") from error


def _nothing(now: float) -> Record:
    return Record(now, now, 0, dict.fromkeys(PARTS, 0.0), "ended")


class Goodput:
    """Keeps `goodput.json` up to date, best effort: problems with the file never stop the run.

    A record is made when a run starts, after its first step, with every checkpoint and at the end.
    If a run was killed, its heartbeat tells how long it lived after the last record. Steps count if
    the checkpoint that the run resumes from contains them.

    `time_now` returns the seconds since 1970; `process` is the number of this process in the run.
    """

    def __init__(
        self,
        output_dir: str,
        clock: Clock | None = None,
        time_now: Callable[[], float] = time.time,
        process: int = 0,
    ):
        self._process, self._path = process, os.path.join(output_dir, file_name(process))
        self.clock = clock or Clock(temporary_names.age() if _from_process_start else 0.0)
        self._start = time_now() - sum(self.clock.seconds().values())
        self._lock = threading.Lock()  # for the fields that the saving thread also uses
        self._is_open = False
        self._newest = self._past = _nothing(self._start)

    def open(self, left_at: float | None) -> None:
        """Opens the file and adds the time since its last record; for `left_at` see `Heartbeat`."""
        try:
            past = read(os.path.dirname(self._path), self._process)
        except UserError as error:
            self._start_over(str(error))
            past = None
        if past is not None:
            alive = max(past.until, min(left_at or past.until, self._start))
            seconds = dict(past.seconds)
            seconds[_AFTER_RECORD[past.doing]] += alive - past.until
            seconds["not_running"] += max(self._start - alive, 0.0)
            # Starts overlap if one process makes two runs, or if clocks differ: do not count that
            # time twice.
            early = max(past.until - self._start, 0.0)
            overlap = min(early, self.clock.seconds()["start_up"])
            seconds["start_up"] -= overlap
            self._start += early - overlap
            self._past = dataclasses.replace(past, seconds=seconds)
        self._is_open = True
        self.write("start_up")

    def restored(self, step: int, prefix: str | None) -> None:
        """Counts only the steps up to the checkpoint that the run resumes from; the rest are lost.

        If the file does not list that checkpoint, `prefix`, it belongs to a different run and is
        set aside with a warning.
        """
        if not self._is_open:
            return
        past, counted = self._past, 0.0
        if prefix is None and past.saves:
            why = "belongs to a different run: it lists checkpoints, but the folder has none"
            return self._start_over(f"{self._path} {why}")
        saves = [s for s in past.saves if s[0] <= step]
        if prefix is not None:
            # Each other process writes its own file, and may be killed before it lists the step.
            if past.starts and not self._process and (not saves or saves[-1][0] < step):
                why = f"belongs to a different run: it does not list {prefix}"
                return self._start_over(f"{self._path} {why}")
            counted = saves[-1][1] if saves else 0.0
            saves = [*(s for s in saves if s[0] < step), (step, counted)]
        lost = past.seconds["lost"] + (past.seconds["steps"] - counted)
        seconds = {**past.seconds, "lost": lost, "steps": counted}
        self._past = dataclasses.replace(past, seconds=seconds, saves=tuple(saves))
        self.write("start_up")

    def _start_over(self, why: str) -> None:
        logging.warning(
            "%s. The file is renamed to %s.old; the time is counted from zero", why, self._path
        )
        with self._ignored():
            tf.io.gfile.rename(self._path, f"{self._path}.old", overwrite=True)
        self._past = _nothing(self._start)
        self.write("start_up")

    @contextlib.contextmanager
    def _ignored(self) -> Iterator[None]:
        try:
            yield
        except (UserError, OSError, tf.errors.OpError) as error:
            logging.warning("%s is not up to date: %s", self._path, error)

    def record(self, doing: str = "steps") -> Record:
        """Returns the current state. Only for the thread that owns the clock."""
        past, now = self._past, self.clock.seconds()
        until = self._start + sum(now.values())
        seconds = {part: past.seconds[part] + now[part] for part in PARTS}
        return Record(past.first_start, until, past.starts + 1, seconds, doing, past.saves)

    def write(self, doing: str = "steps") -> None:
        if self._is_open:
            self._write(self.record(doing))

    def write_save(self, step: int, record: Record) -> None:
        """Writes the state at a step whose checkpoint is complete; any thread may call this."""
        if self._is_open:
            self._write(record, (step, record.seconds["steps"]))

    def _write(self, record: Record, save: tuple[int, float] | None = None) -> None:
        with self._lock, self._ignored():
            if save:
                saves = [s for s in self._past.saves if s[0] != save[0]]
                saves = (*saves, save)[-_REMEMBERED_SAVES:]
                self._past = dataclasses.replace(self._past, saves=saves)
            if record.until >= self._newest.until:
                self._newest = record
            content = dataclasses.asdict(dataclasses.replace(self._newest, saves=self._past.saves))
            content["checksum"] = checksum(content)
            write_whole(self._path, json.dumps(content, indent=1) + "\n")

    def curves(self) -> dict[str, float]:
        """Returns each part's share so far, for TensorBoard."""
        if not self._is_open:
            return {}
        record = self.record()
        whole = max(sum(record.seconds.values()), 1e-9)
        shares = {f"goodput/{part}": seconds / whole for part, seconds in record.seconds.items()}
        return {"goodput": record.goodput(), **shares}
