"""Compares a model of several labels with a classifier for each label; prints their F1 scores.

    python -m benchmarks.several_labels CONLL_FILE MODEL_DIR OUTPUT_DIR

The labels of a sentence are the types of its named entities: PER, LOC, ORG and MISC in CoNLL-2003.
Every fifth document of the file is the dev set. OUTPUT_DIR gets a table with all labels in a column
`labels`, and `yes` or `no` in a column for each of them. Then `run_classifier` fine-tunes the model
in MODEL_DIR, a checkpoint with its vocabulary and configuration: once with --multi_label, and once
for each label. Other flags after the three arguments go to all runs.

--torch_python, a Python with torch and transformers, also trains transformers' model there, from
--torch_model, the same weights in Hugging Face's format, with the same optimizer, schedule, loss,
length, batch size, epochs and seed.
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
from bert_tf.tasks.tagging.data import Sentence, read_sentences
from bert_tf.tasks.tagging.entities import entities

_DEV_EVERY = 5  # documents
# The flags of run_classifier.py that transformers' training heeds, with their defaults.
_SETTINGS = {"max_seq_length": 128, "train_batch_size": 32, "learning_rate": 5e-5}
_SETTINGS |= {"num_train_epochs": 3, "random_seed": 12345}
_TORCH = """
import json, sys, tempfile, transformers
given = json.load(sys.stdin)
transformers.set_seed(int(given["random_seed"]))  # of the head, too
tokenizer = transformers.AutoTokenizer.from_pretrained(given["model"])
model = transformers.AutoModelForSequenceClassification.from_pretrained(
    given["model"], num_labels=len(given["dev"][0][1]), problem_type="multi_label_classification"
)

def rows(name):
    for text, labels in given[name]:
        row = tokenizer(text, truncation=True, max_length=int(given["max_seq_length"]))
        yield {**row, "labels": [float(x) for x in labels]}

arguments = transformers.TrainingArguments(
    tempfile.mkdtemp(), per_device_train_batch_size=int(given["train_batch_size"]),
    num_train_epochs=given["num_train_epochs"], learning_rate=given["learning_rate"],
    warmup_steps=0.1, weight_decay=0.01, adam_epsilon=1e-6, seed=int(given["random_seed"]),
    train_sampling_strategy="group_by_length", save_strategy="no", report_to=[],
    disable_tqdm=True, use_cpu=True,
)
collator = transformers.DataCollatorWithPadding(tokenizer)
trainer = transformers.Trainer(
    model, arguments, train_dataset=list(rows("train")), data_collator=collator
)
trainer.train()
found = trainer.predict(list(rows("dev")))  # in an order of its own
print("RESULT", [(found.label_ids > 0.5).tolist(), (found.predictions >= 0.0).tolist()])
"""


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


def train_transformers(python: str, model: str, tables: Path, flags: Sequence[str], labels) -> None:
    """Trains transformers' model of several labels, and prints its scores."""
    values = dict(flag.lstrip("-").split("=") for flag in flags if "=" in flag)
    given: dict = {name: float(values.get(name, default)) for name, default in _SETTINGS.items()}
    for name in ("train", "dev"):
        with open(tables / f"{name}.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        given[name] = [(row["text"], [row[label] == "yes" for label in labels]) for row in rows]
    text, start = json.dumps({**given, "model": model}), time.monotonic()
    printed = subprocess.run(
        [python, "-c", _TORCH], input=text, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    wanted, found = json.loads(printed.partition("RESULT")[2].splitlines()[0].lower())
    _print("transformers", wanted, found, labels, time.monotonic() - start)


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
    parser.add_argument("--torch_python")
    parser.add_argument("--torch_model")
    arguments, flags = parser.parse_known_args()
    if (arguments.torch_python is None) != (arguments.torch_model is None):
        parser.error("--torch_python and --torch_model need each other; give both or neither")
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
    if arguments.torch_python:
        train_transformers(*(arguments.torch_python, arguments.torch_model, tables, flags, labels))


if __name__ == "__main__":
    main()
