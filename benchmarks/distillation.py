r"""Measures distillation: a student with half the layers against its teacher and against itself.

    python -m benchmarks.distillation --model=minilm --glue=glue \
        --text=sentences.txt --output_dir=/tmp/distillation

--model is a folder with a BERT, such as MiniLM's of docs/fine-tuning.md; --glue has MRPC and STS-B.
For each task and seed three models are fine-tuned and evaluated on the dev set:

    teacher    the model
    alone      every second layer of the model
    distilled  the same layers. run_distillation.py brings their vectors near to the model's, on
               --text, the training pairs of both tasks and noisy copies of the pairs. Then the
               student gets the teacher's pooler and classifier, and is fine-tuned only on the
               teacher's vectors and answers, on the task's pairs and noisy copies. Few texts come
               twice, so the student has no dropout

The seconds are the time to encode the dev set's pairs, all models in turn, without the start.
Started again, the benchmark resumes.
"""

import functools
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from absl import app, flags

import bert_tf
from benchmarks import ROOT
from benchmarks.take_turns import take_turns, timed
from bert_tf.runs.folder import reporting
from bert_tf.tasks.classification.processors import MrpcProcessor, StsbProcessor

FLAGS = flags.FLAGS
LENGTHS = ("--max_seq_length=128", "--max_predictions_per_seq=8")
TASKS = {
    "MRPC": (MrpcProcessor, ("eval_accuracy", "eval_f1")),
    "STS-B": (StsbProcessor, ("eval_pearson", "eval_spearman")),
}


def run(program: str, *words: str) -> str:
    """Runs a program or tool with these flags; returns what it logged."""
    command = [sys.executable, *program.split(), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stderr


def pairs_of(task: str, name: str) -> list[tuple[str, str]]:
    """Returns the pairs of texts of a task's train or dev set."""
    processor = TASKS[task][0]()
    read = processor.get_train_examples if name == "train" else processor.get_dev_examples
    return [(x.text_a, x.text_b) for x in read(f"{FLAGS.glue}/{task}")]


def noisy(text: str, words: list[str], rng: random.Random) -> str:
    """Returns a text in which one word in eight is left out, replaced or moved to its neighbor."""
    found = text.split()
    for i in reversed(range(len(found))):
        kind = rng.randrange(24)
        if kind == 0 and len(found) > 1:
            del found[i]
        elif kind == 1:
            found[i] = rng.choice(words)
        elif kind == 2 and i:
            found[i - 1], found[i] = found[i], found[i - 1]
    return " ".join(found)


def noisy_pairs(pairs: list[tuple[str, str]], rng: random.Random) -> list[tuple[str, str]]:
    """Returns a noisy copy of each pair; some pair a text with itself, or mix two pairs."""
    words = [word for pair in pairs for text in pair for word in text.split()]
    rows = []
    for a, b in pairs:
        kind = rng.randrange(10)
        if kind == 0:
            b = a
        elif kind == 1:
            b = rng.choice(pairs)[1]
        elif kind < 5:
            a, b = b, a
        rows.append((noisy(a, words, rng), noisy(b, words, rng)))
    return rows


def training_pairs(tasks: Iterable[str], seed: int) -> list[tuple[str, str]]:
    """Returns the training pairs of tasks and --num_copies noisy copies of each."""
    rng = random.Random(seed)
    pairs = [pair for task in tasks for pair in pairs_of(task, "train")]
    return pairs + [x for _ in range(FLAGS.num_copies) for x in noisy_pairs(pairs, rng)]


def write_noisy(folder: Path, task: str, seed: int) -> str:
    """Writes a task's folder with the student's pairs, without labels; returns the folder."""
    columns = TASKS[task][0].columns
    rows = [[f"column{i}" for i in range(10)]]
    for a, b in training_pairs([task], seed):
        rows.append(["0"] * 10)
        rows[-1][columns.text_a], rows[-1][columns.text_b] = a, b
    text = "".join("\t".join(row) + "\n" for row in rows)
    (folder / "train.tsv").write_text(text, encoding="utf-8")
    shutil.copy(f"{FLAGS.glue}/{task}/dev.tsv", folder)
    return str(folder)


def write_records(folder: Path) -> None:
    """Makes packed records of --text and the training pairs."""
    pairs = training_pairs(TASKS, seed=0)
    text = Path(FLAGS.text).read_text(encoding="utf-8").splitlines()
    pairs += zip(text[::2], text[1::2], strict=False)
    # Each pair is a document: the two texts of a sequence are its halves, or one is another pair's.
    documents = ["\n".join(pair) for pair in pairs if all(pair)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    run(
        "create_pretraining_data.py",
        *(f"--input_file={folder}/text.txt", f"--output_file={folder}/text.tfrecord"),
        *(f"--vocab_file={FLAGS.model}/vocab.txt", "--dupe_factor=2", "--masked_lm_prob=0.05"),
        "--pack",
        *LENGTHS,
    )


def distil(folder: Path, config: str, output: Path, steps: int, *more: str) -> str:
    """Brings a student's vectors near to the model's; returns the student's folder."""
    run(
        "run_distillation.py",
        *(f"--teacher_checkpoint={FLAGS.model}", f"--bert_config_file={config}"),
        *(f"--input_file={folder}/text.tfrecord", f"--output_dir={output}", "--do_train"),
        *("--alpha_ce=0", "--alpha_mlm=0", "--alpha_cos=1", "--cos_all_layers"),
        *("--learning_rate=5e-4", "--train_batch_size=32", f"--num_train_steps={steps}"),
        *(f"--num_warmup_steps={steps // 20}", *LENGTHS, *FLAGS.distillation_flags, *more),
    )
    return str(output)


def fine_tune(
    task: str, seed: int, config: str, init: str, output: Path, *more: str
) -> list[float]:
    """Fine-tunes a model and returns its figures on the dev set."""
    run(
        "run_classifier.py",
        *(f"--task_name={task}", f"--data_dir={FLAGS.glue}/{task}", "--do_train", "--do_eval"),
        *(f"--vocab_file={FLAGS.model}/vocab.txt", f"--bert_config_file={config}"),
        *(f"--init_checkpoint={init}", f"--output_dir={output}", f"--random_seed={seed}"),
        *("--max_seq_length=128", "--train_batch_size=32", "--learning_rate=5e-5"),
        *(f"--num_train_epochs={FLAGS.num_train_epochs}", *FLAGS.fine_tuning_flags, *more),
    )
    results = reporting.read_results(str(output / "eval_results.txt"))
    figures = [results[name] for name in TASKS[task][1]]
    print(task, f"seed {seed}", output.name, *(f"{x:.4f}" for x in figures), flush=True)
    return figures


def seconds_in_turn(task: str, folders: dict[str, Path]) -> dict[str, float]:
    """Returns the median seconds in which each model answers the dev set's pairs."""
    pairs = pairs_of(task, "dev")
    runs = {}
    for name, folder in folders.items():
        model = bert_tf.load(str(folder))
        runs[name] = timed(functools.partial(model.classify, pairs))
    return {name: float(np.median(times)) for name, times in take_turns(runs, 3).items()}


def write_configs(folder: Path) -> tuple[str, str]:
    """Writes a configuration with half the layers, and one without dropout; returns both files."""
    config = json.loads(Path(f"{FLAGS.model}/bert_config.json").read_text())
    student = {**config, "num_hidden_layers": config["num_hidden_layers"] // 2}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    student_file, distilled_file = folder / "student.json", folder / "distilled.json"
    student_file.write_text(json.dumps(student))
    distilled_file.write_text(json.dumps({**student, **no_dropout}))
    return str(student_file), str(distilled_file)


def distil_task(task: str, seed: int, config: str, init: str, place: Path) -> list[float]:
    """Fine-tunes the distilled student on the teacher's outputs; returns its figures."""
    return fine_tune(
        *(task, seed, config, init, place / "distilled"),
        *("--alpha_cos=1", "--cos_all_layers", "--alpha_ce=1", "--alpha_labels=0"),
        *(f"--learning_rate={FLAGS.learning_rate}", "--num_train_epochs=1"),
        *("--copy_teacher_head", f"--teacher_checkpoint={place}/teacher"),
        *(f"--data_dir={write_noisy(place, task, seed)}", *FLAGS.student_flags),
    )


def main(_: list[str]) -> None:
    folder = Path(FLAGS.output_dir).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    teacher_file = f"{FLAGS.model}/bert_config.json"
    student_file, distilled_file = write_configs(folder)
    if not (folder / "text.tfrecord").exists():
        write_records(folder)
    general = distil(folder, distilled_file, folder / "student", FLAGS.num_train_steps)
    # The same layers without a teacher: this run only serves to write them to a checkpoint.
    alone = distil(folder, student_file, folder / "alone", 1, "--learning_rate=0")
    rows = {task: {"teacher": [], "alone": [], "distilled": []} for task in FLAGS.tasks}
    for seed, task in itertools.product(range(1, FLAGS.num_seeds + 1), FLAGS.tasks):
        place = folder / f"{task}_{seed}"
        teacher = fine_tune(task, seed, teacher_file, FLAGS.model, place / "teacher")
        rows[task]["teacher"].append(teacher)
        rows[task]["alone"].append(fine_tune(task, seed, student_file, alone, place / "alone"))
        rows[task]["distilled"].append(distil_task(task, seed, distilled_file, general, place))
    for task in FLAGS.tasks:
        print_table(task, TASKS[task][1], rows[task], folder)


def print_table(
    task: str, names: tuple[str, ...], rows: dict[str, list[list[float]]], folder: Path
) -> None:
    """Prints the figures and the seconds of a task's models."""
    seconds = seconds_in_turn(task, {model: folder / f"{task}_1" / model for model in rows})
    for i, name in enumerate(names):
        print(f"{task}, {name.removeprefix('eval_')} on the dev set")
        teacher = np.mean([figures[i] for figures in rows["teacher"]])
        for model, seeds in rows.items():
            values = [figures[i] for figures in seeds]
            print(
                f"  {model}: {', '.join(f'{x:.4f}' for x in values)}; mean {np.mean(values):.4f},"
                f" {np.mean(values) / teacher:.1%} of the teacher's; {seconds[model]:.2f} s,"
                f" {seconds[model] / seconds['teacher']:.2f} of its time",
                flush=True,
            )


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "Folder of the model.", required=True)
    flags.DEFINE_string("glue", None, "Folder with MRPC and STS-B.", required=True)
    flags.DEFINE_string("text", None, "Text: a sentence on each line.", required=True)
    flags.DEFINE_string("output_dir", None, "Folder to work in.", required=True)
    flags.DEFINE_list("tasks", list(TASKS), "Tasks to measure.")
    flags.DEFINE_integer("num_seeds", 3, "Seeds, from 1.")
    flags.DEFINE_integer("num_train_steps", 800, "Steps of run_distillation.py.")
    flags.DEFINE_float("learning_rate", 3e-4, "Peak of the distilled student's fine-tuning.")
    flags.DEFINE_float("num_train_epochs", 3.0, "Epochs of fine-tuning.")
    flags.DEFINE_integer("num_copies", 2, "Noisy copies of each pair.")
    flags.DEFINE_multi_string("distillation_flags", [], "More flags for run_distillation.py.")
    flags.DEFINE_multi_string("fine_tuning_flags", [], "More flags for all fine-tuning.")
    flags.DEFINE_multi_string("student_flags", [], "More flags to fine-tune the student.")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    app.run(main)
