"""Tests of the recipes in flags/: settings and figures of their sources, and the small examples."""

import dataclasses
import re
from pathlib import Path

import pytest

from bert_tf.datasets.tables import table_path
from bert_tf.tasks.classification import processors
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.multiple_choice.data import read_questions
from bert_tf.tasks.multiple_choice.settings import MultipleChoiceSettings
from bert_tf.tasks.sentences.data import read_sentences as read_pairs
from bert_tf.tasks.sentences.settings import SentenceSettings
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.tagging.data import read_sentences
from bert_tf.tasks.tagging.settings import FEATURE_LAYERS, TaggingSettings

ROOT = Path(__file__).resolve().parents[2]
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


def test_every_recipe_is_tested():
    assert {path.stem for path in (FLAGS / "glue").iterdir()} == {"paper", *GLUE}
    assert {path.stem for path in (FLAGS / "squad").iterdir()} == PAPER.keys()
    assert [path.name for path in (FLAGS / "sentences").iterdir()] == ["stsb_base.flags"]
    found = {f"{task}/{path.stem}" for task in TASKS for path in (FLAGS / task).iterdir()}
    assert found == FIGURES.keys()


@pytest.mark.parametrize("name", GLUE)
def test_glue(name):
    path = FLAGS / "glue" / f"{name}.flags"
    task, base, large = GLUE[name]
    expected = {"task_name": task, "do_train": "true", "do_eval": "true", "max_seq_length": "128"}
    expected |= {"train_batch_size": "32", "num_train_epochs": "3", "learning_rate": "2e-5"}
    assert values(path) == expected
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


# Section 4.2 and 4.3 of the paper; figures of tables 2 and 3 on the dev set.
PAPER = {
    "squad_v1_base": (32, 3, "exact match 80.8, F1 88.5"),
    "squad_v1_large": (32, 3, "exact match 84.1, F1 90.9"),
    "squad_v1_large_triviaqa": (32, 1, "exact match 84.2, F1 91.1"),
    "squad_v2_large": (48, 2, "exact match 78.7, F1 81.9"),
}


@pytest.mark.parametrize("name", PAPER)
def test_squad(name):
    batch, epochs, figures = PAPER[name]
    path = FLAGS / "squad" / f"{name}.flags"
    model = "uncased_L-24_H-1024_A-16" if "large" in name else "uncased_L-12_H-768_A-12"
    expected = {
        "do_train": "true",
        "bert_config_file": f"flags/models/{model}/bert_config.json",
        "train_batch_size": f"{batch}",
        "learning_rate": "5e-5",
        "num_train_epochs": f"{epochs}",
        "max_seq_length": "384",
        "doc_stride": "128",
    }
    if "triviaqa" not in name:
        expected["do_predict"] = "true"
    if "v2" in name:
        expected["version_2_with_negative"] = "true"
    assert values(path) == expected
    fields = {field.name for field in dataclasses.fields(SquadSettings)}
    assert expected.keys() <= fields | {"bert_config_file"}
    text = comment(path)
    assert figures in text and model in text
    for cores in re.findall(r"8 TPU cores, each of which gets (\d+) of the", text):
        assert 8 * int(cores) == batch


def test_settings_of_sentence_bert():
    path = FLAGS / "sentences" / "stsb_base.flags"
    found = values(path)
    fields = {field.name for field in dataclasses.fields(SentenceSettings)}
    assert found.keys() <= fields | {"bert_config_file"}
    assert found["bert_config_file"] == "flags/models/uncased_L-12_H-768_A-12/bert_config.json"
    # Its section 3.1, and the range of the scores of STS-B.
    assert found["train_batch_size"] == "16" and found["learning_rate"] == "2e-5"
    assert found["warmup_proportion"] == "0.1" and found["score_scale"] == "5"
    assert "loss" not in found and SentenceSettings.loss == "cosine"
    assert "84.67 on the test set" in comment(path).split("Expected:")[1]


def test_the_small_files_beside_the_quickstart_can_be_read():
    folder = FLAGS / "quickstart" / "sentences"
    columns = {"text_a_column": "sentence1", "text_b_column": "sentence2"}
    texts = {}
    for name, count in (("train", 160), ("dev", 48), ("test", 5)):
        more = {} if name == "test" else {"label_column": "score"}
        path = table_path(name, str(folder))
        pairs = read_pairs(path, {**columns, **more}, True, None, "It", score_scale=5.0)
        assert len(pairs) == count
        texts[name] = {text for pair in pairs for text in pair.texts}
    assert not texts["dev"] & texts["train"] and not texts["test"] & texts["train"]


FIGURES = {
    # Table 7: F1 on the dev and the test set; for the features on the dev set, row by row.
    "tagging/conll2003_base": ["96.4", "92.4"],
    "tagging/conll2003_large": ["96.6", "92.8"],
    "tagging/conll2003_feature_based": ["91.0", "94.9", "95.6", "95.9", "96.1", "95.5"],
    # Table 4: accuracy on the dev and the test set.
    "multiple_choice/swag_base": ["81.6"],
    "multiple_choice/swag_large": ["86.6", "86.3"],
}
TASKS = {
    "tagging": (TaggingSettings, "cased"),
    "multiple_choice": (MultipleChoiceSettings, "uncased"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_tagging_and_multiple_choice(name):
    path = FLAGS / f"{name}.flags"
    found, text = values(path), comment(path)
    settings, casing = TASKS[path.parent.name]
    fields = {field.name for field in dataclasses.fields(settings)}
    assert found.keys() <= fields | {"bert_config_file"}
    size = "L-24_H-1024_A-16" if "large" in name else "L-12_H-768_A-12"
    assert found["bert_config_file"] == f"flags/models/{casing}_{size}/bert_config.json"
    assert re.findall(r"\b\d\d\.\d\b", text.split("Expected:")[1]) == FIGURES[name]
    training = [found[x] for x in ("train_batch_size", "learning_rate", "num_train_epochs")]
    if "swag" in name:
        assert training == ["16", "2e-5", "3"]
        return
    assert found["max_seq_length"] == "512"
    assert not {"do_lower_case", "document_context"} & found.keys()  # the defaults are the paper's
    if "feature_based" in name:
        rows = re.findall(r"(\w+) \d\d\.\d", text)
        assert rows == list(FEATURE_LAYERS)
        assert found["feature_layers"] == rows[FIGURES[name].index("96.1")]
        assert found["lstm_size"] == "768"
    else:  # from the paper's A.3
        choices = ("16", "32"), ("5e-5", "3e-5", "2e-5"), ("2", "3", "4")
        assert all(value in allowed for value, allowed in zip(training, choices, strict=True))


def test_the_examples_in_flags_can_be_read():
    folder = FLAGS / "quickstart"
    for name, documents in (("train", 4), ("valid", 2), ("test", 1)):
        sentences = read_sentences(f"{folder}/entities/{name}.txt", "data_dir")
        assert len({sentence.document for sentence in sentences}) == documents
        tags = {tag for sentence in sentences for tag in sentence.tags} | {"I-PER"}
        assert tags == {"B-LOC", "B-PER", "I-LOC", "I-PER", "O"}
    for name, count in (("train", 12), ("val", 4), ("test", 2)):
        questions = read_questions(f"{folder}/endings/{name}.csv", labelled=name != "test")
        assert [len(set(question.endings)) for question in questions] == [4] * count
