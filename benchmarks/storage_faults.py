"""Kills programs at their writes, and lets the disk fail there; then runs them again.

    python -m benchmarks.storage_faults                 # prints the table of docs/reliability.md
    python -m benchmarks.storage_faults --programs=distillation --kills=6 --places=3

Each program runs undisturbed once, which counts its writes into the output folder. Then it is
killed (SIGKILL) at some of these writes, or all writes from one of them on fail with an error.
Afterwards the same command runs again. It must end with the same bits, and leave no temporary file.

Only on Linux and with gcc: failing_disk.c stands between the programs and the C library.
"""

import argparse
import collections
import errno
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bert_tf.files.temporary_names import is_temporary
from bert_tf.tasks.pretraining.schema import ELECTRA
from tests.support import forked_programs, small_sentences, text_in_shards
from tests.support.pretraining_runs import ROOT, WORDS, variables, write_config, write_records

ERRORS = ("EIO", "ENOSPC", "EACCES", "EROFS", "EDQUOT")
KILL = "SIGKILL"
NAMES = ("pretraining", "electra", "distillation", "sentences", "records", "conversion")
# Runs a program without XLA, which a few steps do not repay, and with forks for its workers, which
# then need not import TensorFlow.
UNCOMPILED = """
import multiprocessing, runpy, sys
from bert_tf.engine import loops
from bert_tf.tasks.pretraining.records import shards
get_context = multiprocessing.get_context
shards.multiprocessing.get_context = lambda method: get_context("fork")
loops.may_compile = lambda strategy: False
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
_TRAINING = ("--do_train", "--learning_rate=0.01", "--max_seq_length=12")
_PRETRAINING = (*_TRAINING, "--max_predictions_per_seq=2", "--num_warmup_steps=1")
_STEPS = ("--train_batch_size=8", "--num_train_steps=6", "--save_checkpoints_steps=2")


class Program(NamedTuple):
    """title: a row of the table. module, flags: the command; OUT is the output folder."""

    title: str
    module: str
    flags: Sequence[str]
    is_training: bool = True


def programs(folder: Path) -> dict[str, Program]:
    """Writes the inputs of the programs, and returns the programs by name."""
    write_records(folder / "train.tfrecord", 60, 12, 2, seed=1)
    write_records(folder / "dev.tfrecord", 13, 12, 2, seed=2)
    write_records(folder / "electra.tfrecord", 60, 12, 2, seed=3, objective=ELECTRA)
    config = write_config(folder / "bert_config.json")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    electra = write_config(folder / "electra.json", model_type="electra", embedding_size=6)
    records = (f"--input_file={folder}/train.tfrecord", f"--bert_config_file={config}")
    evaluation = ("--do_eval", f"--eval_input_file={folder}/dev.tfrecord", "--eval_batch_size=8")
    sentences, text = folder / "sentences", folder / "text"
    for made in (sentences, text):
        made.mkdir()
    small_sentences.write_sentences(sentences)
    text_in_shards.write_text(text)
    return {
        "pretraining": Program(
            "`run_pretraining.py`, saves in the background",
            "run_pretraining",
            ("--output_dir=OUT", *records, *_PRETRAINING, *_STEPS, *evaluation),
        ),
        "electra": Program(
            "`run_pretraining.py --objective=electra`",
            "run_pretraining",
            ("--output_dir=OUT", f"--input_file={folder}/electra.tfrecord", *_PRETRAINING, *_STEPS)
            + (f"--bert_config_file={electra}", f"--vocab_file={folder}/vocab.txt")
            + ("--objective=electra", "--generator_hidden_size=0.5", "--max_predictions_per_seq=1"),
        ),
        "distillation": Program(
            "`run_distillation.py`",
            "run_distillation",
            ("--output_dir=OUT", *records, *_PRETRAINING, *_STEPS)
            + (f"--teacher_checkpoint={folder}/teacher", "--keep_checkpoint_max=2"),
        ),
        "sentences": Program(
            "`run_sentence_similarity.py`, also evaluates, predicts and exports",
            "run_sentence_similarity",
            ("--output_dir=OUT", "--export_dir=OUT/export", f"--data_dir={sentences}")
            + (f"--vocab_file={sentences}/vocab.txt", "--do_eval", "--do_predict")
            + (f"--bert_config_file={sentences}/bert_config.json", "--score_scale=4")
            + ("--text_a_column=one", "--text_b_column=other", "--label_column=score")
            + ("--max_seq_length=8", "--length_buckets=none", "--do_train", "--num_train_epochs=1")
            + ("--train_batch_size=20", "--save_checkpoints_steps=2"),
        ),
        "records": Program(
            "`create_pretraining_data.py`, 5 shards by 2 processes",
            "create_pretraining_data",
            (f"--input_file={text}/text/*/*.txt", "--output_file=OUT/r.tfrecord")
            + (f"--vocab_file={text}/vocab.txt", "--num_shards=5", "--num_workers=2")
            + ("--max_seq_length=24", "--max_predictions_per_seq=3", "--dupe_factor=2"),
            is_training=False,
        ),
        "conversion": Program(
            "`tools.convert_checkpoint`",
            "tools.convert_checkpoint",
            (f"--input={folder}/teacher", "--output_dir=OUT/converted"),
            is_training=False,
        ),
    }


def make_teacher(folder: Path, program: Program) -> None:
    """Writes the teacher of the distillation: what a pre-training run exports."""
    run(program, folder / "teacher_run", {})
    words = [sys.executable, "-m", "tools.convert_checkpoint", f"--input={folder}/teacher_run"]
    words += [f"--bert_config_file={folder}/bert_config.json", f"--output_dir={folder}/teacher"]
    subprocess.run([*words, f"--vocab_file={folder}/text/vocab.txt"], cwd=ROOT, check=True)


def run(program: Program, output: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Runs a program and returns its exit status and what it printed."""
    output.mkdir(exist_ok=True)
    words = [flag.replace("OUT", str(output)) for flag in program.flags]
    words = [sys.executable, "-c", UNCOMPILED, program.module, *words]
    with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
        env = {"PYTHONPATH": ROOT, "PATH": os.environ["PATH"], **environment}
        process = forked_programs.start(words, log.name, env)
        process.join()
        return process.exitcode, log.read()


def results(program: Program, output: Path) -> dict[str, object]:
    """Returns what a program made, by name: its files, or the bits of its weights."""
    found: dict[str, object] = {}
    for path in sorted(output.rglob("*")):
        name = str(path.relative_to(output))
        made = name.startswith(("eval_results", "test_results", "export/", "converted/"))
        if path.is_file() and (made or not program.is_training):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    if program.is_training:
        for name, value in variables(output).items():
            found[name] = hashlib.sha256(value.tobytes()).hexdigest()
    return found


class Trials:
    """Makes the trials of one program."""

    def __init__(self, program: Program, folder: Path):
        self._program, self._folder = program, folder
        folder.mkdir()
        status, log = run(program, folder / "undisturbed", {})
        assert status == 0, log
        self._expected = results(program, folder / "undisturbed")
        status, log = self._faulty("counted", 0, 0)
        assert status == 0 and results(program, folder / "counted") == self._expected, log
        self.writes = int.from_bytes((folder / "counted.state").read_bytes(), "little")

    def _faulty(self, name: str, at: int, error: int) -> tuple[int, str]:
        state = self._folder / f"{name}.state"
        state.write_bytes(bytes(8))
        disk = {"DISK_FOLDER": f"{self._folder}/{name}", "DISK_STATE": str(state)}
        return run(
            self._program,
            self._folder / name,
            {**disk, "DISK_AT": str(at), "DISK_ERRNO": str(error)},
        )

    def outcome(self, fault: str, at: int) -> tuple[str, int]:
        """Returns what the second run ended with, and the status of the first."""
        name = f"{fault}-{at}"
        output = self._folder / name
        error = 0 if fault == KILL else getattr(errno, fault)
        status, log = self._faulty(name, at, error)
        if status == 255:  # multiprocessing lost the status of the fork
            subprocess.run(["rm", "-rf", str(output)], check=True)
            status, log = self._faulty(name, at, error)
        if status not in (-9, 0, 1, 74) or fault != KILL and "Traceback" in log:
            (self._folder / f"{name}.log").write_text(log)
            where = f"{self._program.module} {fault} at {at}"
            print(f"{where}: status {status}\n{log}", file=sys.stderr)
            return "traceback", status
        again, log = run(self._program, output, {})
        left = [p.name for p in output.rglob("*") if is_temporary(p.name) or ".tempst" in p.name]
        if again:
            end = "refused"
        elif left:
            end = "temporary files left"
        else:
            same = results(self._program, output) == self._expected
            end = "same bits" if same else "other bits"
        if end != "same bits":
            print(f"{self._program.module} {fault} at {at}: {end} {left}\n{log}", file=sys.stderr)
        subprocess.run(["rm", "-rf", str(output)], check=True)
        return end, status


def places(writes: int, count: int) -> list[int]:
    """Returns the numbers of the writes at which a fault begins, from the first to the last."""
    return sorted({1 + round(i * (writes - 1) / max(count - 1, 1)) for i in range(count)})


def row(trials: Trials, title: str, faults: Sequence[str], options: argparse.Namespace) -> str:
    """Returns the program's row of the table."""
    cells = [title, str(trials.writes)]
    with ThreadPoolExecutor(options.parallel) as pool:
        for fault in faults:
            at = places(trials.writes, options.kills if fault == KILL else options.places)
            ends = list(pool.map(lambda place, fault=fault: trials.outcome(fault, place), at))
            counts = collections.Counter(end for end, _ in ends)
            statuses = collections.Counter(status for _, status in ends)
            cell = ", ".join(f"{counts[end]} {end}" for end in sorted(counts))
            if fault != KILL:
                each = ", ".join(f"{statuses[s]} with {s}" for s in sorted(statuses))
                cell += f" ({each})"
            cells.append(cell)
            print(f"{title} {fault}: {cell}", file=sys.stderr, flush=True)
    return f"| {' | '.join(cells)} |"


def compile_disk(folder: Path) -> Path:
    """Compiles failing_disk.c."""
    library = folder / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", default=",".join(NAMES))
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--places", type=int, default=24, help="of each error of the disk")
    parser.add_argument("--faults", default=",".join((KILL, *ERRORS)))
    parser.add_argument("--parallel", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = compile_disk(folder)
        os.environ["LD_PRELOAD"] = str(library)  # for the process that programs are forked from
        known = programs(folder)
        make_teacher(folder, known["pretraining"])
        faults = options.faults.split(",")
        print(f"| Program | writes | {' | '.join(faults)} |")
        print(f"|---|--:|{'---|' * len(faults)}")
        for each in options.programs.split(","):
            trials = Trials(known[each], folder / f"{each}_runs")
            print(row(trials, known[each].title, faults, options), flush=True)


if __name__ == "__main__":
    main()
