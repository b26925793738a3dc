"""Tests of multiple choice: SWAG's files, records, the model, and whole runs."""

import csv
import functools
import io
import random

import numpy as np
import pytest

from bert_tf.modeling import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.multiple_choice.data import Question, QuestionEncoder, read_questions
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from tests.support import numpy_bert
from tests.support.encoded import tokenizer_of
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.pretraining_runs import run, variables, write_config
from tests.support.record_files import read_sequences
from tests.support.refusals import refuses
from tests.support.registered_tasks import run_in
from tests.support.small_pretraining import SMALL, difference, tensors

COLUMNS = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)
UNLABELLED = COLUMNS.removesuffix(",label")
VOCAB = "[PAD] [UNK] [CLS] [SEP] someone sits . she eats sleeps runs , fast a".split()


def make_csv(*rows, columns=COLUMNS):
    """Returns the text of a file. Columns that a row lacks hold "x"."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns.split(","), restval="x", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


ENDINGS = ["eats, fast.", 'a "run".', "sleeps\nfast.", "runs."]
QUESTION = Question("Someone sits.", "She", ENDINGS, 2)
ROW = {"sent1": "Someone sits.", "sent2": "She", "label": "2"}
ROW |= {f"ending{i}": ending for i, ending in enumerate(ENDINGS)}


def read(folder, text, labelled=True):
    (folder / "train.csv").write_text(text, encoding="utf-8", newline="")
    return read_questions(f"{folder}/train.csv", labelled)


def test_columns_are_found_by_name(tmp_path):
    assert read(tmp_path, make_csv(ROW)) == [QUESTION]
    shuffled = ",".join(sorted(COLUMNS.split(",")))
    assert read(tmp_path, "\ufeff" + make_csv(ROW, columns=shuffled)) == [QUESTION]
    questions = read(tmp_path, make_csv(ROW, ROW, columns=UNLABELLED), labelled=False)
    assert len(questions) == 2 and questions[0].label is None
    book = "many words, " * 20_000
    assert read(tmp_path, make_csv({**ROW, "sent1": book}))[0].context == book


@pytest.mark.parametrize(
    "text, message",
    [
        (
            make_csv({}, columns="sent1,sent2,ending0,ending1,label"),
            "must name the columns sent1, .*, label, with .*; it lacks 'ending2', 'ending3' and has"
            " 'sent1', .* --data_dir must be a folder with SWAG's csv files with four endings",
        ),
        (make_csv({}, columns=UNLABELLED), "it lacks 'label' and has"),
        (make_csv(ROW, {**ROW, "label": "4"}), "line 4: the label must be .* from 0 to 3; got '4'"),
        (make_csv({**ROW, "label": ""}), "train.csv, line 2: the line has no label; fill"),
        (make_csv(ROW) + "1,2,3\n", "line 4: the line has 3 columns, .* text with .,. in it.$"),
        (make_csv(ROW) + "1," * 12 + "\n", "line 4: the line has 13 columns"),
        (
            make_csv(ROW).replace("video-id", "sent2"),
            "must name each column once; it names 'sent2' more",
        ),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    refuses(message, read, tmp_path, text)


def written(folder, questions, length):
    """Returns the records: pieces and segments of each choice, and the label."""
    path, encoder = f"{folder}/file.tf_record", QuestionEncoder(tokenizer_of(VOCAB), length, 4)
    assert write_records(path, questions, encoder) == len(questions)
    return list(read_sequences(path, VOCAB, length))


def test_the_four_sequences_of_a_question(tmp_path):
    endings = ["eats .", "sleeps .", "runs , fast .", ""]
    questions = [
        Question("Someone sits.", "She", endings, 2),
        Question("Someone", "a", ["eats"] * 4, None),
    ]
    first, second = written(tmp_path, questions, 12)
    start, segments = "[CLS] someone sits . [SEP] she ", [0] * 5
    assert first == (
        [
            (f"{start}eats . [SEP]", segments + [1] * 4),
            (f"{start}sleeps . [SEP]", segments + [1] * 4),
            (f"{start}runs , fast . [SEP]", segments + [1] * 6),
            (f"{start}[SEP]", segments + [1] * 2),
        ],
        2,
    )
    assert second == ([("[CLS] someone [SEP] a eats [SEP]", [0, 0, 0, 1, 1, 1])] * 4, 0)
    ((choices, _),) = written(tmp_path, questions[:1], 8)  # the longer text is cut
    assert [text for text, _ in choices[1:3]] == [f"{start}{x} [SEP]" for x in ("sleeps", "runs")]
    message = "--max_seq_length must be at least 5, .*; received 4"
    refuses(message, written, tmp_path, [QUESTION], 4)


B, C, S = 3, 4, 7


def test_loss_and_predictions_are_numpys():
    model = MultipleChoiceModel(BertConfig.from_dict(SMALL))
    weights, rng = set_random_weights(model), np.random.default_rng(0)
    features = {
        "input_ids": rng.integers(0, 53, (B, C, S), dtype=np.int32),
        "input_mask": (np.arange(S) < rng.integers(2, S, (B, C, 1))).astype(np.int32),
        "segment_ids": rng.integers(0, 2, (B, C, S), dtype=np.int32),
    }
    bert, scores = numpy_bert.NumpyBert(SMALL, weights), np.zeros((B, C))
    for c in range(C):  # the sequence of each choice by itself
        outputs = bert.forward(*(x[:, c] for x in features.values()))
        scores[:, c] = outputs["pooled_output"] @ weights["output_weights"][0]
    log_probs = numpy_bert.log_softmax(scores)
    labels = features["label_ids"] = rng.integers(0, C, B, dtype=np.int32)
    losses = -log_probs[np.arange(B), labels]
    batch = tensors(features)
    predictions = predict(model, batch)
    assert difference(predictions["outputs"], np.exp(log_probs)) < 2e-6
    assert difference(predictions["per_example_loss"], losses) < 2e-6
    np.testing.assert_array_equal(predictions["label_ids"], labels)
    loss, sums = compute(model, batch)
    assert difference(loss, losses.mean()) < 2e-6
    assert [x.numpy() for x in sums["accuracy"]] == [(log_probs.argmax(-1) == labels).sum(), B]


def questions(count):
    """Returns rows in which the right ending is "runs"; the others are "sleeps"."""
    labels = random.Random(count).choices(range(4), k=count)
    endings = [{f"ending{i}": "runs" if i == x else "sleeps" for i in range(4)} for x in labels]
    return [{**ROW, **of, "label": x} for of, x in zip(endings, labels, strict=True)]


@pytest.fixture
def folder(tmp_path):
    """A folder with the files of a tiny run."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    for name, count, columns in (
        ("train", 24, COLUMNS),
        ("val", 7, COLUMNS),
        ("test", 5, UNLABELLED),
    ):
        (tmp_path / f"{name}.csv").write_text(make_csv(*questions(count), columns=columns))
    write_config(tmp_path / "bert_config.json", hidden_dropout_prob=0.0)
    return tmp_path


@pytest.mark.slow
def test_the_program_learns_scores_and_chooses(folder):
    output_dir = folder / "out"
    run(
        *(f"--data_dir={folder}", f"--output_dir={output_dir}"),
        *(f"--vocab_file={folder}/vocab.txt", f"--bert_config_file={folder}/bert_config.json"),
        *("--do_train", "--do_eval", "--do_predict", "--length_buckets=none"),
        *("--max_seq_length=9", "--train_batch_size=8", "--num_train_epochs=10"),
        "--learning_rate=0.01",
        program="run_multiple_choice.py",
    )
    results = reporting.read_results(str(output_dir / "eval_results.txt"))
    assert results.keys() == {"eval_accuracy", "eval_loss", "global_step", "loss"}
    assert results["eval_accuracy"] == 1.0
    assert results["eval_loss"] == results["loss"] < 1.0  # a guess has log(4) = 1.39
    assert results["global_step"] == 30
    probabilities = np.loadtxt(output_dir / "test_results.tsv", delimiter="\t")
    assert probabilities.shape == (5, 4)
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, rtol=1e-5)
    assert probabilities.argmax(-1).tolist() == [row["label"] for row in questions(5)]
    assert {"output_weights", "output_weights/adam_m"} <= variables(output_dir).keys()


choose = functools.partial(run_in, name="multiple_choice", max_seq_length=9)


def test_length_buckets_change_no_score(folder):
    results = [choose(folder, do_eval=True, length_buckets=lengths) for lengths in ("none", "8")]
    assert results[1] == pytest.approx(results[0], rel=1e-5)


@pytest.mark.parametrize(
    "flag, file, text, message",
    [
        ("do_train", "train.csv", "", "train.csv is empty"),
        ("do_eval", "val.csv", "a,b\n", "val.csv: the first line must name the columns"),
        ("do_predict", "test.csv", "a,b\n", "test.csv: .* it lacks 'sent1', 'sent2', 'end"),
    ],
)
def test_a_bad_file_is_refused_before_the_run(folder, flag, file, text, message):
    (folder / file).write_text(text)
    refuses(message, choose, folder, **{flag: True})
    assert not (folder / "out").exists()
