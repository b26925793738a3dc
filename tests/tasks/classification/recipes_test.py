"""Tests of flags/glue, flags/xnli and flags/imdb: the settings and figures of their sources."""

import re
from pathlib import Path

import pytest

from bert_tf.tasks.classification import processors
from bert_tf.tasks.classification.settings import TableColumns

ROOT = Path(__file__).resolve().parents[3]
FLAGS = ROOT / "flags"

# Table 1 of the paper: test figures with BERT-Base and BERT-Large.
GLUE = {
    "cola": ("CoLA", "52.1", "60.5"),
    "mnli": ("MNLI", "84.6 and 83.4", "86.7 and 85.9"),
    "mrpc": ("MRPC", "88.9", "89.3"),
    "qnli": ("QNLI", "90.5", "92.7"),
    "qqp": ("QQP", "71.2", "72.1"),
    "rte": ("RTE", "66.4", "70.1"),
    "sst2": ("SST-2", "93.5", "94.9"),
    "stsb": ("STS-B", "85.8", "86.5"),
}


def values(path):
    """Returns the flags of a flagfile and of the flagfiles that it includes."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line[:1] == "#" or not line:
            continue
        name, _, value = line.removeprefix("--").partition("=")
        if name == "flagfile":
            found |= values(ROOT / value)
        else:
            found[name] = value or "true"
    return found


def comment(path):
    """Returns the comment at the top as one line."""
    return re.sub(r"\n#\s*", " ", path.read_text(encoding="utf-8").split("\n--")[0])


def test_every_task_of_the_paper_has_a_recipe():
    assert {path.stem for path in (FLAGS / "glue").iterdir()} == {"paper", *GLUE}


@pytest.mark.parametrize("name", GLUE)
def test_glue(name):
    path = FLAGS / "glue" / f"{name}.flags"
    task, base, large = GLUE[name]
    assert values(path) == {
        "task_name": task,
        "do_train": "true",
        "do_eval": "true",
        "train_batch_size": "32",
        "num_train_epochs": "3",
        "learning_rate": "2e-5",
        "max_seq_length": "128",
    }
    text = comment(path)
    assert f": {base} with BERT-Base, {large} with BERT-Large." in text
    # Its name in eval_results.txt, if the figure is not the accuracy.
    processor = processors.get_processor(task)
    for metric in re.findall(r"eval_\w+", text):
        assert metric.removeprefix("eval_").removesuffix("_mismatched") in processor.metrics


@pytest.mark.parametrize(
    "name, task", [("xnli/chinese", "XNLI"), ("xnli/multilingual", "XNLI"), ("imdb/base", "IMDB")]
)
def test_other_tasks(name, task):
    found = values(FLAGS / f"{name}.flags")
    assert found["task_name"] == task
    assert processors.get_processor(task, xnli_language=found.get("xnli_language", "zh"))
    cased = "/multi_cased_" in found["bert_config_file"]
    assert found.get("do_lower_case", "true") == ("false" if cased else "true")


NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand"
).split()


@pytest.mark.parametrize("which, text", [("train", "corpus"), ("dev", "heldout")])
def test_the_quickstarts_table(which, text):
    columns = TableColumns(text_a_column="sentence", label_column="has_number")
    folder = str(FLAGS / "quickstart" / "numbers")
    found = processors.get_processor("table", folder, columns=columns).read(which, folder)
    lines = (FLAGS / "quickstart" / f"{text}.txt").read_text(encoding="utf-8").splitlines()
    assert [example.text_a for example in found] == [line for line in lines if line]
    for example in found:
        words = re.findall("[a-z]+", example.text_a.lower())
        assert example.label == ("yes" if set(words) & set(NUMBERS) else "no")
