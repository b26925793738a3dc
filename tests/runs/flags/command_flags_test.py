"""How a program reads its command line: flagfiles, long values, values that are not numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Parses each command line of a JSON list in turn, and prints what was printed.
PARSE = """
import contextlib, io, json, sys
import tensorflow as tf
from absl import flags
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings, FineTuningSettings
command_flags.define_flags(FineTuningSettings, DeviceSettings)
sys.argv = ["run_x.py"]
messages = []
for words in json.loads(sys.stdin.read()):
    with contextlib.redirect_stderr(io.StringIO()) as page:
        try:
            command_flags._parse(["run_x.py", "--vocab_file=v", "--output_dir=o", *words])
            messages.append(None)
        except SystemExit as end:
            assert end.code == 1
            messages.append(page.getvalue())
        except BaseException as error:
            messages.append(repr(error))
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
ends = []
for error in (
    tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor" + 999 * "x\\n"),
    tf.errors.ResourceExhaustedError(None, None, "model.ckpt-1; No space left on device"),
    tf.errors.ResourceExhaustedError(None, None, "model.ckpt-2; Disk quota exceeded"),
    MemoryError("Unable to allocate 1.42 PiB"),
):
    def main():
        raise error

    sys.argv = ["run_x.py", "--vocab_file=v", "--output_dir=o"]
    with contextlib.redirect_stderr(io.StringIO()) as page:
        try:
            command_flags.run_program(main)
        except SystemExit as end:
            ends.append((end.code, page.getvalue()))
print(json.dumps({"messages": messages, "ends": ends}))
"""


FILES = {
    "latin.flags": b"--learning_rate=1e-4\n# caf\xe9\n",
    "nul.flags": b"--flagfile=a\0b\n",
    "good.flags": "--learning_rate=1e-4\n# café\n".encode(),
    "nested.flags": b"--flagfile=latin.flags\n",
}
CASES = {
    "good": (["--flagfile=good.flags"], None),
    "latin": (["--flagfile=latin.flags"], "--flagfile must be UTF-8 text: in b'# caf\\xe9', "),
    "nested": (["--flagfile=nested.flags"], "--flagfile must be UTF-8 text: in b'# caf\\xe9', "),
    "missing": (["--flagfile=no.flags"], "--flagfile cannot be read: [Errno 2] No such file or d"),
    "directory": (["--flagfile=."], "--flagfile cannot be read: [Errno 21] Is a directory: '.'"),
    "nul": (["--flagfile=nul.flags"], "--flagfile cannot be read: embedded null byte"),
    "great": (["--train_batch_size=1" + "0" * 90], "must be between 1 and 1048576"),
    "hexadecimal": (
        ["--train_batch_size=0x" + "f" * 5000],
        "must be a whole number of at most 100 characters",
    ),
    "long word": (["--max_seq_length=" + "x" * 10**5], "must be a whole number"),
    "long choice": (["--dtype=" + "x" * 10**5], "value should be one of <float32|bfloat16>"),
    "long name": (["--" + "x" * 10**5], "received a name too long to be any flag's"),
    "stray": (["x" * 10**5], "received the stray words 'xxxxx"),
    "lines": (["--dtype=a\nb"], "value should be one of <float32|bfloat16>"),
    "epochs": (["--num_train_epochs=1e308"], "must be a finite number above 0 and at most 10000"),
    "nan": (["--learning_rate=nan"], "must be a finite number of at least 0"),
    "empty": (["--export_dir="], "run_x.py: --export_dir= must not be empty (--help lists"),
    "several": (
        ["--dtype=float32", "--learning_rate=inf", "--num_cpu_devices=0", f"--tpu={'x' * 9999}"],
        "--learning_rate=inf must be a finite number of at least 0;"
        " --num_cpu_devices=0 must be between 1 and 64 (--help",
    ),
}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flags")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{PARSE}"],
        cwd=folder,
        input=json.dumps([words for words, _ in CASES.values()]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_a_command_line_is_read_or_refused_in_one_line(case, parsed):
    expected = CASES[case][1]
    message = parsed["messages"][list(CASES).index(case)]
    if expected is None:
        assert message is None
        return
    assert expected in message
    assert message.startswith("run_x.py: ")
    assert message.count("\n") == 1 and len(message) <= 500


def test_running_out_of_memory_is_reported_in_one_line(parsed):
    (oom, disk, quota, numpy) = parsed["ends"]
    for (status, message), reason in ((oom, "OOM when allocating"), (numpy, "1.42 PiB")):
        assert status == 1 and message.count("\n") == 1 and len(message) <= 500
        assert "run_x.py: this machine or device ran out of memory ('" in message
        assert reason in message and "lower the batch size" in message
    assert disk == [74, "run_x.py: 'model.ckpt-1; No space left on device'\n"]
    assert quota == [74, "run_x.py: 'model.ckpt-2; Disk quota exceeded'\n"]
