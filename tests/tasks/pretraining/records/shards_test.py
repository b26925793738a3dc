"""Shards of pre-training records: their processes, and the temporary file."""

import hashlib
import json
import os
import random
import signal

import pytest

from bert_tf.engine import interrupts
from bert_tf.errors import UserError
from bert_tf.tasks.pretraining.records import shards, shuffling
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.shards import create_shards
from tests.support import text_in_shards
from tests.support.byte_pair_files import word_merges, write_vocabulary
from tests.support.pretraining_runs import command, run
from tests.support.refusals import refusal, refuses
from tests.support.text_in_shards import TEXTS, contents, corpus, flags, settings


@pytest.fixture
def text(tmp_path):
    """The folder of the text."""
    return text_in_shards.write_text(tmp_path)


def number(*parts: object) -> int:
    text = "\t".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def test_each_shard_is_what_the_exact_program_makes_of_its_documents(text, tmp_path):
    create_shards(settings(text, tmp_path / "out"))
    found = contents(tmp_path / "out")
    names = {f"r-{i:05}-of-00005.tfrecord" for i in range(5)}
    manifests = {f"r-shards-{i:05}.json" for i in range(5)}
    assert found.keys() == names | manifests | {"r-shards.json"}
    assert sum(json.loads(found[name])["documents"] for name in manifests) == 40
    shards = {}
    for name, numbers in TEXTS.items():
        for i, document in enumerate(corpus(*numbers).split("\n\n \n")):
            value = number("document", 77, name, i)
            shards.setdefault(value % 5, []).append((value, document))
    assert sorted(shards) == [*range(5)]
    for shard, documents in shards.items():
        expected = tmp_path / f"text_{shard}.txt"
        expected.write_text("\n\n".join(document for _, document in sorted(documents)))
        values = {"input_file": str(expected), "output_file": f"{tmp_path}/expected"}
        values |= {"num_shards": None, "random_seed": number("shard", 77, shard) >> 33}
        values = {**vars(settings(text, tmp_path / "out")), **values}
        create_pretraining_data(PretrainingDataSettings(**values))
        assert (tmp_path / "expected").read_bytes() == found[f"r-{shard:05}-of-00005.tfrecord"]


def test_any_number_of_workers_in_any_order_writes_the_same(text, tmp_path, monkeypatch):
    create_shards(settings(text, tmp_path / "1"))
    monkeypatch.setattr(shards, "run_workers", lambda function, each: [*map(function, each)])
    create_shards(settings(text, tmp_path / "out", num_workers=3))  # of one machine
    assert contents(tmp_path / "out") == contents(tmp_path / "1")
    for count in (2, 3, 7):
        for i in reversed(range(count)):
            create_shards(settings(text, tmp_path / str(count), num_workers=count, worker_index=i))
        assert contents(tmp_path / str(count)) == contents(tmp_path / "1")


def test_shards_that_are_there_are_kept(text, tmp_path):
    create_shards(settings(text, tmp_path / "out"))
    expected = contents(tmp_path / "out")
    kept, lost = (tmp_path / "out" / f"r-0000{i}-of-00005.tfrecord" for i in (2, 3))
    lost.unlink()
    os.utime(kept, (1, 1))
    # The text may lie in another folder, and may be named in another way.
    text = text.rename(tmp_path / "moved")
    create_shards(settings(text, tmp_path / "out"))
    assert contents(tmp_path / "out") == expected
    assert kept.stat().st_mtime == 1


def test_shards_of_another_run_are_not_mixed_with(text, tmp_path):
    output = tmp_path / "out"
    create_shards(settings(text, output))
    expected = contents(output)
    for more, message in (
        (
            {"max_seq_length": 25},
            "begun with --max_seq_length=24, but --max_seq_length is now 25. C",
        ),
        ({"num_shards": 6}, "with --num_shards=5, but --num_shards is now 6"),
        (
            {"do_whole_word_mask": True},
            "with --do_whole_word_mask=False, but --do_whole_word_mask is now True",
        ),
    ):
        refuses(message, create_shards, settings(text, output, **more))
    with open(text / "b" / "y.txt", "a") as file:
        file.write("\nthe moon")
    with pytest.raises(
        UserError, match="with --input_file='3 files, .*, but --input_file is now '3 f"
    ):
        create_shards(settings(text, output))
    (text / "b" / "y.txt").write_text(corpus(*TEXTS["b/y.txt"]))
    with open(tmp_path / "vocab.txt", "a") as file:
        file.write("moons\n")
    refuses("with --vocab_file='sha256 ", create_shards, settings(text, output))
    assert contents(output) == expected


def test_settings_of_a_run_without_a_shard_are_one_file_to_delete(text, tmp_path):
    output = tmp_path / "out"
    (text / "b" / "y.txt").write_bytes(b"river\n\xff\n")
    refuses("y.txt, line 2, is not UTF-8", create_shards, settings(text, output))
    (text / "b" / "y.txt").write_text(corpus(*TEXTS["b/y.txt"]))
    message = refusal(create_shards, settings(text, output))
    assert message.startswith(f"{output}/r-shards.json: these shards were begun with --input_file=")
    assert message.endswith("or delete this file and any shards next to it")
    (output / "r-shards.json").unlink()
    create_shards(settings(text, output))
    assert len(contents(output)) == 11


def test_both_files_of_a_byte_level_bpe_are_compared(text, tmp_path):
    more = {"vocab_file": write_vocabulary(tmp_path, word_merges(["bread", "the"]))}
    more |= {"do_lower_case": False, "objective": "mlm"}
    output = tmp_path / "out"
    create_shards(settings(text, output, **more))
    expected = contents(output)
    create_shards(settings(text, output, **more))
    merges = (tmp_path / "merges.txt").read_text().splitlines()
    (tmp_path / "merges.txt").write_text("\n".join(merges[:-1]) + "\n")
    with pytest.raises(
        UserError, match="with --vocab_file='sha256 .*, but --vocab_file is now 'sha256"
    ):
        create_shards(settings(text, output, **more))
    assert contents(output) == expected


@pytest.mark.parametrize(
    "more, message",
    [
        ({"num_workers": 3, "worker_index": 3}, "--worker_index=3 must be below --num_workers"),
        ({"output_file": "a,b"}, "--output_file=a,b must be one name with --num_shards"),
        ({"num_shards": 0}, "--num_shards=0 must be between 1 and 99999"),
        (
            {"num_shards": 41},
            r"--num_shards=41 leaves shard \d+ without a document: .* 40 documents",
        ),
    ],
)
def test_flags_that_do_not_fit(text, tmp_path, more, message):
    values = {**vars(settings(text, tmp_path / "out")), **more}
    with pytest.raises(UserError, match=message):
        create_shards(PretrainingDataSettings(**values))
    assert not contents(tmp_path / "out")  # a command with fewer shards is not refused


def test_keys_are_the_same_in_another_folder():
    names = ["/data/text/en/x.txt", "/data/text/enough.txt"]
    assert [*shards.file_keys(names).values()] == ["en/x.txt", "enough.txt"]
    assert shards.file_keys(["x.txt"]) == {"x.txt": "x.txt"}
    assert shards.file_keys(["gs://b/t/x"]) == {"gs://b/t/x": "x"}
    assert shards.file_keys(["/x", "/y/z"]) == {"/x": "x", "/y/z": "y/z"}


def test_the_end_of_a_file_ends_a_document():
    batches = [("x", ["a", "b"]), ("x", ["c", "", ""]), ("x", ["d"]), ("y", ["", "e"])]
    assert [*shards.split_documents(batches)] == [
        ("x\t0", ["a", "b", "c"]),
        ("x\t1", ["d"]),
        ("y\t0", ["e"]),
    ]


PROGRAM = "create_pretraining_data.py"


@pytest.mark.slow
def test_processes_of_one_machine(text, tmp_path):
    create_shards(settings(text, tmp_path / "1"))
    output = tmp_path / "out"
    words = [*flags(settings(text, output)), "--num_workers=2"]
    log = run(*words, program=PROGRAM, cwd=tmp_path)
    assert contents(output) == contents(tmp_path / "1")
    for line in ("Worker 0 of 2: 0 of its 3 shards already exist", "Worker 1 of 2: 0 of its 2"):
        assert line in log
    assert "before flag parsing" not in log
    for path in output.iterdir():
        path.unlink()
    (text / "b" / "y.txt").write_bytes(b"river\n\xff\n")
    log = run(*words, program=PROGRAM, status=1, cwd=tmp_path)
    assert "Traceback" not in log and "y.txt, line 2, is not UTF-8" in log.splitlines()[-1]
    assert [*contents(output)] == ["r-shards.json"]


@pytest.mark.slow
def test_kills_change_nothing(text, tmp_path):
    output = tmp_path / "out"
    words = [*flags(settings(text, output, dupe_factor=500)), "--num_workers=2"]
    text_in_shards.kill_at_shards(command(*words, program=PROGRAM), output)
    run(*words, program=PROGRAM)
    create_shards(settings(text, tmp_path / "alone", dupe_factor=500))
    assert contents(output) == contents(tmp_path / "alone")


@pytest.mark.parametrize("status", [9, 3])
def test_a_worker_that_ends_by_itself_is_worth_another_try(status):
    message = refusal(shards.run_workers, os._exit, [status], kind=OSError)
    assert message == f"worker 0 ended with status {status}; start the same command again"


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_worker_that_is_stopped_while_it_tells_of_an_error_ends_quietly(
    monkeypatch, number, status
):
    """Another worker failed first, and `run_workers` terminates this one."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(shards, "logging", _Quiet())
    told = []

    class Errors:
        def put(self, error):
            told.append(error)
            os.kill(os.getpid(), number)

    def fail(argument):
        raise OSError(f"{argument} cannot be written")

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(SystemExit) as end:
            shards._call(fail, "a", Errors())
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert end.value.code == status and str(told[0]) == "a cannot be written"
    assert interrupts.held() is None


class _Quiet:
    INFO = 0

    def use_absl_handler(self):
        """Leaves the test's own handler."""

    def set_verbosity(self, level):
        """Leaves the test's own level."""


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11])
def test_records_are_read_in_the_order_of_a_shuffled_list(count, monkeypatch, tmp_path):
    """With some records at once, as many as fit or a few more or fewer."""
    monkeypatch.setattr(shuffling, "_RECORDS_AT_ONCE", 4)
    expected = [bytes([i]) * (i * 37 % 50) for i in range(count)]
    with shuffling.SpillFile(None, str(tmp_path / "out")) as spill:
        for i, record in enumerate(expected):
            spill.add(record, i)
        assert list(spill.in_order()) == expected
        spill.shuffle(random.Random(1))
        order = list(range(count))
        random.Random(1).shuffle(order)
        assert list(spill.in_order()) == [expected[i] for i in order]
        assert spill.num_tokens().tolist() == order
    assert list(tmp_path.iterdir()) == []
