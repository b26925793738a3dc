"""Records made with Apache Beam: the shards of create_pretraining_data, for any workers."""
# ruff: noqa: E402 - what is imported last imports Beam

import json
import os
import re
import sys

import pytest
import tensorflow as tf

for package in ("apache_beam", "dask.distributed"):
    pytest.importorskip(package, reason="needs Beam and Dask, of the extra `ci`")

from apache_beam.runners.portability.fn_api_runner.fn_runner import RunnerResult
from dask.distributed import LocalCluster

from bert_tf.errors import UserError
from bert_tf.tasks.pretraining import records
from bert_tf.tasks.pretraining.records import beam_shards
from bert_tf.tasks.pretraining.records.beam_shards import create_shards_with_beam, pipeline_options
from bert_tf.tasks.pretraining.records.shards import create_shards
from tests.support.pretraining_runs import ROOT, command, run
from tests.support.refusals import refuses
from tests.support.text_in_shards import contents, flags, kill_at_shards, settings, write_text
from tools import create_pretraining_data_beam as tool

DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"


@pytest.fixture
def text(tmp_path):
    """The folder of the text: plain, and JSON lines with three empty documents of eight."""
    folder = write_text(tmp_path)
    rows = ["The moon.", " ", "", "A river. The bread!", "\x07", "walks", "see. seen", "stone"]
    (folder / "c").mkdir()
    (folder / "c" / "z.jsonl").write_text("".join(json.dumps({"text": x}) + "\n" for x in rows))
    return folder


def settings_of(text, output, **more):
    """Returns settings for all of the text."""
    return settings(text, output, **{"input_file": f"{text}/*/*", **more})


def make(text, output, *words: str, **more) -> dict[str, bytes]:
    """Makes shards with Beam in this process and returns all files."""
    create_shards_with_beam(settings_of(text, output, **more), pipeline_options(words))
    return contents(output)


def test_shards_are_those_of_the_program(text, tmp_path):
    create_shards(settings_of(text, tmp_path / "expected"))
    expected = contents(tmp_path / "expected")
    assert len(expected) == 11
    assert make(text, tmp_path / "out") == expected
    # Shards that are there are kept, in whichever way they were made.
    kept, lost = (tmp_path / "expected" / f"r-0000{i}-of-00005.tfrecord" for i in (1, 4))
    lost.unlink()
    os.utime(kept, (1, 1))
    assert make(text, tmp_path / "expected") == expected
    assert kept.stat().st_mtime == 1
    with pytest.raises(UserError, match="begun with --dupe_factor=2, but --dupe_factor is now 3"):
        make(text, tmp_path / "expected", dupe_factor=3)


def test_heldout_documents_are_those_of_the_program(text, tmp_path, caplog):
    (text / "d").mkdir()
    (text / "d" / "copies.txt").write_text((text / "a" / "x.txt").read_text().upper())
    caplog.set_level("INFO", "absl")
    options = {"heldout_fraction": 0.2, "split_sentences": True}
    expected, out = tmp_path / "expected", tmp_path / "out"
    create_shards(settings_of(text, expected, **options, heldout_output_file=f"{expected}/heldout"))
    found = make(text, out, **options, heldout_output_file=f"{out}/heldout")
    assert {"heldout", "heldout.json"} < found.keys()
    assert found == contents(expected)
    # 17 copies, and of the JSON lines those that only have tokens count as documents.
    told = [line for line in caplog.messages if "repeat an" in line]
    assert len(told) == 2 and all(line.startswith("17 of ") for line in told)


def no_metrics(self):
    """Lets Beam's runner have no counters, like Dask's."""
    raise NotImplementedError


@pytest.mark.parametrize("counters", [True, False])
def test_few_real_pairs_are_warned_of(text, tmp_path, warnings, monkeypatch, counters):
    if not counters:
        monkeypatch.setattr(RunnerResult, "metrics", no_metrics)
    (text / "a" / "x.txt").write_text("river bread\n\n" * 21)
    make(text, tmp_path / "out", input_file=f"{text}/a/x.txt")
    message = "only 0 of 42 pairs (0.0%) are real, the second text following the f"
    assert warnings[-1].startswith(message)


def test_the_counts_of_shards_do_not_need_counters(text, tmp_path, caplog, warnings, monkeypatch):
    monkeypatch.setattr(RunnerResult, "metrics", no_metrics)
    caplog.set_level("INFO", "absl")
    made = make(text, tmp_path / "out")
    manifests = [json.loads(made[name]) for name in made if re.search(r"-\d{5}\.json$", name)]
    assert len(manifests) == 5
    sums = [sum(x[name] for x in manifests) for name in ("tokens", "instances", "real_pairs")]
    assert f"tokens: {sums[0]:,}, instances: {sums[1]:,}" in caplog.messages
    assert sums[2] > 0 and not any("are real" in message for message in warnings)


def test_errors_of_workers_are_one_line(text, tmp_path):
    many = {"num_shards": 41, "input_file": f"{text}/*/*.txt"}
    message = r"--num_shards=41 leaves shard \d+ without a document: .* 40 documents"
    refuses(message, make, text, tmp_path / "many", **many)
    with pytest.MonkeyPatch.context() as patch:  # nobody knows how many documents there are
        patch.setattr(RunnerResult, "metrics", no_metrics)
        with pytest.raises(UserError, match="without a document: the text has too few documents, "):
            make(text, tmp_path / "many", **many)
    (text / "b" / "y.txt").write_bytes(b"river\n\xff\n")
    with pytest.raises(UserError) as info:
        make(text, tmp_path / "out")
    assert re.fullmatch(
        r"--input_file: .*/b/y.txt, line 2, is not UTF-8 \(.*\); decompress the file, or convert.*",
        str(info.value),
    )
    assert [*contents(tmp_path / "out")] == ["r-shards.json"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--runner=DirectRunner", "--runer=x"], "'--runer=x' is neither a flag of this program"),
        (["DirectRunner"], "'DirectRunner' is neither a flag of this program"),
        (["--direct_num_workers=x"], "Beam's options: argument --direct_num_workers: invalid int"),
        (["--direct_running_mode=y"], "Beam's options: .* invalid choice: 'y'"),
        (["--direct_num_workers=-3"], "--direct_num_workers=-3 must be at least 0"),
    ],
)
def test_flags_that_nobody_knows_are_named(words, message):
    refuses(message, tool.main, words)


@pytest.mark.parametrize(
    "place, name, error",
    [
        (beam_shards.beam, "Pipeline", ValueError("Missing required option: project.")),
        (beam_shards.beam.Pipeline, "run", NotImplementedError("specify a --job_endpoint")),
    ],
)
def test_options_that_a_runner_lacks(text, tmp_path, monkeypatch, place, name, error):
    def refuse(*arguments):
        raise error

    monkeypatch.setattr(place, name, refuse)
    message = f"^Beam's options for --runner=DirectRunner: {re.escape(str(error))}$"
    refuses(message, make, text, tmp_path / "out")


def test_options_that_the_pipeline_needs():
    options = pipeline_options(["--num_workers=3"]).get_all_options()
    assert options["num_workers"] == 3
    assert options["save_main_session"] is False
    assert options["number_of_worker_harness_threads"] == 1
    options = pipeline_options(["--number_of_worker_harness_threads=2"]).get_all_options()
    assert options["number_of_worker_harness_threads"] == 2


def test_without_beam(monkeypatch):
    for name in ("apache_beam", beam_shards.__name__):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(records, "beam_shards")
    refuses("needs apache-beam; run `pip install apache-beam`, or", tool.main, [])


PROGRAM = {"program": "tools.create_pretraining_data_beam", "cwd": ROOT}
PROGRAM |= {"env": {**os.environ, "PYTHONPATH": ROOT}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, objective",
    [
        (["--runner", "DirectRunner"], "mlm_nsp"),  # values may be words of their own
        (["--direct_running_mode=multi_processing", "--direct_num_workers=1"], "mlm_nsp"),
        (["--direct_running_mode=multi_processing", "--direct_num_workers=7"], "electra"),
    ],
)
def test_program(text, tmp_path, options, objective):
    """Beam's options come first; the killed runs below have two workers, for five shards."""
    made = {"objective": objective, "dupe_factor": 1}
    create_shards(settings_of(text, tmp_path / "expected", **made))
    words = [*flags(settings_of(text, tmp_path / "out", **made)), f"--objective={objective}"]
    log = run(*options, *words, **PROGRAM)
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    files = [str(path) for path in tmp_path.glob("out/*.tfrecord")]
    instances = sum(1 for _ in tf.data.TFRecordDataset(files))
    assert "0 of 5 shards already exist" in log
    line = rf"documents: 48, empty_documents: 3, tokens: ([\d,]+), instances: {instances}$"
    assert re.search(line, log, re.MULTILINE), log


@pytest.mark.slow
def test_dask_makes_the_same(text, tmp_path, monkeypatch):
    create_shards(settings_of(text, tmp_path / "expected"))
    monkeypatch.setenv("PYTHONPATH", ROOT)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        options = [f"--runner={DASK}", f"--dask_client_address={cluster.scheduler_address}"]
        options += ["--dask_npartitions=3", *flags(settings_of(text, tmp_path / "out"))]
        run(*options, **PROGRAM)
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


@pytest.mark.slow
def test_kills_change_nothing(text, tmp_path):
    output = tmp_path / "out"
    words = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    words += flags(settings_of(text, output, dupe_factor=500))
    kill_at_shards(command(*words, program=PROGRAM["program"]), output, PROGRAM["env"])
    run(*words, **PROGRAM)
    create_shards(settings_of(text, tmp_path / "alone", dupe_factor=500))
    assert contents(output) == contents(tmp_path / "alone")
