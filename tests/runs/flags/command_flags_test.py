"""How a program reads its command line: flagfiles, long values, values that are not numbers."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from bert_tf.runs.flags import command_line
from tests.support import forked_programs
from tests.support.refusals import refusal

ROOT = Path(__file__).parents[3]
# Parses each command line of a JSON list in turn, and prints what was printed.
PARSE = """
import contextlib, io, json, os, signal, sys, time
import tensorflow as tf
from absl import flags
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.device_settings import DeviceSettings
from bert_tf.runs.flags.settings import FineTuningSettings
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
    "nul.flags": b"--flagfile=a\0b\n",
    "value.flags": b"--init_checkpoint=a\0b\n",
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
    "long name": (["--" + "x" * 10**5], "xxx': a name too long to be any flag's (--help"),
    "stray": (["x" * 10**5], "received the stray words 'xxxxx"),
    "lines": (["--dtype=a\nb"], "value should be one of <float32|bfloat16>"),
    "epochs": (["--num_train_epochs=1e308"], "must be a finite number above 0 and at most 10000"),
    "float32": (
        ["--epsilon=1e308", "--clip_norm=1e-50", "--weight_decay_rate=3e38", "--beta_1=-0.0"],
        "--weight_decay_rate=3e+38 must be a finite number of at least 0, also in float32: 0, or"
        " from 1.2e-38 to 8.5e+37; --",
    ),
    "1 in float32": (
        ["--beta_1=0.99999999999", "--beta_2=0.99999998"],
        "--beta_1=0.99999999999 must be a finite number of at least 0 and below 1, also in"
        " float32, where it is 1; --beta_2=0.99999998 must be",
    ),
    "not below": (["--beta_2=1"], "--beta_2=1.0 must be a finite number of at least 0 and below 1"),
    "nan": (["--learning_rate=nan"], "must be a finite number of at least 0"),
    "empty": (["--export_dir="], "run_x.py: --export_dir= must not be empty (--help lists"),
    "stray words amid flags": (
        ["--do_train", "True", "--export_dir=x", "and", "--", "--bert"],
        "flags are written --name=value (--noname for a false one); received the stray words"
        " 'True', 'and', '--bert' (--help",
    ),
    "unknown": (
        ["--learning_rat=1", "--weight_decay", "0.1", "--nodo_trian", "--qqqqqq", "-num_epochs=2"],
        "run_x.py: Unknown command line flag 'learning_rat' (did you mean --learning_rate?);"
        " Unknown command line flag 'weight_decay' (did you mean --weight_decay_rate?); Unknown"
        " command line flag 'nodo_trian' (did you mean --nodo_train or --do_train?); Unknown"
        " command line flag 'qqqqqq'; Unknown command line flag 'num_epochs' (did you mean"
        " --num_train_epochs?) (--help",
    ),
    "allowed": (["--alpha=1", "--undefok=alpha,beta", "--beta", "2", "--nobeta"], None),
    "not allowed": (
        ["--undefok=alpha", "--alpha=1", "--qqqqqq=3"],
        "run_x.py: Unknown command line flag 'qqqqqq' (--help",
    ),
    "beginning of a name": (["--export=x"], "flag 'export' (did you mean --export_dir?) (--help"),
    "no value": (["--init_checkpoint"], "--init_checkpoint has no value; write --init_checkpoint="),
    "a value for --no": (["--nodo_train=1"], "--nodo_train takes no value; received '1' (--help"),
    "all kinds at once": (
        ["--vocab_fil=x", "--learning_rate=fast", "go", "--num_cpu_devices=99", "--noexport_dir"],
        "run_x.py: Unknown command line flag 'vocab_fil' (did you mean --vocab_file?);"
        " --learning_rate=fast must be a number; Unknown command line flag 'noexport_dir' (did you"
        " mean --export_dir?); flags"
        " are written --name=value (--noname for a false one); received the stray words 'go';"
        " --num_cpu_devices=99 must be between 1 and 64 (--help lists the flags)",
    ),
    "no UTF-8": (
        ["--init_checkpoint=a\udcff", "--vocab_file", "\udce9t\udce9", "--x\udcff=1", "y\udcff"],
        "run_x.py: --init_checkpoint must be UTF-8 text; received 'a\\udcff'; --vocab_file must be"
        " UTF-8 text; received '\\udce9t\\udce9'; Unknown command line flag 'x\\udcff'; flags are"
        " written --name=value (--noname for a false one); received the stray words"
        " 'y\\udcff' (--help",
    ),
    "NUL": (
        ["--flagfile=value.flags"],
        "--init_checkpoint must not have a NUL; received 'a\\x00b' (--help lists",
    ),
    "empty, required": (["--vocab_file="], "--vocab_file= must not be empty (--help lists"),
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


@pytest.mark.parametrize("words", [["run\udcff"], ["a", "--", "\udce9t\udce9", "--b"], ["\0"]])
def test_words_that_are_no_paths(monkeypatch, words):
    """Tools such as goodput take folders as words."""
    monkeypatch.setattr(command_line.flags, "FLAGS", flags.FlagValues())
    message = refusal(command_line.parse, words, True, kind=command_line.CommandLineError)
    start, _, received = message.partition("; received ")
    assert start == "words must be UTF-8 text without a NUL"
    assert ast.literal_eval(received) in words


def test_missing_flags_and_stray_words_are_reported_together():
    """Without the flags that the other tests give."""
    words = ["run_pretraining.py", "--do_train", "True", "--num_train_step=4"]
    status, printed = forked_programs.run([sys.executable, *words])
    assert (status, printed) == (
        1,
        "run_pretraining.py: Unknown command line flag 'num_train_step' (did you mean"
        " --num_train_steps?); flags are written --name=value (--noname for a false one); received"
        " the stray words 'True'; --output_dir, --input_file, --bert_config_file must be given"
        " (--help lists the flags)\n",
    )


@pytest.mark.parametrize("flag", ["--help", "--helpfull"])
def test_help_that_cannot_be_written(flag):
    code = f"""
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
from bert_tf.runs.flags import command_flags
sys.argv = ["run_y.py", {flag!r}]
command_flags.run_program(lambda: None)
"""
    status, printed = forked_programs.run([sys.executable, "-c", code])
    message = "run_y.py: the standard output cannot be written: No space left on device\n"
    assert (status, printed) == (74, message)


def test_results_that_cannot_be_written():
    """A program that prints less than a buffer holds."""
    code = """
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
from bert_tf.runs.flags import command_flags
sys.argv = ["run_z.py"]
command_flags.run_program(lambda: print("0.92"))
"""
    status, printed = forked_programs.run([sys.executable, "-c", code])
    assert status == 74 and printed.startswith("run_z.py: ")
    assert printed.endswith("No space left on device\n") and printed.count("\n") == 1


def test_help_without_docstrings():
    """As `python -OO` starts a program."""
    code = """
import sys
from bert_tf.runs.flags import command_flags
main = type(sys)("__main__")
main.__file__ = sys.argv[1]
sys.modules["__main__"] = main
print(command_flags._docstring(), end="")
"""
    for name in ("run_squad", "tools/copy_flags"):
        path = ROOT / f"{name}.py"
        status, printed = forked_programs.run([sys.executable, "-c", code, str(path)])
        assert status == 0 and path.read_text().split('"""')[1] == printed


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
    remedy = "has no value. Leave it out, or set the variable of the shell that it comes from"
    assert parsed["warned"] == [f"--{name}= {remedy}" for name in ("init_checkpoint", "tpu_name")]


def test_an_interrupt_that_became_another_error_is_one(parsed):
    assert parsed["interrupted"] == [[75, ""], [130, ""]]
