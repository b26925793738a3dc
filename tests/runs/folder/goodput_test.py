"""Where a run's time goes, by a clock that the test sets; and damaged files."""

import json
import os
import re
from time import sleep
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import strict_json
from bert_tf.files import temporary_names
from bert_tf.runs.folder import goodput
from bert_tf.runs.folder.goodput import PARTS, Clock, Goodput
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.phase_steps import PhaseSteps
from tests.support.line_task import curves, phases, trainer, write
from tests.support.refusals import refuses


class Time:
    """Seconds since 1970, which only the test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


class Start:
    """A start of a run in a directory."""

    def __init__(self, folder, time, left_at=None, process=0):
        self.folder, self.time = folder, time
        self.goodput = Goodput(str(folder), Clock(now=time), time, process)
        self.goodput.open(left_at)

    def spend(self, part, seconds):
        with self.goodput.clock.spent(part):
            self.time.now += seconds

    def save(self, step):
        self.goodput.write_save(step, self.goodput.record())
        return f"{self.folder}/model.ckpt-{step}"


def seconds(folder):
    """Returns the parts in the file that are not 0, after a check that they add up."""
    record = goodput.read(str(folder))
    assert sum(record.seconds.values()) == pytest.approx(record.until - record.first_start)
    return {part: s for part, s in record.seconds.items() if abs(s) > 1e-6}


def test_a_clock_is_in_one_part_at_a_time(time):
    clock = Clock(elapsed=7.0, now=time)
    time.now += 2
    with clock.spent("evaluating"):
        time.now += 3
        with pytest.raises(ZeroDivisionError), clock.spent("saving"):
            time.now += 5
            raise ZeroDivisionError
        time.now += 11
    clock.enter("steps")
    time.now += 13
    clock.move(4.0, "steps", "input")
    clock.move(100.0, "evaluating", "lost")  # no more than there is
    expected = {"start_up": 9, "saving": 5, "lost": 14, "steps": 9, "input": 4}
    assert clock.seconds() == {**dict.fromkeys(PARTS, 0.0), **expected}
    assert 0.1 < temporary_names.age() < 1e6


def test_over_kills_and_a_pause(tmp_path, time):
    first = Start(tmp_path, time)
    time.now += 10  # start-up
    first.goodput.restored(0, None)
    first.spend("saving", 1)
    first.save(0)
    first.spend("steps", 100)
    prefix = first.save(50)
    assert seconds(tmp_path) == {"start_up": 10, "saving": 1, "steps": 100}
    first.spend("steps", 40)  # killed; its last beat was 30 seconds after the save
    time.now += 500
    second = Start(tmp_path, time, left_at=time.now - 510)
    time.now += 12
    second.spend("restoring", 3)
    second.goodput.restored(50, prefix)
    second.spend("steps", 60)
    second.save(80)
    second.spend("evaluating", 5)
    second.goodput.write("ended")
    expected = {"start_up": 22, "saving": 1, "steps": 160, "lost": 30, "not_running": 510}
    assert seconds(tmp_path) == {**expected, "restoring": 3, "evaluating": 5}
    record = goodput.read(str(tmp_path))
    assert (record.starts, record.first_start) == (2, 1000.0)
    assert record.goodput() == pytest.approx(160 / 731)
    assert record.used() == pytest.approx(731 - 510)
    time.now += 1000  # it ended, so that nothing is lost
    third = Start(tmp_path, time)
    third.goodput.restored(80, f"{tmp_path}/model.ckpt-80")
    assert seconds(tmp_path) == {**expected, "not_running": 1510, "restoring": 3, "evaluating": 5}


def test_steps_count_up_to_the_checkpoint_that_the_run_resumes_from(tmp_path, time):
    first = Start(tmp_path, time)
    first.goodput.restored(0, None)
    for step in (0, 10, 20):
        first.spend("steps", 7)
        first.save(step)
    second = Start(tmp_path, time)
    second.goodput.restored(10, f"{tmp_path}/model.ckpt-10")  # as if the newest were damaged
    assert seconds(tmp_path) == {"steps": 14, "lost": 7}
    second.spend("steps", 5)
    second.save(20)
    assert seconds(tmp_path) == {"steps": 19, "lost": 7}
    assert [save[0] for save in goodput.read(str(tmp_path)).saves] == [0, 10, 20]


def test_a_kill_before_the_first_checkpoint(tmp_path, time):
    Start(tmp_path, time)
    time.now += 100
    second = Start(tmp_path, time, left_at=1030.0)
    second.goodput.restored(0, None)
    assert seconds(tmp_path) == {"start_up": 30, "not_running": 70}
    second.spend("steps", 9)
    second.goodput.write()
    time.now += 20
    Start(tmp_path, time, left_at=time.now - 8).goodput.restored(0, None)
    assert seconds(tmp_path) == {"start_up": 30, "not_running": 78, "lost": 21}


def test_clocks_of_two_machines_count_no_time_twice(tmp_path, time):
    first = Start(tmp_path, time)
    first.spend("steps", 50)
    first.goodput.write()
    behind = Time()
    behind.now = time.now - 20  # on a machine whose clock is late
    second = Start(tmp_path, behind, left_at=time.now + 5)
    assert seconds(tmp_path) == {"steps": 50}
    behind.now += 4
    second.goodput.write()
    assert seconds(tmp_path) == {"steps": 50, "start_up": 4}


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ("HALF", "is not JSON"),
        ("", "is not JSON"),
        ("OTHER STARTS", "is damaged"),
        ("[1]", "is damaged"),
        ("7", "is damaged"),
        (json.dumps({"checksum": strict_json.checksum({})}), "is damaged"),
    ],
)
def test_a_damaged_file_is_set_aside(tmp_path, time, warnings, damaged, why):
    Start(tmp_path, time).spend("steps", 5)
    path = tmp_path / "goodput.json"
    text = path.read_text()
    changed = {"HALF": text[: len(text) // 2], "OTHER STARTS": text.replace('s": 1', 's": 2')}
    path.write_text(damaged := changed.get(damaged, damaged))
    refuses(why, goodput.read, str(tmp_path))
    Start(tmp_path, time).goodput.restored(0, None)
    assert (tmp_path / "goodput.json.old").read_text() == damaged
    assert len(warnings) == 1 and why in warnings[0]
    assert warnings[0].endswith(f"The file is renamed to {path}.old; the time is counted from zero")
    assert goodput.read(str(tmp_path)).first_start == time.now


@pytest.mark.parametrize(("step", "why"), [(20, "does not list"), (0, "the folder has none")])
def test_a_file_of_another_run_is_set_aside(tmp_path, time, warnings, step, why):
    start = Start(tmp_path, time)
    start.goodput.restored(0, None)
    start.spend("steps", 7)
    start.save(10)
    start = Start(tmp_path, time)
    start.goodput.restored(step, f"{tmp_path}/model.ckpt-{step}" if step else None)
    (warning,) = warnings
    assert f"{tmp_path}/goodput.json belongs to a different run: it " in warning and why in warning
    assert seconds(tmp_path) == {}
    start.spend("steps", 3)
    start.save(30)
    assert seconds(tmp_path) == {"steps": 3}


def test_another_process_killed_before_it_lists_the_checkpoint_counts_on(tmp_path, time, warnings):
    start = Start(tmp_path, time, process=3)
    start.goodput.restored(0, None)
    for step in (10, 20):
        start.spend("steps", 7)
        start.save(step)
    start.spend("steps", 5)
    start.goodput.write()
    start = Start(tmp_path, time, process=3)
    start.goodput.restored(30, f"{tmp_path}/model.ckpt-30")
    record = goodput.read(str(tmp_path), 3)
    assert (record.seconds["steps"], record.seconds["lost"]) == (14, 5)
    assert record.saves == ((10, 7), (20, 14), (30, 14)) and warnings == []


def test_a_run_without_the_file_starts_to_count(tmp_path, time, warnings):
    Start(tmp_path, time).save(10)
    os.remove(tmp_path / "goodput.json")
    start = Start(tmp_path, time)
    start.goodput.restored(10, f"{tmp_path}/model.ckpt-10")
    start.spend("steps", 5)
    Start(tmp_path, time).goodput.restored(10, f"{tmp_path}/model.ckpt-10")  # killed unsaved
    assert not warnings


def test_a_disk_that_fails_stops_nothing(tmp_path, time, warnings, monkeypatch):
    def fail(*arguments, **options):
        raise tf.errors.UnavailableError(None, None, "no response")

    path = tmp_path / "goodput.json"
    with monkeypatch.context() as change:
        change.setattr(tf.io.gfile, "rename", fail)
        start = Start(tmp_path, time)
        start.save(10)
    assert {f"{path} is not up to date: " in text for text in warnings} == {True}
    warnings.clear()
    start.save(10)
    text = path.read_text()
    with monkeypatch.context() as change:
        change.setattr(tf.io.gfile, "exists", fail)
        message = "goodput.json cannot be read .no response.; only"
        refuses(message, goodput.read, str(tmp_path))
        Start(tmp_path, time)
    aside = f"The file is renamed to {path}.old; the time is counted from zero"
    (warning,) = warnings
    assert f"{path} cannot be read (no response); only runs should write this file" in warning
    assert warning.endswith(aside) and (tmp_path / "goodput.json.old").read_text() == text


def test_a_real_run_keeps_the_file(tmp_path):
    files = [write(tmp_path / "0.tfrecord", 40, 0)]
    out = tmp_path / "out"
    settings = {"save_checkpoints_steps": 10, "evaluate_every_steps": 15}
    for total in (20, 40):
        line = trainer(out, **settings)
        with Run(line.strategy, line.run.settings) as run:
            line.run = run
            run.restore(line._variables)
            line.train(phases(files, (total, 16)))
        record = goodput.read(str(out))
        assert record.doing == "ended"
        parts = record.seconds
        assert sum(parts.values()) == pytest.approx(record.until - record.first_start, rel=1e-3)
        assert min(parts.values()) >= 0
        assert all(parts[part] > 0 for part in ("steps", "start_up", "compiling", "saving"))
        assert parts["lost"] < 0.1  # a look at the log after the last save
    assert record.starts == 2 and [s[0] for s in record.saves] == [0, 10, 20, 30, 40]
    assert curves(out).keys() >= {"goodput", *(f"goodput/{part}" for part in PARTS)}


def test_a_slow_input_is_waited_for(tmp_path):
    """The time in which the devices are idle, not the time that steps hide."""
    from bert_tf.engine.loops import TrainingLoop

    def step(features, seed):
        return {"loss": tf.reduce_sum(features["x"])}

    def slow(x):
        wait = tf.numpy_function(lambda y: (__import__("time").sleep(0.05), y)[1], [x], tf.float32)
        return {"x": tf.ensure_shape(wait, [3])}

    fast = tf.data.Dataset.from_tensors({"x": tf.ones([3])}).repeat()
    late = tf.data.Dataset.from_tensors(tf.ones([3])).repeat().map(slow)
    loop = TrainingLoop(tf.distribute.get_strategy(), step)
    for dataset, least, most in ((fast, 0.0, 0.2), (late, 0.4, 5.0)):
        iterator = iter(dataset)
        loop.run(iterator, 1, lambda steps: None)  # compiles
        loop.run(iterator, 10, lambda steps: None)
        assert least <= loop.input_seconds <= most


@pytest.mark.parametrize(("waited", "told"), [(0.15, 1), (0.01, 0)])
def test_the_log_tells_of_steps_that_wait_for_input(waited, told, caplog):
    caplog.set_level("INFO", "absl")
    run = MagicMock(strategy=tf.distribute.get_strategy())
    run.settings.hang_minutes = 0.0

    def make(iterator, count, advance):
        sleep(0.2)
        return {"loss": np.ones(count), "learning_rate": np.ones(count)}

    loop = SimpleNamespace(run=make, input_seconds=waited)
    phase = SimpleNamespace(batch_size=3, examples_per_record=1, work=None)
    steps = PhaseSteps(phase, loop, MagicMock(), run, total=None)
    steps.make(4, 5, lambda count: None)  # compiles
    assert "waited" not in caplog.text
    steps.make(5, 9, lambda count: None)
    shares = re.findall(r"Steps 6 to 9 waited for input (\d+)% of the time", caplog.text)
    assert len(shares) == told and all(30 < int(share) <= 75 for share in shares)
