"""Tests of CoNLL files, and of tagging records: labels, context and weights."""

import random

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

from bert_tf.engine.prediction import Columns
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.tasks.class_weights import entries_of
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.sentences.data import SentenceRows
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging import data
from bert_tf.tasks.tagging.data import (
    Sentence,
    TaggingRows,
    read_sentences,
    tagging_schema,
    write_predictions,
)
from bert_tf.tasks.tagging.task import SentenceSet
from tests.support.encoded import tokenizer_of
from tests.support.refusals import refuses
from tests.support.registered_tasks import make_task

VOCAB = "[PAD] [UNK] [CLS] [SEP] un ##want ##ed London is big , The ##x".split()


LABELS = ["O", "B-LOC", "I-LOC"]
TOKENIZER = tokenizer_of(VOCAB, do_lower_case=False)


def written(tmp_path, sentences, length, document_context=False, stride=None):
    """Returns the pieces and the labels of each record, X for a piece without a label."""
    path = str(tmp_path / "file.tf_record")
    encoder = data.TaggingEncoder(TOKENIZER, length, LABELS, document_context, stride)
    count = write_records(path, data.documents(sentences), encoder)
    found = []
    for record in tf.data.TFRecordDataset(path):
        parsed = records.parse(record[tf.newaxis], tagging_schema(length))
        row = {name: value[0].numpy() for name, value in parsed.items()}
        size = sum(row["input_mask"])
        assert row["input_mask"].tolist() == [1] * size + [0] * (length - size)
        assert not (row["input_ids"][size:].any() or row["segment_ids"].any())
        labels = np.where(row["label_mask"], np.array(LABELS)[row["label_ids"]], "X")
        assert set(labels[size:]) <= {"X"}
        found.append((" ".join(VOCAB[i] for i in row["input_ids"][:size]), " ".join(labels[:size])))
    assert count == len(found)
    return found


def test_the_first_piece_carries_the_label(tmp_path):
    # A word in two by the tokenizer's rules, and one of a control character, which leaves nothing.
    sentence = Sentence(["unwanted", "London,", "\u200b", "is"], ["O", "B-LOC", "I-LOC", "O"], 0)
    rows = written(tmp_path, [sentence], 12)
    assert rows == [("[CLS] un ##want ##ed London , [UNK] is [SEP]", "X O X X B-LOC X I-LOC O X")]


DOCUMENTS = [
    Sentence(["London", "is", "big"], ["B-LOC", "O", "O"], 0),
    Sentence(["The", "unwanted"], ["I-LOC", "O"], 0),
    Sentence(["big", ",", "big"], ["O", "O", "O"], 0),
    Sentence(["is"], ["O"], 1),
]


def test_context_is_of_the_document_and_whole_words(tmp_path):
    # Room for 8 pieces, whole words only; the first document's records have none of the second's.
    assert written(tmp_path, DOCUMENTS, 10, document_context=True) == [
        ("[CLS] London is big The un ##want ##ed big [SEP]", "X B-LOC O O X X X X X X"),
        ("[CLS] is big The un ##want ##ed big , [SEP]", "X X X I-LOC O X X X X X"),
        ("[CLS] big The un ##want ##ed big , big [SEP]", "X X X X X X O O O X"),
        ("[CLS] is [SEP]", "X O X"),
    ]
    # Without the context of documents.
    texts = [text for text, _ in written(tmp_path, DOCUMENTS, 10)]
    assert texts == [
        "[CLS] London is big [SEP]",
        "[CLS] The un ##want ##ed [SEP]",
        "[CLS] big , big [SEP]",
        "[CLS] is [SEP]",
    ]


LONG = Sentence(["London", "is", "big", ",", "The", "big", "big"], ["B-LOC", *"OOOOO", "I-LOC"], 0)


@pytest.mark.parametrize(
    "sentence, length, stride, rows",
    [
        # Room for 6: parts of 3 with the words around them; with a stride of 2, more around them.
        (
            *(LONG, 8, None),
            [
                ("[CLS] London is big , The big [SEP]", "X B-LOC O O X X X X"),
                ("[CLS] is big , The big big [SEP]", "X X X O O O X X"),
                ("[CLS] is big , The big big [SEP]", "X X X X X X I-LOC X"),
            ],
        ),
        (
            *(LONG, 8, 2),
            [
                ("[CLS] London is big , The big [SEP]", "X B-LOC O X X X X X"),
                ("[CLS] London is big , The big [SEP]", "X X X O O X X X"),
                ("[CLS] is big , The big big [SEP]", "X X X X O O X X"),
                ("[CLS] is big , The big big [SEP]", "X X X X X X I-LOC X"),
            ],
        ),
        # The shortest sequence has a word and one beside it.
        (
            *(DOCUMENTS[0], 4, None),
            [
                ("[CLS] London is [SEP]", "X B-LOC X X"),
                ("[CLS] London is [SEP]", "X X O X"),
                ("[CLS] is big [SEP]", "X X O X"),
            ],
        ),
        # A long word is cut to half the room.
        (
            *(Sentence(["un" + "x" * 20, "big"], ["B-LOC", "O"], 0), 8, None),
            [("[CLS] un ##x ##x big [SEP]", "X B-LOC X X O X")],
        ),
        # Words without tags can be written.
        (Sentence(["London", "is"], None, 0), 7, None, [("[CLS] London is [SEP]", "X O O X")]),
    ],
)
def test_long_sentences_are_split_and_keep_the_words_around_the_parts(
    tmp_path, sentence, length, stride, rows
):
    assert written(tmp_path, [sentence], length, stride=stride) == rows


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("document_context", [True, False])
def test_every_word_is_tagged_once_in_order_with_all_the_context_there_is_room_for(
    seed, document_context
):
    rng = random.Random(seed)
    room = rng.randint(2, 30)
    lengths = [rng.randint(1, max(1, room // 2)) for _ in range(rng.randint(1, 60))]
    ends = sorted({rng.randint(1, len(lengths)) for _ in range(5)} | {len(lengths)})
    stride = rng.choice([None, 1, room // 2, room, room + 1])
    windows = list(data.make_windows(lengths, ends, room, document_context, stride))
    tagged = [word for w in windows for word in range(w.first, w.last)]
    assert tagged == list(range(len(lengths)))
    starts = [0, *ends[:-1]]
    for window in windows:
        assert window.begin <= window.first < window.last <= window.end
        size = sum(lengths[window.begin : window.end])
        assert size <= room
        (sentence,) = [(a, b) for a, b in zip(starts, ends, strict=True) if a <= window.first < b]
        low, high = (0, len(lengths)) if document_context else sentence
        assert low <= window.begin and window.end <= high
        if window.begin > low:
            assert size + lengths[window.begin - 1] > room
        if window.end < high:
            assert size + lengths[window.end] > room
        if sum(lengths[slice(*sentence)]) <= room:
            assert (window.first, window.last) == sentence
        elif window.first + 1 < window.last:
            assert sum(lengths[window.first : window.last]) <= (stride or room // 2)


@pytest.mark.parametrize(("room", "stride", "count"), [(10, 4, 40), (9, 1, 30), (20, 6, 66)])
def test_a_part_of_a_long_sentence_is_in_the_middle_of_its_window(room, stride, count):
    windows = list(data.make_windows([1] * count, [count], room, False, stride))
    assert [window.first for window in windows] == list(range(0, count, stride))
    for window in windows:
        left, right = window.first - window.begin, window.end - window.last
        if window.begin > 0 and window.end < count:
            assert abs(left - right) <= 1  # in all windows but those at the ends


def read(folder, text, tags_required=True):
    """Returns the sentences of a file with this content; None for a file that is missing."""
    path = folder / "file.txt"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_sentences(str(path), "eval_file", tags_required)


def test_documents_columns_and_marks(tmp_path):
    text = (
        "-DOCSTART- -X- -X- O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n\r\n\r\n"
        "Peter NNP I-NP I-PER\r\n\r\n-DOCSTART- -X- -X- O\r\n\r\nLondon\tNNP\tI-NP\tI-LOC"
    )
    expected = [Sentence(["EU", "rejects"], ["I-ORG", "O"], 1), Sentence(["Peter"], ["I-PER"], 1)]
    assert read(tmp_path, text) == [*expected, Sentence(["London"], ["I-LOC"], 2)]
    # The words before the first line are a document; without such lines every sentence is.
    for text, documents in (
        ("EU B-ORG\n\nPeter B-PER\n\n-DOCSTART- O\n\nLondon B-LOC\n", [0, 0, 1]),
        ("\n\nEU B-ORG\n\nPeter B-PER\n", [0, 1]),
    ):
        assert [s.document for s in read(tmp_path, text)] == documents
    # A no-break space, a line separator and a form feed are characters of a word.
    (sentence,) = read(tmp_path, "5\u00a0000 O\na\u2028b\x0cc O\n")
    assert sentence.words == ["5\u00a0000", "a\u2028b\x0cc"]
    # A byte-order mark is not part of a word.
    assert read(tmp_path, "\ufeffEU B-ORG\n\nPeter B-PER\n")[0].words == ["EU"]
    assert read(tmp_path, "\ufeff-DOCSTART- O\n\nEU O\n") == [Sentence(["EU"], ["O"], 1)]


def test_all_words_have_tags_or_none(tmp_path):
    found = read(tmp_path, "-DOCSTART-\n\nEU\nrejects\n", tags_required=False)
    assert found == [Sentence(["EU", "rejects"], None, 1)]
    message = "line 3: either all words of a file must have tags, .* 2 c"
    for text, told in (
        ("EU B-ORG\nrejects\n", "line 2: .*has only 'rejects'"),
        ("EU\n\nrejects O\n", message),
    ):
        refuses(told, read, tmp_path, text, tags_required=False)


@pytest.mark.parametrize(
    "text, message",
    [
        ("EU B-ORG\nrejects\n", r"--eval_file: .*, line 2: a line must have a word and, in its "),
        ("EU\nrejects\n", r"line 1: .* this one has only 'EU'. Add the tag"),
        ("EU S-ORG\n", r"line 1: a tag must be O, B-TYPE or I-TYPE; the last column has 'S-ORG'"),
        ("EU B-A\nof E-A\n", r"line 2: .*'E-A'.* with --tag_scheme=bioes, run_tagging makes E-"),
        ("EU O\nin B-A\u2028B\n", r"line 2: the class 'B-A\\u2028B' must be text on one line"),
        ("EU B-X\u00a0\n", r"line 1: the class 'B-X\\xa0' must be text on one line"),
        # "York" would be lost.
        (
            "EU B-X\nNew York B-LOC\n",
            "line 2: the line has 3 columns, but the first word's line has 2, ",
        ),
        (
            "EU NNP B-ORG\n\nrejects O\n",
            "line 3: the line has 2 columns, but the first word's line has 3",
        ),
        ("EU\tB-X\na b\tO\n", "line 2: .*Split a word with a space over several lines"),
        ("EU B-\n", r"the last column has 'B-'"),
        ("", r"has no sentence; it must have a word and its tag on each line"),
        ("-DOCSTART- O\n\n", r"has no sentence"),
        (b"EU B-ORG\nK\xf6ln B-LOC\n", "line 2, is not UTF-8"),
        (None, "--eval_file: .*file.txt cannot be read"),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    refuses(message, read, tmp_path, text)


def test_predictions_are_what_conlleval_reads(tmp_path):
    path = tmp_path / "predictions.txt"
    sentences = [Sentence(["EU", "rejects"], ["B-ORG", "O"], 0), Sentence(["Peter"], ["B-PER"], 0)]
    write_predictions(str(path), sentences, [["B-ORG", "B-LOC"], ["O"]])
    assert path.read_text() == "EU B-ORG B-ORG\nrejects O B-LOC\n\nPeter B-PER O\n\n"
    write_predictions(str(path), [Sentence(["EU"], None, 0)], [["O"]])
    assert path.read_text() == "EU O\n\n"
    assert [p.name for p in tmp_path.iterdir()] == ["predictions.txt"]


WEIGHTED_LABELS = ["B-LOC", "I-LOC", "O"]
LETTERS = tokenizer_of("[PAD] [UNK] [CLS] [SEP] a ##b".split(), do_lower_case=False)
TAGS_OF = [["O", "O", "B-LOC"], ["O", "O"], ["B-LOC", "I-LOC", "O", "O"]]


def sentence_set(name, weights=(None, None, None), tags=TAGS_OF):
    rows = enumerate(zip(tags, weights, strict=True))
    sentences = [Sentence(["ab"] * len(own), own, i, weight) for i, (own, weight) in rows]
    return SentenceSet(name, data.documents(sentences), sentences=sentences)


def label_weights(given, weights=(None, None, None), length=32, name="train", **flags):
    """Returns the weights of the words of all records of a set; None if records have none."""
    task = make_task("tagging", max_seq_length=length, class_weights=given, **flags)
    sets = {"train": [sentence_set("train", weights)], "eval": [sentence_set("eval", weights)]}
    task.prepare(sets, WEIGHTED_LABELS)
    encoder = task.encoder(sets[name][0], LETTERS, WEIGHTED_LABELS)
    found = []
    for example in sets[name][0].examples:
        ids = [LETTERS.encode([text])[0].tolist() for text in encoder.texts(example)]
        for record in encoder.records(example, ids):
            assert record.keys() == encoder.schema.keys()
            if "label_weights" not in record:
                return None
            pairs = zip(record["label_mask"], record["label_weights"], strict=True)
            assert all(mask or not weight for mask, weight in pairs)
            found += [record["label_weights"][i] for i in np.flatnonzero(record["label_mask"])]
    return found


def test_without_weights_records_are_as_before():
    for given, weights in ((["1", "2", "3"], (None,) * 3), (None, (2.0, 1.0, 0.5))):
        assert label_weights(given, weights, name="eval") is None
    assert label_weights(None) is None


@pytest.mark.parametrize("length", [32, 8])  # of 8, the longest sentence has several windows
def test_the_weights_of_words(length):
    expected = [1, 1, 3, 1, 1, 3, 2, 1, 1]
    for given in (["3", "2", "1"], ["I-LOC:2", "B-LOC:3"]):
        assert label_weights(given, length=length) == expected
    weights = (2.0, None, 0.5)
    expected = [2, 2, 6, 1, 1, 1.5, 1, 0.5, 0.5]
    assert label_weights(["3", "2", "1"], weights, length) == expected
    expected = [2, 2, 2, 1, 1, 0.5, 0.5, 0.5, 0.5]
    assert label_weights(None, weights, length) == expected


@pytest.mark.parametrize("context", [True, False])
def test_balanced_weights_count_words(context):
    words = [tag for tags in TAGS_OF for tag in tags]
    by_tag = compute_class_weight("balanced", classes=np.array(WEIGHTED_LABELS), y=np.array(words))
    by_tag = dict(zip(WEIGHTED_LABELS, by_tag, strict=True))
    found = label_weights(["balanced"], document_context=context)
    assert found == pytest.approx([by_tag[tag] for tag in words])


def test_weights_of_tags_that_cannot_be():
    task = make_task("tagging", class_weights=["PER:2"])
    with pytest.raises(UserError, match="^--class_weights must be balanced, or a number for each"):
        task.prepare({"eval": [sentence_set("eval")]}, WEIGHTED_LABELS)
    message = "weights of the words to train on must have a sum above 0"
    for weights, given in (((0.0,) * 3, None), ((0.0, 1.0, 0.0), ["O:0"]), ((0, 0, 0), ["O:2"])):
        task = make_task("tagging", class_weights=given)
        refuses(message, task.prepare, {"train": [sentence_set("train", weights)]}, WEIGHTED_LABELS)


class Predictions(list):
    global_step = 0


@pytest.mark.parametrize("seed", range(3))
def test_sentences_of_whole_weight_count_like_repeated_ones(seed):
    task = make_task("tagging")
    rng = np.random.default_rng(seed)
    weights = [2.0, 0.0, 3.0] if seed else [1.0, None, 1.0]

    def evaluate(weights, repeats):
        rows = [i for i, count in enumerate(repeats) for _ in range(count)]
        found = sentence_set("eval", [weights[i] for i in rows], [TAGS_OF[i] for i in rows])
        found.encoder = data.TaggingEncoder.__new__(data.TaggingEncoder)
        found.encoder.labels = WEIGHTED_LABELS
        columns: Columns = {"predictions": predicted[rows], "losses": losses[rows]}
        return task.evaluate(found, Predictions([columns])).results

    predicted, losses = rng.integers(0, 3, (3, 5)), rng.uniform(size=(3, 5))
    for i, tags in enumerate(TAGS_OF):
        predicted[i, len(tags) :], losses[i, len(tags) :] = -1, 0.0
    repeats = [1 if weight is None else int(weight) for weight in weights]
    found = evaluate(weights, [1, 1, 1])
    assert found == pytest.approx(evaluate([None] * 3, repeats))
    with pytest.raises(UserError, match="sentences to evaluate must have a sum above 0; all are 0"):
        evaluate([0.0] * 3, [1, 1, 1])


WORDS = [["a", "b"], ["c"]]
SOME = [["O", "B-LOC"], ["O"]]


def test_sentences_in_memory_have_their_weights():
    rows = [(words, tags, weight) for words, tags, weight in zip(WORDS, SOME, (2, 0), strict=True)]
    kind = TaggingRows()
    for given in ((WORDS, SOME, [2, 0]), (WORDS, SOME, np.array([[2.0], [0]])), (iter(rows), None)):
        found = kind.examples("train", *given)
        assert [sentence.weight for sentence in found] == [2.0, 0.0]
    assert [x.weight for x in kind.examples("eval", WORDS, SOME)] == [None, None]
    weights = {"O": 0.5, 0: 3}
    assert entries_of(weights, kind.labels) == [("O", 0.5), ("B-LOC", 3)]


def test_other_tasks_take_no_weights_of_rows_either():
    for kind, x, y in (
        (MultipleChoiceRows, ("a", ["b", "c", "d", "e"]), 1),
        (SquadRows, ("a", "b c"), "c"),
        (SentenceRows, ("a", "b"), 0.5),
    ):
        for given in ((iter([(x, y, 2.0)]), None), ([x], [y], [2.0])):
            message = "sample_weight is for classification, regression an"
            refuses(message, kind().examples, "train", *given)
