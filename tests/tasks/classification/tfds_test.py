"""Tests of bert_tf.tasks.classification.tfds_input, with small datasets that they build."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.classification import processors
from bert_tf.tasks.classification.examples import DataProcessor
from bert_tf.tasks.classification.settings import TableColumns, TfdsSource
from tests.support.refusals import refuses
from tests.support.small_classification import shown
from tests.support.small_datasets import build

PAIRS = {
    "train": [("One river.", "Two rivers!", 1), ("Été", "b", 0), ("c", "d", 1)],
    "validation": [("e", "f", 0)],
    "test": [("g", "h", -1)],
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder with small prepared datasets that have the features of real ones."""
    tfds = pytest.importorskip("tensorflow_datasets")
    folder = str(tmp_path_factory.mktemp("datasets"))
    nli = ["entailment", "neutral", "contradiction"]
    languages = {"languages": ["en", "zh"]}
    pair = {"sentence1": str, "sentence2": str}
    build(folder, "tiny_mrpc", {**pair, "label": ["not_equivalent", "equivalent"]}, PAIRS)
    build(
        *(folder, "tiny_mnli", {"premise": str, "hypothesis": str, "label": nli}),
        {
            "train": [("a", "b", 0), ("c", "d", 2)],
            "validation_matched": [("e", "f", 1)],
            "validation_mismatched": [("g", "h", 0)],
            "test_matched": [("i", "j", -1)],
            "test_mismatched": [("k", "l", -1)],
        },
    )
    translations = {
        "premise": tfds.features.Translation(**languages),
        "hypothesis": tfds.features.TranslationVariableLanguages(**languages),
        "label": nli,
    }
    translated = [
        ({"en": "yes", "zh": "是"}, {"zh": "不", "en": "no"}, 2),
        ({"en": "well", "zh": "好"}, {"en": "good", "zh": "吗"}, 0),
    ]
    build(folder, "tiny_xnli", translations, {"validation": translated})
    reviews = {"train": [("fine", 1), ("dull", 0)], "test": [("so", 1)]}
    build(folder, "tiny_reviews", {"text": str, "label": ["neg", "pos"]}, reviews)
    scores = {"train": [("a", "b", 3.5)], "validation": [("c", "d", 5.25)]}
    build(folder, "tiny_stsb", {**pair, "label": np.float32}, scores)
    news = {"title": str, "description": str, "topic": ["World", "Sports"], "number": np.int64}
    articles = [("A", "a", 1, 7), ("B", "b", 0, 8), ("C", b"caf\xe9", 0, 9)]
    build(folder, "tiny_news", news, {"train": articles})
    # Numbered and shuffled, like GLUE's datasets.
    numbered = {
        "train": [(f"s{i}", i % 2, i) for i in range(9)],
        "test": [(f"t{i}", -1, i) for i in range(9)],
    }
    single = {"sentence": str, "label": ["no", "yes"]}
    build(folder, "tiny_cola", {**single, "idx": np.int32}, numbered, shuffled=True)
    build(folder, "tiny_sst", single, {"test": [(f"t{i}", -1) for i in range(9)]}, shuffled=True)
    tests = {"test": [("a", "b", 1), ("c", "d", 0)]}
    build(folder, "tiny_equal", {**pair, "label": ["different", "equal"]}, tests)
    lines = {"train": [("a", 0), ("b", 1)]}
    build(folder, "tiny_lines", {"text": str, "label": ["no", "y\u2028es"]}, lines)
    kinds = tfds.features.Sequence(tfds.features.ClassLabel(names=["joy", "fear", "anger"]))
    several = {"train": [("x", [2, 0]), ("y", []), ("z", [1])], "test": [("q", [0])]}
    build(folder, "tiny_emotions", {"text": str, "label": kinds}, several)
    return folder


def processor(task, tfds, data_dir, columns=None, language="zh", **source):
    source = TfdsSource(tfds=tfds, tfds_data_dir=data_dir, **source)
    return processors.get_processor(task, xnli_language=language, columns=columns, source=source)


def read(task, which, *arguments, **more):
    return shown(getattr(processor(task, *arguments, **more), f"get_{which}_examples")(""))


EXAMPLES = {  # task, set, dataset -> its examples
    # Classes by number where the names differ.
    ("MRPC", "train", "tiny_mrpc"): [
        *("train-0|One river.|Two rivers!|1", "train-1|Été|b|0", "train-2|c|d|1"),
    ],
    ("MRPC", "dev", "tiny_mrpc"): ["dev-0|e|f|0"],
    ("MRPC", "test", "tiny_mrpc:1.2.0"): ["test-0|g|h|0"],
    # Classes by name where they are the task's: in the dataset 0 is entailment.
    ("MNLI", "train", "tiny_mnli"): ["train-0|a|b|entailment", "train-1|c|d|contradiction"],
    ("MNLI", "dev", "tiny_mnli"): ["dev-0|e|f|neutral"],
    ("MNLI", "test", "tiny_mnli"): ["test-0|i|j|contradiction"],
    # One language of several.
    ("XNLI", "dev", "tiny_xnli"): ["dev-0|是|不|contradiction", "dev-1|好|吗|entailment"],
    # Single texts; without a dev set the test set is evaluated, as with files.
    ("IMDB", "train", "tiny_reviews"): ["train-0|fine|-|pos", "train-1|dull|-|neg"],
    ("IMDB", "dev", "tiny_reviews"): ["dev-0|so|-|pos"],
    ("STS-B", "train", "tiny_stsb"): ["train-0|a|b|3.5"],  # labels are numbers
}


@pytest.mark.parametrize("task, which, dataset", EXAMPLES)
def test_examples(data_dir, task, which, dataset):
    assert read(task, which, dataset, data_dir) == EXAMPLES[task, which, dataset]


def test_a_language_the_tasks_files_and_second_sets(data_dir):
    (first, _) = read("XNLI", "dev", "tiny_xnli", data_dir, language="en")
    assert first == "dev-0|yes|no|contradiction"
    found = processor("MRPC", "tiny_mrpc", data_dir)
    assert found.get_labels() == ["0", "1"]
    assert found.metrics == ("accuracy", "f1") and found.submission_file == "MRPC.tsv"
    also = processor("MNLI", "tiny_mnli", data_dir).also["mismatched"]
    assert also.has("dev", "")
    assert [e.text_a for e in also.get_dev_examples("") + also.get_test_examples("")] == ["g", "k"]
    assert not processor("MNLI", "tiny_mrpc", data_dir).also["mismatched"].has("dev", "")


@pytest.mark.parametrize(
    ("task", "dataset", "known"),
    [
        ("IMDB", "tiny_reviews", ["pos"]),
        ("SST-2", "tiny_sst", [None] * 9),
        ("MRPC", "tiny_mrpc", [None]),
        ("QQP", "tiny_equal", ["1", "0"]),  # the task's name of the dataset's class
        ("MNLI", "tiny_equal", [None, None]),  # two classes, three in the task
    ],
)
def test_labels_of_a_test_set_are_known_where_it_has_them(data_dir, task, dataset, known):
    found = processor(task, dataset, data_dir).get_test_examples("")
    assert [example.known_label for example in found] == known


def test_examples_are_in_the_order_of_their_own_numbers(data_dir, warnings):
    labels = ["0", "1"]
    for which, letter in (("train", "s"), ("test", "t")):
        found = read("CoLA", which, "tiny_cola", data_dir)
        guids, examples = zip(*(row.split("|", 1) for row in found), strict=True)
        assert list(examples) == [
            f"{letter}{i}|-|{labels[i % 2 if which == 'train' else 0]}" for i in range(9)
        ]
        # The guid, which is for the log, has the place in the files.
        assert sorted(guids) == [f"{which}-{i}" for i in range(9)]
    splits = ("train[50%:]", "train+train[:50%]")
    found = [read("CoLA", "train", "tiny_cola", data_dir, tfds_train_split=x) for x in splits]
    texts = [[row.split("|")[1] for row in rows] for rows in found]
    assert all(part == sorted(part) for part in texts) and 0 < len(texts[0]) < 9
    assert len(texts[1]) == 18 - len(texts[0])
    assert not warnings
    found = read("SST-2", "test", "tiny_sst", data_dir)
    assert sorted(row.split("|")[1] for row in found) == [f"t{i}" for i in range(9)]
    (warning,) = warnings
    assert "tiny_sst is shuffled and has no feature `idx` with the numbers of its exa" in warning
    assert warning.endswith("of its files, but SST-2.tsv needs the order of the numbers")


def test_a_user_s_processor_gives_the_labels(data_dir, monkeypatch):
    class Own(DataProcessor):
        def get_labels(self):
            return ["no", "yes"]

    monkeypatch.setitem(processors.processors, "own", Own)
    found = read("own", "train", "tiny_cola", data_dir)
    assert [row.partition("|")[2] for row in found[:2]] == ["s0|-|no", "s1|-|yes"]


def test_features_by_name_and_splits(data_dir):
    columns = TableColumns(text_a_column="title", text_b_column="description", label_column="topic")
    splits = {"tfds_train_split": "train[:1]", "tfds_dev_split": "train[1:2]"}
    arguments = ("tiny_news", data_dir, columns)
    assert read("table", "train", *arguments, **splits) == ["train-0|A|a|Sports"]
    assert read("table", "dev", *arguments, **splits) == ["dev-0|B|b|World"]
    found = processor("table", *arguments, **splits)
    assert found.get_labels() == ["World", "Sports"]
    assert not found.has("test", "")


@pytest.mark.parametrize(
    "what, message",
    [
        ("MRPC dev reviews", "no split validation; it has 'test', 'train'. .* --tfds_dev_split"),
        ("MRPC train news", "tiny_news has no text .*, only 'description', .* --text_a_column"),
        (
            "table train news text_a=body label=topic",
            "--text_a_column=body: tiny_news has no such feature; it has 'description', 'number",
        ),
        (
            "table train news text_b=description label=topic",
            "--text_b_column=description needs --text_a_column; the features of tiny_news are",
        ),
        (
            "MRPC train news text_a=title",
            "--tfds=tiny_news has no feature 'label'; choose the labels with --label_column from",
        ),
        (
            "table train news text_a=number label=topic",
            "--tfds=tiny_news: the feature 'number' must be a string, .* with --text_a_column and",
        ),
        (
            "table train news text_a=title label=number",
            "--tfds=tiny_news: the feature 'number' is missing or does not name its classes; list",
        ),
        (
            "table train news text_a=title label=number labels=7,9",
            "train, example 1 .counted from 0.: label '8' must be one of '7', '9'; change "
            "--label_column, --tfds_train_split or --labels",
        ),
        (
            "table train news text_a=description label=topic",
            "--tfds=tiny_news, split train, example 2 .counted from 0.: a text is not UTF-8",
        ),
        (
            "MNLI train mrpc",
            "has the classes 'not_equivalent', 'equivalent', but the task has 'contradict.* "
            "choose another --task_name, such as table",
        ),
        ("table train lines", r"feature 'label': the class 'y\\u2028es' must be text on one"),
        ("MRPC train no", "--tfds=tiny_no: TensorFlow Datasets cannot load tiny_no"),
        (
            "STS-B dev stsb",
            "--tfds=tiny_stsb, split validation, example 0 .counted from 0.: label '5.25' must be a"
            " number from 0 to 5; change --label_column, --tfds_dev_split or --task_name",
        ),
        ("MRPC dev mrpc[test]", "0 .counted from 0.: the example has no label; .*_dev_split"),
        ("MRPC dev mrpc[tset]", "cannot read split 'tset'; tiny_mrpc has 'test', 'train'"),
        ("XNLI dev xnli", "'premise' must be a string, .* language, de included; .* --xnli_la"),
    ],
)
def test_what_is_refused(data_dir, what, message):
    """`what`: the task, the set to read, the dataset and perhaps its split, flags of columns."""
    task, which, dataset, *flags = what.split()
    dataset, _, split = dataset.removesuffix("]").partition("[")
    columns = {f"{name}_column": value for name, value in (flag.split("=") for flag in flags)}
    if "labels_column" in columns:
        columns["labels"] = columns.pop("labels_column").split(",")
    with pytest.raises(UserError, match=message):
        found = processor(
            *(task, f"tiny_{dataset}", data_dir, TableColumns(**columns), "de"),
            tfds_dev_split=split or None,
        )
        found.read(which, "")


def test_flags_that_do_not_apply(data_dir):
    fixed = "--regression is for .* the files and labels of --task_name=MRPC are fixed"
    for columns, message in (
        ({"has_header": False}, "--has_header is for files; leave it out with"),
        ({"delimiter": ";"}, "--delimiter is for files"),
        ({"labels": ["a", "b"]}, "--labels is for --task_name=table; leave it out"),
        ({"regression": True}, fixed),
    ):
        refuses(message, processor, "MRPC", "tiny_mrpc", data_dir, TableColumns(**columns))
    source = TfdsSource(tfds="tiny_mrpc", tfds_data_dir=data_dir)
    with pytest.raises(UserError, match="--data_dir=mrpc and --tfds=tiny_mrpc exclude each other"):
        processors.get_processor("MRPC", "mrpc", source=source)


def test_several_classes_for_each_example(data_dir):
    several = TableColumns(multi_label=True)
    found = processor("table", "tiny_emotions", data_dir, several)
    assert found.get_labels() == ["joy", "fear", "anger"]
    labels = [example.label for example in found.get_train_examples("")]
    assert labels == [("anger", "joy"), (), ("fear",)]
    assert [example.label for example in found.get_test_examples("")] == [()]
    found = processor("table", "tiny_emotions", data_dir, TableColumns())
    with pytest.raises(UserError, match="'label' has several values for each example. Set --multi"):
        found.get_train_examples("")


def test_groups_of_a_dataset(data_dir):
    columns = TableColumns(text_a_column="description", label_column="topic", group_column="number")
    found = processor("table", "tiny_news", data_dir, columns, tfds_dev_split="train[:2]")
    assert [x.group for x in found.get_dev_examples("")] == ["7", "8"]
    assert found.best_metric == "eval_ndcg@10"
    with pytest.raises(UserError, match="--group_column=x: tiny_news has no such feature; it has"):
        processor("table", "tiny_news", data_dir, TableColumns(group_column="x"))
