"""Compares `fit` with the programs: same settings and seeds, so same weights, figures and speed.

    python -m benchmarks.fit --model=minilm --mrpc=glue/MRPC --conll=split --output_dir=output/fit

For each task and seed the program fine-tunes --model, a checkpoint with its vocabulary and
configuration; then `fit` trains it on the same examples, handed over as lists. The tasks are MRPC,
the tags of --conll, a folder with train.txt and valid.txt, and short texts: whether its sentences
name an organization. A line has the dev set's figures of both, the number of weights that differ in
any bit, and the speed of `fit` as a multiple of the program's: the median over the loops of steps,
each beside the same steps. Started again, the benchmark resumes.
"""

import itertools
import os
from pathlib import Path

import numpy as np
from absl import flags

import bert_tf
from benchmarks.data_speed import run_program
from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.runs.flags import command_flags
from bert_tf.runs.folder.reporting import read_results
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.classification.processors import MrpcProcessor
from bert_tf.tasks.tagging.data import read_sentences

FLAGS = flags.FLAGS
TABLE = ["--task_name=table", "--text_a_column=text", "--label_column=label"]
SETTINGS = {"max_seq_length": 64, "learning_rate": 1e-4, "keep_checkpoint_max": 1}
# Task -> the method, the program with its flags, and the figure to print.
TASKS = {
    "MRPC": ("for_classification", ["run_classifier.py", "--task_name=MRPC"], "accuracy"),
    "tags": ("for_tagging", ["run_tagging.py"], "f1"),
    "short": ("for_classification", ["run_classifier.py", *TABLE], "accuracy"),
}


def examples(task: str, split: str) -> list[tuple]:
    """Returns the inputs and labels of a task's train or dev set; writes short texts."""
    if task == "MRPC":
        processor = MrpcProcessor()
        read = processor.get_train_examples if split == "train" else processor.get_dev_examples
        return [((x.text_a, x.text_b), x.label) for x in read(FLAGS.mrpc)]
    sentences = read_sentences(f"{FLAGS.conll}/{split.replace('dev', 'valid')}.txt", "conll")
    if task == "tags":
        return [(x.words, x.tags) for x in sentences]
    rows = [(" ".join(x.words), "yes" if "-ORG" in " ".join(x.tags) else "no") for x in sentences]
    lines = ["text\tlabel", *map("\t".join, rows), ""]
    Path(f"{FLAGS.output_dir}/{split}.tsv").write_text("\n".join(lines), encoding="utf-8")
    return rows


def speeds(folder: str) -> dict[int, float]:
    """Returns the examples a second up to each step that was logged."""
    events = tf.data.TFRecordDataset([str(x) for x in Path(folder).glob("*tfevents*")])
    parsed = (tf.compat.v1.Event.FromString(x.numpy()) for x in events)
    values = ((event.step, value) for event in parsed for value in event.summary.value)
    name = "examples_per_second"
    return {step: float(tf.make_ndarray(x.tensor)) for step, x in values if x.tag == name}


def compare(task: str, seed: str) -> str:
    """Trains by both doors; returns a line with their figures."""
    method, words, figure = TASKS[task]
    settings = {**SETTINGS, "num_train_epochs": FLAGS.num_train_epochs, "random_seed": int(seed)}
    data_dir = {"MRPC": FLAGS.mrpc, "tags": FLAGS.conll, "short": FLAGS.output_dir}[task]
    train, dev = (zip(*examples(task, split), strict=True) for split in ("train", "dev"))
    program, door = (f"{FLAGS.output_dir}/{task}_{seed}_{x}" for x in ("program", "fit"))
    files = {"vocab_file": "vocab.txt", "init_checkpoint": "bert_model.ckpt"}
    files |= {"bert_config_file": "bert_config.json"}
    words = [*words, f"--data_dir={data_dir}", f"--output_dir={program}", "--do_lower_case"]
    words += [f"--{name}={FLAGS.model}/{file}" for name, file in files.items()]
    words += [f"--{name}={value}" for name, value in settings.items()]
    run_program([*words, "--do_train", "--do_eval"], os.cpu_count())
    model = getattr(bert_tf.load(FLAGS.model), method)()
    model.fit(*map(list, train), output_dir=door, verbose=0, **settings)
    found, results = model.evaluate(*map(list, dev)), read_results(f"{program}/eval_results.txt")
    result = results.get(f"eval_{figure}", results.get(figure))
    weights, others = (CheckpointReader(x).read_weights() for x in (program, door))
    differ = sum(int(np.sum(weights[name] != others[name])) for name in weights)
    first, second = speeds(program), speeds(door)
    speed = np.median([second[step] / first[step] for step in first if step in second])
    return (
        f"{task}, seed {seed}: {figure} {result:.6f} and {found[figure]:.6f}; {differ} of"
        f" {sum(x.size for x in weights.values()):,} weights differ; speed {speed:.3f}"
    )


def main() -> None:
    Path(FLAGS.output_dir).mkdir(parents=True, exist_ok=True)
    for seed, task in itertools.product(FLAGS.seeds, FLAGS.tasks):
        print(compare(task, seed), flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "Folder of the model.", required=True)
    flags.DEFINE_string("mrpc", None, "Folder with MRPC.", required=True)
    flags.DEFINE_string("conll", None, "Folder with train.txt and valid.txt.", required=True)
    flags.DEFINE_string("output_dir", None, "Folder to work in.", required=True)
    flags.DEFINE_list("tasks", list(TASKS), "Tasks to measure.")
    flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds.")
    flags.DEFINE_float("num_train_epochs", 2.0, "As of the programs.")
    command_flags.run_program(main)
