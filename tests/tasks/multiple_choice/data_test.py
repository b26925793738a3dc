"""Tests of multiple choice: SWAG's files, records, and the model."""

import csv
import io

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.modeling import BertConfig
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.multiple_choice.data import Question, QuestionEncoder, read_questions
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS
from tests.support import numpy_bert
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.record_files import read_sequences
from tests.support.small_pretraining import SMALL, difference, tensors

COLUMNS = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)
VOCAB = "[PAD] [UNK] [CLS] [SEP] someone sits . she eats sleeps runs , fast a".split()


def make_csv(*rows, columns=COLUMNS):
    """Returns the text of a file. Columns that a row lacks hold "x"."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns.split(","), restval="x")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


ENDINGS = ["eats, fast.", 'a "run".', "sleeps\nfast.", "runs."]
QUESTION = Question("Someone sits.", "She", ENDINGS, 2)
ROW = {"sent1": "Someone sits.", "sent2": "She", "label": "2"}
ROW |= {f"ending{i}": ending for i, ending in enumerate(ENDINGS)}


@pytest.fixture
def write(tmp_path):
    def write_file(text, encoding="utf-8"):
        path = tmp_path / "train.csv"
        path.write_bytes(text.encode(encoding))
        return str(path)

    return write_file


def test_columns_are_found_by_name(write):
    assert read_questions(write(make_csv(ROW)), labelled=True) == [QUESTION]
    shuffled = ",".join(sorted(COLUMNS.split(",")))
    assert read_questions(write("\ufeff" + make_csv(ROW, columns=shuffled)), True) == [QUESTION]
    # A test file has no labels.
    row = {name: text for name, text in ROW.items() if name != "label"}
    path = write(make_csv(row, row, columns=COLUMNS.removesuffix(",label")))
    questions = read_questions(path, labelled=False)
    assert len(questions) == 2 and questions[0].label is None


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "train.csv is empty; it must hold a header line, then its examples"),
        (make_csv(), "train.csv has no examples; it must have one on each line after the header"),
        (
            make_csv({}, columns="sent1,sent2,ending0,ending1,label"),
            "must name the columns sent1, .*, label, with .*; it lacks 'ending2', 'ending3' and has"
            " 'sent1', .* --data_dir must be a folder with SWAG's csv files with four endings",
        ),
        (make_csv({}, columns=COLUMNS.removesuffix(",label")), "it lacks 'label' and has"),
        (make_csv(ROW, {**ROW, "label": "4"}), "line 4: the label must be .* from 0 to 3; got '4'"),
        (make_csv({**ROW, "label": ""}), "train.csv, line 2: the line has no label; fill"),
        (make_csv(ROW) + "1,2,3\n", "line 4: the line has 3 columns, .* text with .,. in it.$"),
        (make_csv(ROW) + "1," * 12 + "\n", "line 4: the line has 13 columns"),
        (
            make_csv(ROW).replace("video-id", "sent2"),
            "must name each column once; it names 'sent2' more",
        ),
        (make_csv(ROW) + '"x', "line 4: unexpected end of data; write a quote"),
    ],
)
def test_what_is_refused(write, text, message):
    with pytest.raises(UserError, match=message):
        read_questions(write(text), labelled=True)


def test_a_sentence_may_be_a_whole_book(write):
    text = "many words, " * 20_000
    (question,) = read_questions(write(make_csv({**ROW, "sent1": text})), labelled=True)
    assert question.context == text


def test_files_that_cannot_be_read(write, tmp_path):
    message = "train.csv does not exist: .*--data_dir must be the folder with the task's files"
    with pytest.raises(UserError, match=message):
        read_questions(str(tmp_path / "train.csv"), labelled=True)
    with pytest.raises(UserError, match="line 2, is not UTF-8"):
        read_questions(write(make_csv({**ROW, "sent1": "caf\u00e9"}), "latin-1"), True)


def written(tmp_path, questions, length):
    """Returns the records: pieces and segments of each choice, and the label."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    tokenizer = FastTokenizer(str(tmp_path / "vocab.txt"), True, SEQUENCE_TOKENS)
    path = str(tmp_path / "file.tf_record")
    assert write_records(path, questions, QuestionEncoder(tokenizer, length, 4)) == len(questions)
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


def test_the_longer_text_is_cut(tmp_path):
    question = Question("Someone sits.", "She", ["runs, fast.", "eats", "eats", "eats"], 0)
    ((choices, _),) = written(tmp_path, [question], 8)
    assert choices[0][0] == "[CLS] someone sits . [SEP] she runs [SEP]"
    assert choices[1][0] == "[CLS] someone sits . [SEP] she eats [SEP]"
    with pytest.raises(UserError, match="--max_seq_length must be at least 5, .*; received 4"):
        written(tmp_path, [QUESTION], 4)


B, C, S = 3, 4, 7


def make_features(seed=0):
    """Returns the numpy features of a batch, with padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, S, size=(B, C, 1))
    return {
        "input_ids": rng.integers(0, 53, (B, C, S), dtype=np.int32),
        "input_mask": (np.arange(S) < lengths).astype(np.int32),
        "segment_ids": rng.integers(0, 2, (B, C, S), dtype=np.int32),
        "label_ids": rng.integers(0, C, B, dtype=np.int32),
    }


def expected_log_probs(weights, features):
    """Returns log probabilities, float64 [B, C], each choice's sequence computed by itself."""
    bert = numpy_bert.NumpyBert(SMALL, weights)
    scores = np.zeros((B, C))
    for c in range(C):
        names = ("input_ids", "input_mask", "segment_ids")
        outputs = bert.forward(*(features[name][:, c] for name in names))
        scores[:, c] = outputs["pooled_output"] @ weights["output_weights"][0]
    return numpy_bert.log_softmax(scores)


def test_loss_and_predictions_are_numpys():
    model = MultipleChoiceModel(BertConfig.from_dict(SMALL))
    weights = set_random_weights(model)
    features = make_features()
    log_probs = expected_log_probs(weights, features)
    batch = tensors(features)
    losses = -log_probs[np.arange(B), features["label_ids"]]
    predictions = predict(model, batch)
    assert difference(predictions["outputs"], np.exp(log_probs)) < 2e-6
    assert difference(predictions["per_example_loss"], losses) < 2e-6
    np.testing.assert_array_equal(predictions["label_ids"], features["label_ids"])
    right = log_probs.argmax(-1) == features["label_ids"]
    loss, sums = compute(model, batch)
    assert difference(loss, losses.mean()) < 2e-6
    assert [x.numpy() for x in sums["accuracy"]] == [right.sum(), B]
