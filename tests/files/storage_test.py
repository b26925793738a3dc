"""Tests of bert_tf.files.storage, and of gs:// paths against a stand-in for Google Cloud Storage.

TensorFlow builds without the plugin tensorflow-io-gcs-filesystem are what the extras install, so
nothing here may need it. What reaches a bucket runs in a process of its own: TensorFlow reads the
variables that lead it to the stand-in, which is on this machine, once.
"""

import importlib.util
import os
import re
import time

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import records, storage
from tests.support import standin_storage
from tests.support.pretraining_runs import run, run_code, write_config, write_records
from tests.support.refusals import refusal, refuses

UNREACHED = {"https_proxy": "http://127.0.0.1:9", "NO_GCE_CHECK": "true"}
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


def test_expand_files_order_duplicates_and_odd_names(tmp_path):
    for name in ("b1", "b2", "a", "part[1].txt", "c,d.txt"):
        (tmp_path / name).write_text("x")

    def expanded(*patterns):
        paths = [f"{tmp_path}/{pattern}" for pattern in patterns]
        found = storage.expand_files(paths, "input_file")
        assert storage.expand_files(",".join(paths), "input_file") == found
        return [os.path.basename(path) for path in found]

    assert expanded("b*", "a", "a") == ["b1", "b2", "a", "a"]
    assert expanded("part[1].txt") == ["part[1].txt"]
    for name in ("e[1].txt", "e1.txt"):  # the pattern matches the other file
        (tmp_path / name).write_text("x")
    assert expanded("e[1].txt") == ["e[1].txt"]
    assert expanded("c?d.txt") == ["c,d.txt"]


def test_expand_files_errors(tmp_path):
    for pattern, message in (
        ("", "--input_file names no file"),
        ("FOLDER/*.txt", r"--input_file: FOLDER/\*.txt matches no file$"),
        ("FOLDER/no", "--input_file: FOLDER/no does not exist$"),
        ("FOLDER/full,FOLDER/no", "FOLDER/no does not exist; commas separate files, so write [?]"),
        ("FOLDER/*", "--input_file: FOLDER/empty is empty"),
        ("FOLDER", "--input_file: FOLDER is a directory"),
        ("nosuch://bucket/x", "--input_file=nosuch://bucket/x: .* not support nosuch://"),
    ):
        (tmp_path / "empty").write_text("")
        (tmp_path / "full").write_text("x")
        pattern, message = (text.replace("FOLDER", str(tmp_path)) for text in (pattern, message))
        refuses(message, storage.expand_files, pattern, "input_file")


def test_google_storage_that_cannot_be_reached(monkeypatch):
    """In a process of its own: a proxy that is not there stands in for a missing network."""
    program = """
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
    for name, value in {**UNREACHED, "GCS_RETRY_CONFIG_MAX_RETRIES": "0"}.items():
        monkeypatch.setenv(name, value)
    output = run_code(program)
    assert "--input_file: cannot look for gs://b/x: All 0 retry attempts failed" in output
    assert "--output_file=gs://b/x cannot be written: All 0 retry attempts failed" in output
    assert output.count("pip install tensorflow-io-gcs-filesystem") == 2
    assert "not reached" not in output


def test_google_storage_without_support(monkeypatch):
    monkeypatch.setattr(tf.io.gfile, "get_registered_schemes", lambda: ["", "file", "ram"])
    message = "=gs://b/x: this TensorFlow does not support gs://.*tensorflow-io-gcs-filesystem"
    refuses("--input_file" + message, storage.expand_files, "gs://b/x", "input_file")
    with (
        pytest.raises(UserError, match="--output_file" + message),
        records.write_files(["gs://b/x"], "output_file"),
    ):
        pass


@pytest.mark.slow
def test_records_are_written_and_read_without_a_plugin(cloud, monkeypatch):
    assert importlib.util.find_spec("tensorflow_io_gcs_filesystem") is None
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    assert run_code(WRITE_AND_READ) == "True [0, 2, 4, 1, 3]\n"
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
    assert "has no position in the input" not in log


@pytest.mark.slow
def test_compiled_steps_are_kept_in_a_bucket(cloud, inputs):
    kept = []
    for name in "ab":
        given = flags(inputs, output_dir=f"gs://bucket/{name}", num_train_steps="2", tpu="pjrt")
        given += ["--num_cpu_devices=1", "--compilation_cache_dir=gs://bucket/steps"]
        run(*given, env={**os.environ, **cloud.environment()})
        kept.append({path for path in cloud.objects if path.startswith("bucket/steps/")})
    assert any(path.endswith("-cache") for path in kept[0]) and kept[0] == kept[1]


def test_a_closed_bucket_is_refused_at_once(cloud, monkeypatch):
    program = """
from bert_tf.files import storage
calls = (storage.expand_files, "input_file"), (storage.make_output_dir, "output_dir")
for refused, flag in calls:
    try:
        refused("gs://closed/x", flag)
    except (OSError, ValueError) as error:
        print(error)
"""
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    output = run_code(program)
    for flag in ("input_file", "output_dir"):
        assert re.search(rf"^--{flag}.*gs://closed/x.*code 403", output, re.MULTILINE)
    assert output.count("credentials (gcloud auth application-default login)") == 2


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


def test_a_text_that_cannot_be_a_path():
    for path, flag, place in (("/b\udce9rt", None, "a path"), ("b\0", "output", "--output")):
        rule = f"{place} must be UTF-8 text without null characters; it is {path!r}"
        assert refusal(storage.check_file_system, path, flag) == rule
    message = "^--export_dir= must not be empty; name a folder$"
    refuses(message, storage.make_output_dir, "", "export_dir")


def test_what_is_near_a_path_that_does_not_exist(tmp_path, monkeypatch):
    (tmp_path / "output" / "mrpc").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for path, message in (
        ("outptu/mrpc", f" in {tmp_path}. Similar names: 'output'"),
        ("output/mprc", f" in {tmp_path}. Similar names: 'output/mrpc'"),
        ("output/none", f" in {tmp_path}"),
        (f"{tmp_path}/OUTPUT", f". Similar names: '{tmp_path}/output'"),
        (f"{tmp_path}/output/none", ""),
        ("gs://output/mprc", ""),
    ):
        assert storage.nearest(path) == message


@pytest.mark.parametrize("name", [b"\xe9.txt", b"a \xff.txt"])
def test_names_that_are_not_utf8(tmp_path, name):
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
        file.write(b"x")
    (tmp_path / "b.csv").write_text("x")
    assert storage.expand_files(f"{tmp_path}/*.csv", "input_file") == [f"{tmp_path}/b.csv"]
    assert repr(os.fsdecode(name)) in storage.contents(str(tmp_path))
    storage.make_output_dir(str(tmp_path))
    message = refusal(storage.expand_files, f"{tmp_path}/*.txt", "input_file")
    shown = repr(os.path.join(os.fsencode(tmp_path), name))
    assert message == (
        f"--input_file: {tmp_path}/*.txt matches {shown}, and TensorFlow reads only files whose"
        " names are UTF-8. Rename that file"
    )
