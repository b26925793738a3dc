"""Compares a model of several labels with a classifier for each label; prints their F1 scores.

    python -m benchmarks.several_labels CONLL_FILE MODEL_DIR OUTPUT_DIR

The labels of a sentence are the types of its named entities: PER, LOC, ORG and MISC in CoNLL-2003.
Every fifth document of the file is the dev set. OUTPUT_DIR gets a table with all labels in a column
`labels`, and `yes` or `no` in a column for each of them. Then `run_classifier` fine-tunes the model
in MODEL_DIR, a checkpoint with its vocabulary and configuration: once with --multi_label, and once
for each label. Other flags after the three arguments go to all runs.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sklearn import metrics

from bert_tf.runs.results.tables import read_table
from bert_tf.tasks.tagging.conll import Sentence, read_sentences
from bert_tf.tasks.tagging.entities import entities

_DEV_EVERY = 5  # documents


def write_tables(sentences: Sequence[Sentence], folder: Path) -> list[str]:
    """Writes train.csv and dev.csv; returns the labels, sorted."""
    found = [sorted({name for name, _, _ in entities(x.tags)}) for x in sentences]
    labels = sorted({name for names in found for name in names})
    folder.mkdir(parents=True, exist_ok=True)
    for name, is_dev in (("train", False), ("dev", True)):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["text", "labels", *labels])
            for sentence, names in zip(sentences, found, strict=True):
                if (sentence.document % _DEV_EVERY == 0) == is_dev:
                    each = ["yes" if label in names else "no" for label in labels]
                    writer.writerow([" ".join(sentence.words), "|".join(names), *each])
    return labels


def run(model: Path, tables: Path, output_dir: Path, flags: Sequence[str]) -> float:
    """Fine-tunes the model; returns the seconds that it took."""
    files = {"bert_config_file": "bert_config.json", "vocab_file": "vocab.txt"}
    files |= {"init_checkpoint": "bert_model.ckpt"}
    words = ["run_classifier.py", "--task_name=table", f"--data_dir={tables}", "--do_train"]
    words += [f"--{flag}={model / name}" for flag, name in files.items()]
    words += ["--do_eval", "--text_a_column=text", f"--output_dir={output_dir}", *flags]
    print("$ python", *words, flush=True)
    start = time.monotonic()
    done = subprocess.run([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return time.monotonic() - start


def print_separate(folders: dict[str, Path], seconds: float) -> None:
    """Prints the scores of a classifier for each label, taken together."""
    tables = {label: read_table(f"{path}/eval_predictions.tsv") for label, path in folders.items()}
    columns = [
        [[cell == "yes" for cell in table[name]] for table in tables.values()]
        for name in ("label", "prediction")
    ]
    wanted, found = ([list(row) for row in zip(*column, strict=True)] for column in columns)
    _print("separate", wanted, found, list(folders), seconds)


def print_together(folder: Path, labels: Sequence[str], seconds: float) -> None:
    """Prints the scores of the model of several labels."""
    table = read_table(f"{folder}/eval_predictions.tsv")
    columns = [
        [[label in cell.split("|") for label in labels] for cell in table[name]]
        for name in ("label", "prediction")
    ]
    _print("together", *columns, labels, seconds)


def _print(name, wanted, found, labels: Sequence[str], seconds: float) -> None:
    each = metrics.f1_score(wanted, found, average=None, zero_division=0.0)
    scores = {"micro_f1": metrics.f1_score(wanted, found, average="micro"), "macro_f1": each.mean()}
    scores |= {"accuracy": metrics.accuracy_score(wanted, found)}
    scores |= {f"f1_{label}": score for label, score in zip(labels, each, strict=True)}
    rounded = {key: round(float(value), 4) for key, value in scores.items()}
    print(json.dumps({"model": name, **rounded, "seconds": round(seconds)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("conll_file")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("output_dir", type=Path)
    arguments, flags = parser.parse_known_args()
    tables = arguments.output_dir / "tables"
    labels = write_tables(read_sentences(arguments.conll_file, "conll_file"), tables)
    several = arguments.output_dir / "together"
    more = ["--label_column=labels", "--multi_label", *flags]
    seconds = run(arguments.model_dir, tables, several, more)
    print_together(several, labels, seconds)
    folders = {label: arguments.output_dir / f"only_{label}" for label in labels}
    seconds = sum(
        run(arguments.model_dir, tables, path, [f"--label_column={x}", "--labels=no,yes", *flags])
        for x, path in folders.items()
    )
    print_separate(folders, seconds)


if __name__ == "__main__":
    main()
