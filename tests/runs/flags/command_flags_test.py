"""How a program reads its command line: flagfiles, long values, values that are not numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forked_programs

ROOT = Path(__file__).parents[3]
# Parses each command line of a JSON list in turn, and prints what was printed.
PARSE = """
import contextlib, io, json, os, signal, sys, time
import tensorflow as tf
from absl import flags
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings
from bert_tf.runs.flags.settings import FineTuningFiles, FineTuningOptions
command_flags.define_flags(FineTuningFiles, FineTuningOptions, DeviceSettings)
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
    tf.errors.UnknownError(
        None, None, "{{function_node __wrapped__X}} a/b; Input/output error [Op:X] name: "
    ),
    tf.errors.PermissionDeniedError(
        None, None, "{{function_node __wrapped__X}} " + "long/" * 90 + "; Read-only file system"
    ),
    MemoryError("Unable to allocate 1.42 PiB"),
    tf.errors.UnimplementedError(None, None, "File system scheme 's3' not implemented (file: 'x')"),
    tf.errors.UnavailableError(None, None, "Error executing an HTTP request: response code 503"),
):
    def main():
        raise error

    sys.argv = ["run_x.py", "--vocab_file=v", "--output_dir=o"]
    with contextlib.redirect_stderr(io.StringIO()) as page:
        try:
            command_flags.run_program(main)
        except SystemExit as end:
            ends.append((end.code, page.getvalue()))
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
interrupted = []
for number in (signal.SIGTERM, signal.SIGINT):
    def main():
        try:
            os.kill(os.getpid(), number)
            time.sleep(9)
        except KeyboardInterrupt as error:  # as TensorFlow does, where it calls Python
            raise RuntimeError("Terminated: At:" + 64 * "\\n  line") from error

    with contextlib.redirect_stderr(io.StringIO()) as page:
        try:
            command_flags.run_program(main)
        except SystemExit as end:
            interrupted.append((end.code, page.getvalue()))
warned = []
command_flags.logging.warning = lambda text, *values: warned.append(text % values)
for words in (["--tpu_name", "", "--freeze_layers=", "--init_checkpoint="], ["--dtype=float32"]):
    sys.argv = ["run_x.py", "--vocab_file=v", "--output_dir=o", *words]
    with contextlib.suppress(SystemExit):
        command_flags.run_program(lambda: None)
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
results = {"messages": messages, "ends": ends, "interrupted": interrupted, "warned": warned}
print(json.dumps(results))
"""


FILES = {
    "latin.flags": b"--learning_rate=1e-4\n# caf\xe9\n",
    "good.flags": "--learning_rate=1e-4\n# café\n".encode(),
}
CASES = {
    "good": (["--flagfile=good.flags"], None),
    "latin": (["--flagfile=latin.flags"], "a file of --flagfile must be UTF-8 text: 'utf-8' codec"),
    "missing": (["--flagfile=no.flags"], "--flagfile cannot be read: [Errno 2] No such file or d"),
    "great": (["--train_batch_size=1" + "0" * 90], "must be between 1 and 1048576"),
    "long word": (["--max_seq_length=" + "x" * 10**5], "must be a whole number"),
    "long choice": (["--dtype=" + "x" * 10**5], "value should be one of <float32|bfloat16>"),
    "stray": (["x" * 10**5], "received the stray words 'xxxxx"),
    "lines": (["--dtype=a\nb"], "value should be one of <float32|bfloat16>"),
    "epochs": (["--num_train_epochs=1e308"], "must be a finite number above 0 and at most 10000"),
    "float32": (
        ["--weight_decay_rate=3e38"],
        "--weight_decay_rate=3e+38 must be a finite number of at least 0, also in float32: 0, or"
        " from 1.2e-38 to 8.5e+37",
    ),
    "1 in float32": (
        ["--beta_1=0.99999999999"],
        "--beta_1=0.99999999999 must be a finite number of at least 0 and below 1, also in"
        " float32, where it is 1",
    ),
    "not below": (["--beta_2=1"], "--beta_2=1.0 must be a finite number of at least 0 and below 1"),
    "nan": (["--learning_rate=nan"], "must be a finite number of at least 0"),
    "no number": (["--learning_rate=fast"], "run_x.py: --learning_rate=fast must be a number (--h"),
    "empty": (["--export_dir="], "run_x.py: --export_dir= must not be empty (--help lists"),
    "stray words amid flags": (
        ["--do_train", "True", "--export_dir=x", "and", "--", "--bert"],
        "flags are written --name=value (--noname for a false one); received the stray words"
        " 'True', 'and', '--bert': write --do_train=True (--help",
    ),
    "no boolean": (["--do_train=maybe"], "run_x.py: --do_train=maybe must be true or false (--he"),
    "no recipe": (
        ["--flagfile=flags/no.flags"],
        "'flags/no.flags'. Run in the root of a checkout, or, after `python -m"
        " bert_tf.tools.copy_flags`, in the folder of its flags/ (--help",
    ),
    "unknown": (
        ["--learning_rat=1"],
        "run_x.py: Unknown command line flag 'learning_rat'. Did you mean: learning_rate",
    ),
    "allowed": (["--alpha=1", "--undefok=alpha,beta", "--beta", "--nobeta"], None),
    "no value": (["--init_checkpoint"], "Missing value for flag --init_checkpoint"),
    "a value for --no": (["--nodo_train=1"], "--nodo_train=1 does not take an argument (--help"),
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


def test_all_missing_flags_are_named():
    """Without the flags that the other tests give."""
    status, printed = forked_programs.run([sys.executable, "run_pretraining.py", "--do_train"])
    assert (status, printed) == (
        1,
        "run_pretraining.py: --output_dir, --input_file must be given (--help lists the flags)\n",
    )


@pytest.mark.parametrize("words", [["--help"], ["--helpfull"], []])
def test_what_cannot_be_written(words):
    """A page of help, or results: less than a buffer holds."""
    code = f"""
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
from bert_tf.runs.flags import command_flags
sys.argv = ["run_y.py", *{words!r}]
command_flags.run_program(lambda: print("0.92"))
"""
    status, printed = forked_programs.run([sys.executable, "-c", code])
    assert status == 74 and printed.startswith("run_y.py: ")
    assert printed.endswith("No space left on device\n") and printed.count("\n") == 1
    assert not words or "the standard output cannot be written: " in printed


def test_running_out_of_memory_is_reported_in_one_line(parsed):
    (oom, disk, quota, broken, read_only, numpy, scheme, bucket) = parsed["ends"]
    for (status, message), reason in ((oom, "OOM when allocating"), (numpy, "1.42 PiB")):
        assert status == 1 and message.count("\n") == 1 and len(message) <= 500
        assert "run_x.py: this machine or device ran out of memory ('" in message
        assert reason in message and "lower the batch size" in message
    assert disk == [74, "run_x.py: 'model.ckpt-1; No space left on device'\n"]
    assert quota == [74, "run_x.py: 'model.ckpt-2; Disk quota exceeded'\n"]
    assert broken == [74, "run_x.py: 'a/b; Input/output error'\n"]
    assert scheme[0] == 1 and "'s3' not implemented" in scheme[1]
    assert scheme[1].endswith("; use files on this machine or in gs://\n")
    assert bucket == [74, "run_x.py: 'Error executing an HTTP request: response code 503'\n"]
    assert read_only[0] == 74 and read_only[1].endswith("g/; Read-only file system'\n")


def test_a_flag_without_a_value_is_warned_of(parsed):
    """A variable of the shell that is not set. The default of --freeze_layers is empty."""
    remedy = "has no value. Leave it out, or set the shell variable that it comes from"
    assert parsed["warned"] == [f"--{name}= {remedy}" for name in ("init_checkpoint", "tpu_name")]


def test_an_interrupt_that_became_another_error_is_one(parsed):
    assert parsed["interrupted"] == [[75, ""], [130, ""]]
