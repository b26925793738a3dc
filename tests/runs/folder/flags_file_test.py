"""Tests of flags.txt, which bert_tf.runs.folder.reporting writes."""

import platform

import absl.flags
import keras
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder import reporting

VERSIONS = (
    f"# Python {platform.python_version()}, bert_tf {bert_tf.__version__},"
    f" tensorflow {tf.__version__}, keras {keras.__version__}, numpy {np.__version__}"
)


def written(folder, step, words, monkeypatch, **changes):
    monkeypatch.setattr(reporting, "_of_program", words)
    settings = TrainingSettings(output_dir="out", do_train=True, hang_minutes=2.5, **changes)
    reporting.write_flags(str(folder), tf.distribute.get_strategy(), settings, step)
    return (folder / "flags.txt").read_text()


def test_each_start_with_other_flags_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "_PACKAGES", reporting._PACKAGES[:4])
    place = "# 1 replicas of CPU, 1 hosts"
    first = written(tmp_path, 0, ["--rate=0.1", "--do_train"], monkeypatch)
    assert first == f"# From step 0:\n{VERSIONS}\n{place}\n--rate=0.1\n--do_train\n"
    assert written(tmp_path, 70, ["--rate=0.1", "--do_train"], monkeypatch) == first
    second = written(tmp_path, 90, ["--rate=0.2", "--do_train"], monkeypatch)
    head = first.replace("--", "# --")
    assert second == f"{head}# From step 90:\n{VERSIONS}\n{place}\n--rate=0.2\n--do_train\n"
    values = absl.flags.FlagValues()
    absl.flags.DEFINE_float("rate", 1.0, "", flag_values=values)
    absl.flags.DEFINE_bool("do_train", False, "", flag_values=values)
    values(["program", f"--flagfile={tmp_path}/flags.txt"])
    assert (values.rate, values.do_train) == (0.2, True)


def test_a_run_from_python_notes_its_settings(tmp_path, monkeypatch):
    lines = written(tmp_path, 0, [], monkeypatch).splitlines()
    assert {"--output_dir=out", "--hang_minutes=2.5", "--do_train=True"} <= {*lines}
    assert "# --clip_norm=1.0" in lines and "None" not in "".join(lines)
    # So does a run of a program into another folder, such as a fold of a cross-validation.
    (tmp_path / "fold-1").mkdir()
    words = ["--output_dir=parent", "--folds=3"]
    assert written(tmp_path / "fold-1", 0, words, monkeypatch).splitlines() == lines
