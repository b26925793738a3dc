"""Trains BERT-Base on this machine's devices for some minutes and writes a report to send.

    python -m tools.try_devices -- --tpu=pjrt --train_batch_size=256
    python -m tools.try_devices -- --num_train_steps=20 --dtype=bfloat16

Nobody has run this project on a TPU yet: the report says what happened on yours. After `--` come
flags of run_pretraining.py; the default is 200 steps of 8 sequences of length 128. The text is from
flags/quickstart, the weights are random, and all files except the report are removed at the end.

The report has the versions of the packages, the processor, the time of each part of the run, and
the run's log with the reason for a failure. Read it before you send it: it has names of folders.
The exit status is the run's.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.try_devices")

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from absl import flags

from bert_tf.files.whole_files import write_whole
from bert_tf.runs.flags import command_flags
from bert_tf.runs.folder import goodput

from . import ROOT
from .goodput import table
from .quickstart import Stage, make_stages, program, run_stages

_CONFIG = "flags/models/uncased_L-12_H-768_A-12/bert_config.json"
_NO_TPU = "TPU_LOAD_LIBRARY"
_VARIABLES = re.compile("TPU_|XLA_|NEXT_PLUGGABLE|TF_(PLUGGABLE|XLA|GPU|NUM|ENABLE)")
_PACKAGES = tuple("bert tensorflow tf-nightly tf_nightly keras numpy jax libtpu nvidia".split())


def stages(folder: str, words: list[str]) -> list[Stage]:
    """Returns the stages: a vocabulary, records of length 128, and training, all in `folder`.

    `words` are flags of run_pretraining.py, which take precedence.
    """
    vocabulary, records, *_ = make_stages(folder)
    file, lengths = f"{folder}/records", ["--max_seq_length=128", "--max_predictions_per_seq=20"]
    of_run = [f"--bert_config_file={_CONFIG}", f"--input_file={file}", f"--output_dir={folder}/run"]
    of_run += [*lengths, "--do_train", "--train_batch_size=8", "--num_train_steps=200"]
    of_run += ["--num_warmup_steps=10", "--iterations_per_loop=10"]
    return [
        vocabulary,
        Stage("Making records", [*records.command, *lengths, f"--output_file={file}"]),
        Stage("Training", [*program("run_pretraining"), *of_run, *words]),
    ]


def versions() -> list[str]:
    """Returns a line for each package that a run's speed or success may depend on."""
    found = {d.name: d.version for d in importlib.metadata.distributions()}
    named = [f"{k} {v}" for k, v in found.items() if k.lower().startswith(_PACKAGES)]
    git, commit = shutil.which("git"), ""
    if git:
        command = [git, "-C", ROOT, "describe", "--always", "--dirty"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    commit = f"commit {commit or 'unknown'}"
    return [f"Python {platform.python_version()}, {platform.platform()}", commit, *sorted(named)]


def processor() -> str:
    """Returns the processor's name and number of cores."""
    info = Path("/proc/cpuinfo")
    name = info.exists() and re.search(r"^model name\s*: (.*)$", info.read_text(), re.MULTILINE)
    return f"{name[1] if name else platform.processor()}, {os.cpu_count()} cores"


def report(folder: str, outcome: str) -> str:
    """Returns the report on the run in `folder/run`, in Markdown."""
    record = goodput.read(f"{folder}/run")
    environment = [f"{k}={v}" for k, v in sorted(os.environ.items()) if _VARIABLES.match(k)]
    log = Path(folder, "log").read_text(encoding="utf-8")
    parts = {
        "Machine": [processor(), *environment],
        "Versions": versions(),
        "Run": [outcome, *([table(record)] if record else [])],
        "Log": [log.strip()],
    }
    return "".join("\n".join((f"## {title}\n", *lines, "\n")) for title, lines in parts.items())


def main(words: list[str]) -> None:
    output_file, status = flags.FLAGS.output_file, 0
    place = f"--output_file={output_file}"
    os.environ.pop(_NO_TPU, None)
    with tempfile.TemporaryDirectory(prefix="try_devices") as folder:
        made = stages(folder, words)
        with open(f"{folder}/log", "w", encoding="utf-8") as log:
            # Checks that the report can be written. This version remains if the machine crashes.
            write_whole(output_file, report(folder, "The run has not ended."), place)
            try:
                run_stages(made, log)
            except SystemExit as end:
                status = end.code
        write_whole(output_file, report(folder, f"The run ended with status {status}."), place)
    print(f"The report: {output_file}")
    raise SystemExit(status)


if __name__ == "__main__":
    os.environ.setdefault(_NO_TPU, "0")  # one process holds a TPU: the run, not this one
    flags.DEFINE_string("output_file", "try_devices.md", "The report.")
    command_flags.run_program(main, takes_words=True)
