"""Tests of the classification tasks' processors: the examples of each file, and bad files."""

import csv
import os
import random
import re
from pathlib import Path

import pytest

from bert_tf.datasets.tables import read_rows
from bert_tf.errors import UserError
from bert_tf.tasks.classification import processors
from bert_tf.tasks.classification.processors import XNLI_LANGUAGES
from tests.support.golden import needs_golden
from tests.support.refusals import refuses
from tests.support.small_classification import shown


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder)


def rows(*lines):
    return "".join("\t".join(line.split("|")) + "\n" for line in lines)


def read(task, which, folder, **arguments):
    processor = processors.get_processor(task, str(folder), **arguments)
    return shown(getattr(processor, f"get_{which}_examples")(str(folder)))


MNLI_HEADER = "index|p|pair|genre|b1|b2|p1|p2|sentence1|sentence2|label1|gold_label"
NLI_LABELS = ["contradiction", "entailment", "neutral"]
MNLI_LINE = "{}|1|2|fiction|b1|b2|p1|p2|{}|{}|neutral|{}"
FOUR = "neutral|" * 4  # the labels of five annotators come before the gold label
MNLI = {
    "train.tsv": rows(MNLI_HEADER, MNLI_LINE.format(31, "a", "b", "neutral")),
    "dev_matched.tsv": rows(MNLI_HEADER, MNLI_LINE.format(5, "c", "d", f"{FOUR}entailment")),
    "dev_mismatched.tsv": rows(MNLI_HEADER, MNLI_LINE.format(6, "e", "f", "contradiction")),
    "test_matched.tsv": rows("index|p|pair|g|b|b|p|p|s|s", "9|1|2|g|b|b|p|p|g|h"),
    "test_mismatched.tsv": rows("index|p|pair|g|b|b|p|p|s|s", "8|1|2|g|b|b|p|p|i|j"),
}
XNLI_HEADER = "language|gold_label|s1b|s2b|s1p|s2p|sentence1|sentence2|promptID"
ZH, DE = (f"multinli/multinli.train.{language}.tsv" for language in ("zh", "de"))
XNLI = {
    ZH: rows("premise|hypo|label", "甲|乙|neutral", "丙|丁|contradictory"),
    DE: rows("premise|hypo|label", "das|dies|entailment"),
    "xnli.dev.tsv": rows(
        *(XNLI_HEADER, "de|neutral|||||ja|nein|1", "zh|contradiction|||||是|不|1"),
        "de|entailment|||||nun|gut|2",
    ),
    "xnli.test.tsv": rows(XNLI_HEADER, "zh|entailment|||||好|吗|1"),
}
# Task -> its files, the examples of all sets, the labels.
FILES = {
    # A byte-order mark as in GLUE's files, Windows line ends, quotes as ordinary characters.
    "MRPC": (
        {
            "train.tsv": "\ufeff"
            + rows("Quality|#1 ID|#2 ID|#1 String|#2 String\r", '1|7|8|He said " |no " .\r')
            + rows("0|9|10|Été|b c"),
            "dev.tsv": rows("Quality|i|j|a|b", "0|1|2|x|y"),
            "test.tsv": rows("index|#1 ID|#2 ID|a|b", "0|1|2|x|y"),
        },
        ['train-1|He said " |no " .|1', "train-2|Été|b c|0", "dev-1|x|y|0", "test-1|x|y|0"],
        ["0", "1"],
    ),
    "CoLA": (
        {
            "train.tsv": "\ufeff" + rows("gj04|1||Our friends.", "gj04|0|*|They go to."),
            "dev.tsv": rows("gj04|1||x"),
            "test.tsv": rows("index|sentence", "0|Bill whistled."),
        },
        ["train-0|Our friends.|-|1", "train-1|They go to.|-|0", "dev-0|x|-|1"]
        + ["test-1|Bill whistled.|-|0"],
        ["0", "1"],
    ),
    "MNLI": (
        MNLI,
        ["train-31|a|b|neutral", "dev_matched-5|c|d|entailment", "test-9|g|h|contradiction"],
        NLI_LABELS,
    ),
    "AX": (
        {"diagnostic.tsv": rows("index|sentence1|sentence2", "0|The cat|A cat")},
        ["test-1|The cat|A cat|contradiction"],
        NLI_LABELS,
    ),
    "XNLI": (
        XNLI,
        ["train-1|甲|乙|neutral", "train-2|丙|丁|contradiction", "dev-2|是|不|contradiction"]
        + ["test-1|好|吗|entailment"],
        NLI_LABELS,
    ),
}


@pytest.mark.parametrize("task", FILES)
def test_files(tmp_path, task):
    files, examples, labels = FILES[task]
    write(tmp_path, files)
    for which in ("train", "dev", "test"):
        if expected := [example for example in examples if example.startswith(which)]:
            assert read(task, which, tmp_path) == expected
    assert processors.get_processor(task).get_labels() == labels


def test_the_second_sets_of_mnli(tmp_path):
    write(tmp_path, MNLI)
    also = processors.get_processor("MNLI").also["mismatched"]
    assert also.has("dev", str(tmp_path)) and also.submission_file == "MNLI-mm.tsv"
    assert also.get_dev_examples(str(tmp_path))[0].guid == "dev_mismatched-6"
    assert read("MNLI-mm", "train", tmp_path) == read("MNLI", "train", tmp_path)
    assert read("MNLI-mm", "dev", tmp_path) == ["dev_mismatched-6|e|f|contradiction"]
    assert read("MNLI-mm", "test", tmp_path) == ["test-8|i|j|contradiction"]
    (tmp_path / "dev_mismatched.tsv").unlink()
    assert not also.has("dev", str(tmp_path))


def test_xnli_in_another_language(tmp_path):
    write(tmp_path, XNLI)
    german = {"xnli_language": "de"}
    assert read("xnli", "train", tmp_path, **german) == ["train-1|das|dies|entailment"]
    expected = ["dev-1|ja|nein|neutral", "dev-3|nun|gut|entailment"]
    assert read("xnli", "dev", tmp_path, **german) == expected
    message = r"xnli.test.tsv has no line that begins with de; .* --xnli_language$"
    refuses(message, read, "xnli", "test", tmp_path, **german)
    message = "--xnli_language=de is for --task_name=XNLI; .*mnli"
    refuses(message, processors.get_processor, "mnli", **german)
    assert len(XNLI_LANGUAGES) == 15


STSB = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
PAIR = "index|sentence1|sentence2"
SENTENCES = "sentence1|sentence2"
QQP = "id|qid1|qid2|question1|question2|is_duplicate"
# The headers of the training and the test file, the columns of the texts, a label, the default.
GLUE = {
    "SST-2": ("sentence|label", "index|sentence", "sentence|-", "1", "0"),
    "STS-B": (f"{STSB}|score", STSB, SENTENCES, 2.75, 0.0),
    "QQP": (QQP, "id|question1|question2", "question1|question2", "1", "0"),
    "QNLI": (
        *("index|question|sentence|label", "index|question|sentence", "question|sentence"),
        *("not_entailment", "entailment"),
    ),
    "RTE": (f"{PAIR}|label", PAIR, SENTENCES, "not_entailment", "entailment"),
    "WNLI": (f"{PAIR}|label", PAIR, SENTENCES, "1", "0"),
}


@pytest.mark.parametrize("task", GLUE)
def test_glue(tmp_path, task):
    """In these files each column holds its name, except that the last one may hold a label."""
    header, test_header, texts, label, default = GLUE[task]
    training = rows(header, f"{header.rpartition('|')[0]}|{label}")
    files = {"train.tsv": training, "dev.tsv": training, "test.tsv": rows(*[test_header] * 2)}
    write(tmp_path, files)
    for which, expected in (("train", label), ("dev", label), ("test", default)):
        assert read(task, which, tmp_path) == [f"{which}-1|{texts}|{expected}"]


def test_short_rows_of_qqp_are_skipped(tmp_path, warnings):
    write(tmp_path, {"train.tsv": rows(QQP, "1|1|2|Why?|How?|1", "2|1|2|Wh", "3|1|2|a|b|0")})
    assert read("QQP", "train", tmp_path) == ["train-1|Why?|How?|1", "train-3|a|b|0"]
    assert warnings == [
        f"{tmp_path}/train.tsv: skipped lines with fewer than 6 columns: 1; the first is line 3"
    ]
    # In the test file they are refused: GLUE takes predictions by the numbers of its lines.
    write(tmp_path, {"test.tsv": rows("id|question1|question2", "0|Why?", "1|How?|Who?")})
    message = "test.tsv, line 2: the line must have at least 3 columns; it has 2"
    refuses(message, read, "QQP", "test", tmp_path)


@needs_golden
@pytest.mark.parametrize(
    "task, counts", [("MRPC", (3668, 408, 1725)), ("STS-B", (5749, 1500, 1379))]
)
def test_real_files(task, counts):
    folder = str(Path(os.environ["BERT_TF_GOLDEN"]).parent / "data" / task)
    for which, count in zip(("train", "dev", "test"), counts, strict=True):
        found = read(task, which, folder)
        assert len(found) == count
        assert not any("||" in example or "|-|" in example for example in found)


def test_rows_equal_the_csv_module_s(tmp_path):
    rng = random.Random(0)
    for _ in range(20):
        text = "x" + "".join(rng.choices("ab\t\"' \n,\u2028\u00e9\x0b\x1c", k=200))
        write(tmp_path, {"f.tsv": text})
        # Lines as a file object gives them, not as str.splitlines does.
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        expected = list(csv.reader(lines, delimiter="\t", quotechar=None))
        assert list(read_rows(str(tmp_path / "f.tsv"))) == expected


@pytest.mark.parametrize(
    "task, lines, text, line",
    [
        ("sst-2", ["sentence|label", "a|1", "the film was|0|good|1"], "the film was", 3),
        ("cola", ["x|1||a b", "x|0|*|c|d", "x|1||e|f"], "c", 2),
        ("mrpc", ["h|1|2|s|t", "1|5|6|a|b|c", "0|5|6|d|e"], "a", 2),
    ],
)
def test_of_long_rows_the_first_columns_are_read_as_in_the_original(
    tmp_path, warnings, task, lines, text, line
):
    write(tmp_path, {"train.tsv": "".join(f"{x}\n" for x in lines).replace("|", "\t")})
    found = processors.get_processor(task).read("train", str(tmp_path))
    assert text in [example.text_a for example in found]
    count = sum(x.count("|") > lines[0].count("|") for x in lines)
    assert warnings == [
        f"{tmp_path}/train.tsv: lines with more columns than the first line: {count}, the first is"
        f" line {line}. Columns are counted from the left; if a text has a tab in it, write a space"
        " instead"
    ]


def test_empty_lines_are_skipped(tmp_path):
    write(tmp_path, {"train.tsv": rows("Quality|i|j|a|b", "", "1|0|0|x|y") + "\n\n"})
    assert read("mrpc", "train", tmp_path) == ["train-2|x|y|1"]
    # In a test file only at its end, since predictions are numbered.
    write(tmp_path, {"test.tsv": rows("index|i|j|a|b", "0|0|0|x|y") + "\n\n"})
    assert read("mrpc", "test", tmp_path) == ["test-1|x|y|0"]
    write(tmp_path, {"test.tsv": rows("index|i|j|a|b", "0|0|0|x|y", "", "1|0|0|x|y")})
    with pytest.raises(UserError, match="/test.tsv, line 3: the line is empty, but examples fol"):
        read("mrpc", "test", tmp_path)


GOOD = rows("Quality|i|j|a|b", "1|0|0|x|y", "0|0|0|x|y")


@pytest.mark.parametrize(
    "where, text, message",
    [
        ("mrpc other", GOOD, r"/train.tsv cannot be read .*'other.tsv'\); --data_dir must be"),
        (
            *("mrpc train", GOOD + rows("1|0|0|x")),
            "/train.tsv, line 4: the line must have at least 5 columns; it has 4. It begins"
            r" '1\\t0\\t0\\tx'; correct or delete it",
        ),
        (
            *("mrpc dev", GOOD + rows("2|0|0|x|y")),
            "/dev.tsv, line 4: label '2' must be one of '0', '1'; correct or delete the line$",
        ),
        (
            *("cola train", rows("source|label|mark|sentence", "gj04|1||x")),
            r"/train.tsv, line 1 \(an example, since this file has no header\): label 'label' must "
            "be one of '0', '1'; correct or delete the line$",
        ),
        (
            *("mrpc train", rows("1|0|0|x|y", "0|0|0|x|y")),
            r"/train.tsv, line 1: the line must be a header with the names of the columns, but it "
            r"looks like an example \('1' in column 0, counted from 0\); insert the header before",
        ),
        ("mrpc test", rows("0|0|0|x|y"), r"/test.tsv, line 1: .* be a header .* \('0' in column 0"),
        (
            *("sts-b train", rows("0|m|MSRvid|2012|1|none|none|a|b|2.750")),
            r"/train.tsv, line 1: the line must be a header .* \('2.750' in column 9",
        ),
        (
            *("sts-b train", rows(f"{STSB}|score", "0|m|f|2|1|n|n|a|b|good")),
            "/train.tsv, line 2: label 'good' must be a number from 0 to 5; correct or delete",
        ),
        (
            *("sts-b train", rows(f"{STSB}|score", "0|m|f|2|1|n|n|a|b|5.5")),
            "label '5.5' must be a number from 0 to 5",
        ),
        (
            *("mrpc train", GOOD.encode() + b"1\t0\t0\tcaf\xe9\tx\n"),
            r"/train.tsv, line 4, is not UTF-8 \(invalid continuation byte\); .*convert",
        ),
        ("rte nowhere", "", "train.tsv cannot be read .*there is no folder .*nowhere"),
        ("ax train", "", "no train set, only test; leave out --do_train$"),
    ],
)
def test_bad_files(tmp_path, where, text, message):
    """`where`: the task and the file with this text; the folder `nowhere` does not exist."""
    task, name = where.split()
    write(tmp_path, {f"{name}.tsv": text})
    folder = tmp_path / "nowhere" if name == "nowhere" else tmp_path
    refuses(message, read, task, name if name in ("dev", "test") else "train", folder)


def test_names():
    assert {"cola", "mnli", "mrpc", "xnli"} <= processors.processors.keys()
    for name in processors.processors:
        assert name == name.lower()
        if name != "table":
            assert type(processors.get_processor(name.upper())) is processors.processors[name]
    for name in ("sst-2", "SST2", "sst2"):
        assert processors.get_processor(name).submission_file == "SST-2.tsv"
    with pytest.raises(UserError, match="--task_name must be one of ax, cola,.*xnli; got snli"):
        processors.get_processor("snli")


def test_imdb(tmp_path):
    files = {"train/pos/1_9.txt": "Fine.<br />Truly", "train/pos/0_10.txt": "Good"}
    files |= {"train/neg/3_1.txt": "Dull", "train/unsup/4_0.txt": "?"}
    write(tmp_path, {**files, "test/neg/0_2.txt": "No", "test/pos/0_7.txt": "Yes"})
    training = ["train-neg-3_1|Dull|-|neg", "train-pos-0_10|Good|-|pos"]
    training.append("train-pos-1_9|Fine.<br />Truly|-|pos")
    assert read("imdb", "train", tmp_path) == training
    for which in ("dev", "test"):
        expected = [f"{which}-neg-0_2|No|-|neg", f"{which}-pos-0_7|Yes|-|pos"]
        assert read("imdb", which, tmp_path) == expected
    found = processors.get_processor("imdb", str(tmp_path)).get_test_examples(str(tmp_path))
    assert [example.known_label for example in found] == ["neg", "pos"]
    (tmp_path / "train/neg/3_1.txt").unlink()
    refuses("no reviews in .*train/neg: .* holds 'test', 'tr", read, "imdb", "train", tmp_path)
