"""Tests of the recipes in flags/: settings and figures of their sources, and the small examples."""

import re
from pathlib import Path

import pytest

from bert_tf.datasets.tables import table_path
from bert_tf.runs.flags.setting_fields import flags_of
from bert_tf.tasks.classification import processors
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.multiple_choice.data import read_questions
from bert_tf.tasks.registry import TASKS
from bert_tf.tasks.sentences.data import read_sentences as read_pairs
from bert_tf.tasks.sentences.settings import SentenceSettings
from bert_tf.tasks.tagging.data import read_sentences
from bert_tf.tasks.tagging.settings import FEATURE_LAYERS

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ROOT / "flags"


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


# Folder -> the task, and the casing of its models.
FOLDERS = {name: (name, "uncased") for name in ("squad", "multiple_choice", "sentences")}
FOLDERS |= {"tagging": ("tagging", "cased"), "imdb": ("classification", "uncased")}
FOLDERS |= {"glue": ("classification", None), "xnli": ("classification", None)}
NUMBERS = ("train_batch_size", "learning_rate", "num_train_epochs", "max_seq_length")
# Recipe -> these numbers, and the figures after "Expected:".
RECIPES = {
    # Table 1 of BERT's paper: test figures with BERT-Base and BERT-Large; then table 5's.
    "glue/cola": ("32 2e-5 3 128", "52.1 60.5"),
    "glue/mnli": ("32 2e-5 3 128", "84.6 83.4 86.7 85.9 84.4"),
    "glue/mrpc": ("32 2e-5 3 128", "88.9 89.3 86.7"),
    "glue/qnli": ("32 2e-5 3 128", "90.5 92.7 88.4"),
    "glue/qqp": ("32 2e-5 3 128", "71.2 72.1"),
    "glue/rte": ("32 2e-5 3 128", "66.4 70.1"),
    "glue/sst2": ("32 2e-5 3 128", "93.5 94.9 92.7"),
    "glue/stsb": ("32 2e-5 3 128", "85.8 86.5"),
    # Section 4.2 and 4.3; exact match and F1 of tables 2 and 3 on the dev and the test set.
    "squad/squad_v1_base": ("32 5e-5 3 384", "80.8 88.5"),
    "squad/squad_v1_large": ("32 5e-5 3 384", "84.1 90.9"),
    "squad/squad_v1_large_triviaqa": ("32 5e-5 1 384", "84.2 91.1 85.1 91.8"),
    "squad/squad_v2_large": ("48 5e-5 2 384", "78.7 81.9 80.0 83.1"),
    # Numbers from A.3. Table 7: F1 on the dev and the test set; with features on the dev set.
    "tagging/conll2003_base": ("32 5e-5 4 512", "96.4 92.4"),
    "tagging/conll2003_large": ("32 2e-5 4 512", "96.6 92.8"),
    "tagging/conll2003_feature_based": ("32 1e-3 10 512", "91.0 94.9 95.6 95.9 96.1 95.5"),
    # Table 4: accuracy on the dev and the test set.
    "multiple_choice/swag_base": ("16 2e-5 3 128", "81.6"),
    "multiple_choice/swag_large": ("16 2e-5 3 128", "86.6 86.3"),
    # Sentence-BERT, section 3.1 and table 2.
    "sentences/stsb_base": ("16 2e-5 4 128", "84.67"),
    "xnli/chinese": ("32 5e-5 2 128", ""),
    "xnli/multilingual": ("32 5e-5 2 128", "81.9 76.6 77.8 75.9 70.7 61.6"),
    "imdb/base": ("24 2e-5 4 512", "94.4"),
}
# Their other flags, but for what to do and which model.
GLUE = "CoLA MNLI MRPC QNLI QQP RTE SST-2 STS-B".split()
STRIDE = {"doc_stride": "128"}
SQUAD_1 = ("squad/squad_v1_base", "squad/squad_v1_large", "squad/squad_v1_large_triviaqa")
MORE = {
    **{f"glue/{task.lower().replace('-', '')}": {"task_name": task} for task in GLUE},
    **dict.fromkeys(SQUAD_1, STRIDE),
    "squad/squad_v2_large": {**STRIDE, "version_2_with_negative": "true"},
    "xnli/chinese": {"task_name": "XNLI", "xnli_language": "zh"},
    "xnli/multilingual": {"task_name": "XNLI", "do_lower_case": "false"},
    "imdb/base": {"task_name": "IMDB"},
    "tagging/conll2003_feature_based": {
        **{"feature_based": "true", "feature_layers": "concat_last_four", "lstm_size": "768"}
    },
    "sentences/stsb_base": {
        **{"text_a_column": "sentence1", "text_b_column": "sentence2", "label_column": "score"},
        **{"score_scale": "5", "warmup_proportion": "0.1"},
    },
}
# Recipes without predictions.
TRAIN_OR_EVAL = {"squad/squad_v1_large_triviaqa", "tagging/conll2003_feature_based"}


def test_every_recipe_is_tested():
    paths = [path.relative_to(FLAGS) for folder in FOLDERS for path in (FLAGS / folder).iterdir()]
    assert {str(path.with_suffix("")) for path in paths} == {"glue/paper", *RECIPES}


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name):
    folder, path = name.split("/")[0], FLAGS / f"{name}.flags"
    (task, casing), (numbers, figures) = FOLDERS[folder], RECIPES[name]
    found = values(path)
    known = {field.name for cls in TASKS[task].settings_classes() for field in flags_of(cls)}
    assert found.keys() <= known | {"bert_config_file"}
    assert " ".join(found.pop(number) for number in NUMBERS) == numbers
    comment = re.sub(r"\n#\s*", " ", path.read_text(encoding="utf-8").split("\n--")[0])
    expected = comment.split("Expected:")[1]
    assert re.findall(r"\b\d\d\.\d\d?\b", expected) == figures.split()
    purposes = {flag for flag in found if flag.startswith("do_") and flag != "do_lower_case"}
    assert {found.pop(flag) for flag in purposes} == {"true"} and "do_train" in purposes
    assert ("do_predict" in purposes) == (task != "classification" and name not in TRAIN_OR_EVAL)
    assert ("do_eval" in purposes) == (task != "squad")
    model = found.pop("bert_config_file", None)
    assert found == MORE.get(name, {})
    if casing:
        size = "L-24_H-1024_A-16" if "large" in name else "L-12_H-768_A-12"
        assert model == f"flags/models/{casing}_{size}/bert_config.json"
        assert folder != "squad" or f"{casing}_{size}" in comment
    elif folder == "xnli":
        assert ("/multi_cased_" in model) == ("do_lower_case" in found)
    else:  # glue names two models
        assert model is None and "with BERT-Base, " in expected and "with BERT-Large." in expected
    for cores in re.findall(r"8 TPU cores, each of which gets (\d+) of the", comment):
        assert 8 * int(cores) == int(numbers.split()[0])
    if "task_name" in found:
        language = found.get("xnli_language", "zh")
        processor = processors.get_processor(found["task_name"], xnli_language=language)
        # The name in eval_results.txt, if the figure is not the accuracy.
        for metric in re.findall(r"eval_\w+", comment):
            assert metric.removeprefix("eval_").removesuffix("_mismatched") in processor.metrics


def test_the_layers_of_features_are_those_of_the_recipe():
    text = (FLAGS / "tagging/conll2003_feature_based.flags").read_text(encoding="utf-8")
    rows = dict(re.findall(r"(\w+) (\d\d\.\d)", text))
    assert list(rows) == list(FEATURE_LAYERS) and rows["concat_last_four"] == "96.1"
    assert SentenceSettings.loss == "cosine"  # which Sentence-BERT's recipe relies on


WORDS = (
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
        assert example.label == ("yes" if set(words) & set(WORDS) else "no")


def test_the_examples_in_flags_can_be_read():
    folder = FLAGS / "quickstart"
    columns, texts = {"text_a_column": "sentence1", "text_b_column": "sentence2"}, {}
    for name, count in (("train", 160), ("dev", 48), ("test", 5)):
        more = {} if name == "test" else {"label_column": "score"}
        path = table_path(name, f"{folder}/sentences")
        pairs = read_pairs(path, {**columns, **more}, True, None, score_scale=5.0)
        assert len(pairs) == count
        texts[name] = {text for pair in pairs for text in pair.texts}
    assert not texts["dev"] & texts["train"] and not texts["test"] & texts["train"]
    for name, documents in (("train", 4), ("valid", 2), ("test", 1)):
        sentences = read_sentences(f"{folder}/entities/{name}.txt", "data_dir")
        assert len({sentence.document for sentence in sentences}) == documents
        tags = {tag for sentence in sentences for tag in sentence.tags} | {"I-PER"}
        assert tags == {"B-LOC", "B-PER", "I-LOC", "I-PER", "O"}
    for name, count in (("train", 12), ("val", 4), ("test", 2)):
        questions = read_questions(f"{folder}/endings/{name}.csv", labelled=name != "test")
        assert [len(set(question.endings)) for question in questions] == [4] * count
