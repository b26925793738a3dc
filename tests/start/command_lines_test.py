"""No program or tool imports TensorFlow to show its help or the mistakes of its command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = [path.stem for path in sorted(ROOT.glob("*.py")) if path.stem != "setup"]
PROGRAMS += [f"tools.{path.stem}" for path in sorted(ROOT.glob("tools/[!_]*.py"))]
MISTAKES = ["--no_such_flag=1"]
# Mistakes that no flag has for itself: program, words, the end of the message.
CONTRADICTIONS = [
    ("tools.compare_runs", ["a"], "python -m tools.compare_runs A B; got 1\n"),
    ("tools.goodput", [], "python -m tools.goodput OUTPUT_DIR\n"),
    ("tools.goodput", ["a", "b"], "python -m tools.goodput OUTPUT_DIR\n"),
    (
        "tools.export",
        ["--input=x", "--output=y", "--head=encoder", "--format=onnx", "--dtype=bfloat16"],
        "received --format=onnx. Change one of the two\n",
    ),
    (
        "run_squad",
        ["--vocab_file=x", "--output_dir=y", "--bert_config_file=z", "--do_train"],
        "--do_train needs --train_file. Add --train_file, or leave --do_train out\n",
    ),
    (
        "run_pretraining",
        ["--input_file=x", "--output_dir=y", "--bert_config_file=z", "--start_warmup_step=5"],
        "and above -10000. Leave it out to warm up from the first step\n",
    ),
    (
        "run_distillation",
        [f"--{x}=x" for x in ("input_file", "output_dir", "bert_config_file")]
        + [f"--{x}=x" for x in ("teacher_config_file", "teacher_checkpoint", "phases")],
        "such as 128:900000:256:20,512:100000:256:77; got 'x'\n",
    ),
]

# Starts each program in a fork, which cannot import TensorFlow; prints statuses and outputs.
CODE = """
import importlib, json, os, runpy, sys, tempfile
sys.path.insert(0, os.getcwd())
from bert_tf.runs.flags import command_flags
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("tensorflow", "keras"):
            raise RuntimeError(f"imported {name}")
sys.meta_path.insert(0, Refuse())
runs = json.loads(sys.argv[1])
programs = dict.fromkeys(name for name, words in runs)
for name in programs:  # they share what they import
    if name.startswith("tools.") and name not in ("tools.compile_for_tpu", "tools.estimate_cost"):
        importlib.import_module(name)
for name in programs:
    sys.modules.pop(name, None)
found = {}
for name, words in runs:
    with tempfile.TemporaryFile() as output:
        if (child := os.fork()) == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = [name, *words]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
            os._exit(70)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        found.setdefault(name, []).append([status, output.read().decode()])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def printed():
    runs = [(name, words) for name in PROGRAMS for words in (["--help"], MISTAKES)]
    runs += [(name, words) for name, words, _ in CONTRADICTIONS]
    words = [sys.executable, "-c", CODE, json.dumps(runs)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help(printed, name):
    status, page = printed[name][0]
    assert status == 0, page
    path = ROOT / f"{name.replace('.', '/')}.py"
    summary = path.read_text().split('"""')[1].splitlines()[0]
    assert page.startswith(summary) and "\nFlags are written --name=value" in page


@pytest.mark.parametrize("name", PROGRAMS)
def test_mistakes(printed, name):
    status, line = printed[name][1]
    assert status == 1 and line.count("\n") == 1, line
    if name == "tools.create_pretraining_data_beam":  # other flags are the runner's
        assert "--output_file, --num_shards must be given" in line
        return
    assert ": Unknown command line flag 'no_such_flag'" in line


@pytest.mark.parametrize(("name", "words", "end"), CONTRADICTIONS)
def test_contradictions(printed, name, words, end):
    messages = [line for status, line in printed[name][2:] if status == 1 and line.endswith(end)]
    assert messages and all(line.count("\n") == 1 for line in messages), printed[name][2:]
