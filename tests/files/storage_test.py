"""Tests of bert_tf.files.storage, and of gs:// paths against a stand-in for Google Cloud Storage.

TensorFlow builds without the plugin tensorflow-io-gcs-filesystem are what the extras install, so
nothing here may need it. What reaches a bucket runs in a process of its own: TensorFlow reads the
variables that lead it to the stand-in, which is on this machine, once.
"""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import time

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import records, storage
from tests.support import standin_storage
from tests.support.pretraining_runs import ROOT, run, write_config, write_records

NOWHERE = {"https_proxy": "http://127.0.0.1:9", "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token"}
WRITE_AND_READ = """
import tensorflow as tf
from bert_tf.files import record_checks, records, storage

schema = {"ids": records.int64_feature([2])}
paths = ["gs://bucket/data/a.tfrecord", "gs://bucket/data/b.tfrecord"]
with records.write_files(paths, "output_file") as write:
    for i in range(5):
        write(records.serialize({"ids": [i, 7]}, schema))
files = storage.expand_files("gs://bucket/data/*.tfrecord", "input_file")
record_checks.check_files(files, schema, "input_file")
read = [records.parse([record], schema)["ids"][0, 0] for record in tf.data.TFRecordDataset(files)]
print(files == paths, [int(i) for i in read])
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with standin_storage.running(tmp_path_factory.mktemp("storage")) as server:
        server.forbidden.add("closed")
        yield server


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, cloud):
    """A folder with a configuration; the bucket has the records."""
    folder = tmp_path_factory.mktemp("inputs")
    write_config(folder / "bert_config.json")
    path = write_records(folder / "train.tfrecord", 64, 12, 2, seed=0)
    with open(path, "rb") as reader:
        cloud.objects["bucket/train.tfrecord"] = reader.read()
    return folder


def flags(inputs, **changes: str) -> list[str]:
    values = {
        "input_file": "gs://bucket/*.tfrecord",
        "output_dir": "gs://bucket/out",
        "bert_config_file": f"{inputs}/bert_config.json",
        "max_seq_length": "12",
        "max_predictions_per_seq": "2",
        "train_batch_size": "4",
        "num_train_steps": "5",
        **changes,
    }
    return ["--do_train", *(f"--{name}={value}" for name, value in values.items())]


def test_expand_files_order_and_duplicates(tmp_path):
    for name in ("b1", "b2", "a"):
        (tmp_path / name).write_text("x")
    a, b = str(tmp_path / "a"), str(tmp_path / "b*")
    expected = [*tf.io.gfile.glob(b), a, a]
    assert len(expected) == 4
    assert storage.expand_files(f"{b},{a},{a}", "input_file") == expected
    assert storage.expand_files([b, a, a], "input_file") == expected


def test_expand_files_takes_a_name_with_brackets(tmp_path):
    path = tmp_path / "part[1].txt"
    path.write_text("x")
    assert storage.expand_files(str(path), "input_file") == [str(path)]


def test_expand_files_errors(tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "full").write_text("x")
    for pattern, message in (
        ("", "--input_file names no file"),
        (f"{tmp_path}/*.txt", rf"--input_file: {tmp_path}/\*.txt matches no file"),
        (f"{tmp_path}/full,{tmp_path}/no", f"--input_file: {tmp_path}/no does not exist"),
        (f"{tmp_path}/*", f"--input_file: {tmp_path}/empty is empty"),
        (f"{tmp_path}", f"--input_file: {tmp_path} is a directory"),
        ("nosuch://bucket/x", "--input_file=nosuch://bucket/x: .* not support nosuch://"),
    ):
        with pytest.raises(UserError, match=message):
            storage.expand_files(pattern, "input_file")


def test_google_storage_that_cannot_be_reached():
    """In a process of its own: a proxy that is not there stands in for a missing network."""
    program = textwrap.dedent(
        """
        from bert_tf.files import records, storage
        try:
            storage.expand_files("gs://b/x", "input_file")
        except ValueError as error:
            print(error)
        try:
            with records.write_files(["gs://b/x"], "output_file"):
                print("not reached")
        except OSError as error:
            print(error)
        """
    )
    environment = {**os.environ, "https_proxy": "http://127.0.0.1:9", "NO_GCE_CHECK": "true"}
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**environment, "GCS_RETRY_CONFIG_MAX_RETRIES": "0"},
    )
    assert "--input_file: cannot look for gs://b/x: All 0 retry attempts failed" in result.stdout
    assert "--output_file=gs://b/x cannot be written: All 0 retry attempts failed" in result.stdout
    assert result.stdout.count("pip install tensorflow-io-gcs-filesystem") == 2
    assert "not reached" not in result.stdout


def test_google_storage_without_support(monkeypatch):
    monkeypatch.setattr(tf.io.gfile, "get_registered_schemes", lambda: ["", "file", "ram"])
    message = "=gs://b/x: this TensorFlow does not support gs://.*tensorflow-io-gcs-filesystem"
    with pytest.raises(UserError, match="--input_file" + message):
        storage.expand_files("gs://b/x", "input_file")
    with (
        pytest.raises(UserError, match="--output_file" + message),
        records.write_files(["gs://b/x"], "output_file"),
    ):
        pass


@pytest.mark.slow
def test_records_are_written_and_read_without_a_plugin(cloud):
    assert importlib.util.find_spec("tensorflow_io_gcs_filesystem") is None
    done = subprocess.run(
        [sys.executable, "-c", WRITE_AND_READ],
        cwd=ROOT,
        env={**os.environ, **cloud.environment()},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True [0, 2, 4, 1, 3]\n", done.stderr
    written = [path for path in cloud.objects if path.startswith("bucket/data/")]
    assert sorted(written) == ["bucket/data/a.tfrecord", "bucket/data/b.tfrecord"]


@pytest.mark.slow
def test_a_run_in_a_bucket_saves_and_resumes(cloud, inputs):
    environment = {**os.environ, **cloud.environment()}
    log = run(*flags(inputs), env=environment)
    assert "Saved step 5" in log
    assert b"model.ckpt-5" in cloud.objects["bucket/out/checkpoint"]
    log = run(*flags(inputs, num_train_steps="7"), env=environment)
    assert "Resumed from gs://bucket/out/model.ckpt-5" in log
    assert "bucket/out/model.ckpt-7.index" in cloud.objects
    assert "has no place in the input" not in log


@pytest.mark.parametrize("flag", ["input_file", "output_dir"])
def test_a_closed_bucket_is_refused_at_once(cloud, inputs, flag):
    environment = {**os.environ, **cloud.environment()}
    log = run(*flags(inputs, **{flag: "gs://closed/x"}), env=environment, status=1)
    assert re.search(rf"^run_pretraining.py: --{flag}.*gs://closed/x.*code 403", log, re.MULTILINE)
    assert "credentials (gcloud auth application-default login)" in log
    assert "Traceback" not in log and "step 1" not in log


@pytest.mark.slow
def test_storage_that_cannot_be_reached_is_refused_within_seconds(inputs):
    began = time.monotonic()
    changes = {"input_file": f"{inputs}/train.tfrecord", "output_dir": "gs://bucket/out"}
    log = run(*flags(inputs, **changes), env={**os.environ, **NOWHERE}, status=74)
    assert (
        "run_pretraining.py: --output_dir=gs://bucket/out: no response within 15 seconds. Google"
        " Cloud Storage needs network access, credentials" in log
    )
    assert "Traceback" not in log and "step 1" not in log
    assert time.monotonic() - began < 60


def test_an_output_folder_has_a_name():
    with pytest.raises(UserError, match="^--export_dir= must not be empty; name a folder$"):
        storage.make_output_dir("", "export_dir")


def test_how_a_comma_in_a_name_is_written(tmp_path):
    path = tmp_path / "a,b.txt"
    path.write_text("text")
    with pytest.raises(UserError, match="/a does not exist; commas separate files, so write [?] f"):
        storage.expand_files(str(path), "input_file")
    with pytest.raises(UserError, match="/none does not exist$"):
        storage.expand_files(f"{tmp_path}/none", "input_file")
    assert storage.expand_files(f"{tmp_path}/a?b.txt", "input_file") == [str(path)]
