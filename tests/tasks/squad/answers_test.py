"""Tests of answers from logits: their text, n-best lists, no answer; ELECTRA's beam."""

import functools
import itertools
import json
import math
import os
import pathlib

import numpy as np
import pytest

from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.squad import answers, features
from bert_tf.tasks.squad.examples import read_squad_examples
from bert_tf.tasks.squad.features import ContextWindow, SquadEncoder
from bert_tf.tasks.squad.words import FinalText
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sequences import Span, max_context
from bert_tf.text.tokenizer_settings import AddedToken, TokenizerSettings
from bert_tf.text.tokenizers import load_tokenizer
from bert_tf.tokenization import BasicTokenizer
from tests.support.golden import needs_golden
from tests.support.squad_files import make_tokenizer, question, settings_of_lengths, write_squad

LENGTH = 20
CONTEXT = "The leader was John Smith's (1895-1943). The man went and the man was born here"


@pytest.mark.parametrize(
    "predicted, words, lower, expected",
    [
        ("steve smith", "Steve Smith's", True, "Steve Smith"),
        ("1895 - 1943", "(1895-1943).", True, "1895-1943"),
        ("cafe", "Caf\u00e9,", True, "Caf\u00e9"),
        ("caf\u00e9", "(Caf\u00e9)", True, "(Caf\u00e9)"),  # the tokenizer strips the accent
        ("cafe", "Cafe\u0301 bar", True, "Cafe\u0301 bar"),  # one character more than its token
        ("Caf\u00e9", "(Caf\u00e9)", False, "Caf\u00e9"),
        ("[UNK]", "Zz ,", True, "Zz ,"),  # not to be found
        ("smith ' s", "John  Smith's ", True, "Smith's"),
        ("", "\u200b", True, "\u200b"),
        ("", "x", True, "x"),
        ("\u4e2d", "\u4e2d\u6587", True, "\u4e2d"),
    ],
)
def test_final_text(predicted, words, lower, expected):
    start, end = FinalText(BasicTokenizer(lower).tokenize)(predicted, words.split(" "))
    assert words[start:end] == expected


def test_verbose_logging(caplog):
    caplog.set_level("INFO", "absl")
    split_words = BasicTokenizer(True).tokenize
    FinalText(split_words)("x", ["y"])
    assert caplog.messages == []
    FinalText(split_words, verbose_logging=True)("x", ["y"])
    FinalText(split_words, verbose_logging=True)("cafe", ["Cafe\u0301"])
    assert caplog.messages == [
        "Unable to find text: 'x' in 'y'",
        "Length not equal after stripping spaces: 'cafe' vs 'Cafe\u0301'",
    ]


class Questions:
    """Two questions on CONTEXT (several windows each) and one on a text without tokens."""

    def __init__(self, folder):
        qas = [question("a", "Who was the leader?"), question("b", "Who was born?")]
        path = write_squad(folder / "x.json", (CONTEXT, qas), ("\u200b", [question("c", "what")]))
        self.data = read_squad_examples(path, "predict_file", False, True)
        self.tokenizer = make_tokenizer(folder)
        settings = settings_of_lengths(LENGTH, 5, 10)
        encoder = SquadEncoder(self.data, self.tokenizer, settings, is_training=False)
        write_records(str(folder / "x.tf_record"), self.data.examples, encoder)
        self.contexts, self.windows = encoder.contexts, encoder.windows
        logits = np.full((len(self.windows), 2, LENGTH), -3.0)
        self.results = [answers.WindowLogits(*pair) for pair in logits]

    def of(self, example):
        """Returns the numbers of a question's windows."""
        return [i for i, w in enumerate(self.windows) if w.example_index == example]

    def randomize(self, seed):
        rng = np.random.RandomState(seed)
        for result in self.results:
            for logits in (result.start, result.end):
                # Few different values, so that order among equals shows.
                logits[:] = rng.randint(-8, 8, LENGTH) / 2
        return self

    def predict(self, **changes):
        settings = settings_of_lengths(LENGTH, 5, 10, **changes)
        found = self.contexts, self.windows, iter(self.results)
        return answers.predict_answers(self.data, *found, settings, self.tokenizer)


@pytest.fixture
def questions(tmp_path):
    return Questions(tmp_path)


def slow_nbest(questions, example, n_best_size, max_answer_length, with_negative):
    """Returns (text, start logit, end logit) of the n best by write_predictions' rules."""
    ids = questions.contexts[0].ids
    words = CONTEXT.split(" ")
    word_of = np.repeat(np.arange(len(words)), np.diff(questions.contexts[0].word_starts))
    numbers = questions.of(example)
    windows = [questions.windows[i] for i in numbers]
    has_most_context = max_context([window.span for window in windows])
    found, nulls = [], []
    for number, window, most in zip(numbers, windows, has_most_context, strict=True):
        starts, ends = (logits.tolist() for logits in questions.results[number][:2])
        nulls.append((starts[0] + ends[0], starts[0], ends[0]))
        best = [
            sorted(range(LENGTH), key=logits.__getitem__, reverse=True)[:n_best_size]
            for logits in (starts, ends)
        ]
        for i, j in itertools.product(*best):
            first, last = i - window.offset, j - window.offset
            if not (0 <= first <= last < window.span.length and most[first]):
                continue
            if j - i + 1 > max_answer_length:
                continue
            first, last = first + window.span.start, last + window.span.start
            pieces = questions.tokenizer.text_of(ids[first : last + 1])
            of_answer = words[word_of[first] : word_of[last] + 1]
            predicted = pieces.replace(" ##", "").replace("##", "")
            start, end = FinalText(questions.tokenizer.split_words)(predicted, of_answer)
            found.append((" ".join(of_answer)[start:end], starts[i], ends[j]))
    null = ("", *min(nulls, key=lambda scores: scores[0])[1:])  # the first of equal ones
    if with_negative:
        found.append(null)
    nbest = []
    for entry in sorted(found, key=lambda entry: entry[1] + entry[2], reverse=True):
        if len(nbest) < n_best_size and entry[0] not in [other[0] for other in nbest]:
            nbest.append(entry)
    if with_negative and "" not in [entry[0] for entry in nbest]:
        nbest.append(null)
    return nbest


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("with_negative", [False, True])
@pytest.mark.parametrize("n_best_size, max_answer_length", [(20, 30), (5, 3)])
def test_nbest(questions, seed, with_negative, n_best_size, max_answer_length):
    sizes = {"n_best_size": n_best_size, "max_answer_length": max_answer_length}
    made = questions.randomize(seed)
    predictions = made.predict(**sizes, version_2_with_negative=with_negative)
    for example, name in enumerate("ab"):
        expected = slow_nbest(questions, example, n_best_size, max_answer_length, with_negative)
        found = predictions.nbest[name]
        assert [(e["text"], e["start_logit"], e["end_logit"]) for e in found] == expected
        keys = ["text", "probability", "start_logit", "end_logit"]
        assert [list(e) for e in found] == [keys] * len(found)
        weights = np.exp([entry[1] + entry[2] for entry in expected])
        np.testing.assert_allclose([e["probability"] for e in found], weights / weights.sum())
        best = next(entry for entry in expected if entry[0])
        assert predictions.best_answers[name] == best[0]
        if not with_negative:
            assert predictions.answers[name] == expected[0][0]
            continue
        results = [questions.results[i] for i in questions.of(example)]
        odds = min(float(r.start[0] + r.end[0]) for r in results) - best[1] - best[2]
        assert predictions.null_odds[name] == odds
        assert predictions.answers[name] == ("" if odds > 0.0 else best[0])


def test_threshold(questions):
    predict = functools.partial(questions.randomize(1).predict, version_2_with_negative=True)
    odds = predict().null_odds["a"]
    for threshold, is_null in ((odds, False), (math.nextafter(odds, -math.inf), True)):
        predictions = predict(null_score_diff_threshold=threshold)
        assert (predictions.answers["a"] == "") == is_null
        assert predictions.best_answers["a"] != ""


def test_no_answer_is_possible(questions):
    """The original fails where no candidate is left, and where a text has no token."""
    for number in questions.of(0):
        for logits in questions.results[number][:2]:
            logits[0] = 5.0  # the best position is in the question
    settings = {"n_best_size": 1, "version_2_with_negative": True}
    predictions = questions.predict(**settings, null_score_diff_threshold=100.0)
    for name in ("a", "c"):
        assert predictions.answers[name] == predictions.best_answers[name] == ""
        assert predictions.null_odds[name] == answers.NO_OTHER_ANSWER
        assert [entry["text"] for entry in predictions.nbest[name]] == [""]
    assert predictions.nbest["a"][0]["start_logit"] == 5.0
    assert json.loads(json.dumps(predictions.null_odds, allow_nan=False))

    predictions = questions.predict(n_best_size=1)
    for name in ("a", "c"):  # what the original says in SQuAD 1.1
        assert predictions.nbest[name] == [
            {"text": "empty", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}
        ]
        assert predictions.answers[name] == "empty"
    assert not predictions.null_odds


@pytest.mark.parametrize("with_negative", [False, True])
def test_files(questions, tmp_path, with_negative):
    predictions = questions.randomize(0).predict(version_2_with_negative=with_negative)
    folder = tmp_path / "out"
    folder.mkdir()
    answers.write_predictions(predictions, str(folder))
    contents = {"predictions": predictions.answers, "nbest_predictions": predictions.nbest}
    if with_negative:
        contents["null_odds"] = predictions.null_odds
    assert {path.name for path in folder.iterdir()} == {f"{name}.json" for name in contents}
    for name, content in contents.items():
        text = (folder / f"{name}.json").read_text()
        assert text == json.dumps(content, indent=4) + "\n"
        assert list(json.loads(text)) == ["a", "b", "c"]


def test_an_answer_has_its_place_in_the_context():
    vocab = "[UNK] [CLS] [SEP] steve smith ( ) . 1895 - cafe ' s".split()
    tokenizer = FastTokenizer({token: i for i, token in enumerate(vocab)})
    text = "\t Steve \n Smith's  (1895-1943). Caf\u00e9"
    context = features.tokenize_contexts([text], tokenizer)[0]
    pieces = [tokenizer.inv_vocab[i] for i in context.ids]
    assert pieces[:7] == ["steve", "smith", "'", "s", "(", "1895", "-"]
    at = answers.ContextText(text, context, tokenizer, FinalText(tokenizer.split_words)).of
    for first, last, answer, place in (
        (0, 1, "Steve Smith", "Steve \n Smith"),
        (1, 3, "Smith's", "Smith's"),
        (3, 5, "s (1895", "s  (1895"),
        (4, 4, "(", "("),
        (10, 10, "Caf\u00e9", "Caf\u00e9"),
    ):
        found, start, end = at(first, last)
        assert (found, text[start:end]) == (answer, place)


@pytest.mark.parametrize(
    "settings, text, expected",
    [
        ({"strip_accents": False}, "the Caf\u00e9, (\u00c9cole)", "Caf\u00e9|\u00c9cole"),
        ({"strip_accents": True}, "the (\u00c9cole)", "\u00c9cole"),
        ({"clean_text": False}, "(\u00c9\u200bcole) x", "\u00c9\u200bcole"),
        (
            *({"added_tokens": (AddedToken("[E1]", 1), AddedToken("A'b", 2))}, "(A'b) [E1]x"),
            "A'b|[E1]",
        ),
    ],
)
@pytest.mark.parametrize("lower", [True, False])
def test_an_answer_is_found_as_the_tokenizer_of_the_folder_splits(lower, settings, text, expected):
    """With other switches than the original's, an answer is not the whole words around it."""
    letters = [*map(chr, range(33, 0x250)), "\u200b"]
    tokens = ["[UNK]", "[E1]", "A'b", *letters, *(f"##{char}" for char in letters)]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = FastTokenizer(vocab, lower, settings=TokenizerSettings(**settings))
    context = features.tokenize_contexts([text], tokenizer)[0]
    at = answers.ContextText(text, context, tokenizer, FinalText(tokenizer.split_words)).of
    pieces = tokenizer.pieces(text)
    for answer in expected.split("|"):
        start = text.index(answer)
        inside = [i for i, p in enumerate(pieces) if start <= p.start < start + len(answer)]
        assert at(inside[0], inside[-1]) == (answer, start, start + len(answer))


@needs_golden
@pytest.mark.parametrize(
    "case", ["squad", "squad_answerable_classifier_joint_prediction", "squadv1"]
)
def test_answers_are_the_originals(tmp_path, case):
    root = pathlib.Path(os.environ["BERT_TF_GOLDEN"])
    folder = root / "electra" / "answers" / case
    options = json.loads((folder / "hparams.json").read_text())
    is_v2 = options["task"] == "squad"
    has_classifier = options.get("answerable_classifier", is_v2)
    path = str(folder / "finetuning_data" / options["task"] / "dev.json")
    data = read_squad_examples(path, "predict_file", False, is_v2)
    vocab = str(root.parent / "released" / "vocab_uncased.txt")
    tokenizer = load_tokenizer(vocab, True, drop_category_c=True)
    names = ("max_seq_length", "doc_stride", "n_best_size")
    given = {name: options[name] for name in names}
    settings = settings_of_lengths(**given, version_2_with_negative=is_v2)
    encoder = SquadEncoder(data, tokenizer, settings, is_training=False)
    write_records(str(tmp_path / "x.tf_record"), data.examples, encoder)
    results = np.load(folder / "results.npz")
    places = {eid: i for i, eid in enumerate(results["eid"])}
    unread = [] if options.get("joint_prediction", True) else [*answers.BEAM]
    unread += [] if has_classifier else ["answerable_logit"]

    def logits():
        for index, own in itertools.groupby(encoder.windows, lambda w: w.example_index):
            for number, _ in enumerate(own):
                place = places[1000 * index + number]
                yield answers.window_logits({x: results[x][place] for x in {*results} - {*unread}})

    found = answers.predict_answers(
        data, encoder.contexts, encoder.windows, logits(), settings, tokenizer
    )
    wanted = json.loads((folder / "predictions.json").read_text())
    assert (found.best_answers if is_v2 else found.answers) == wanted
    if is_v2:
        odds = json.loads((folder / "null_odds.json").read_text())
        assert found.null_odds == pytest.approx(odds, rel=1e-12)


class Words:
    """A context whose texts are the numbers of their first and last token."""

    def of(self, start: int, end: int) -> tuple[str, int, int]:
        return f"{start}-{end}", start, end + 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_classifier", [True, False])
def test_a_beam_equals_a_statement_of_the_rules(seed, has_classifier):
    rng = np.random.RandomState(seed)
    spans = [Span(0, 20), Span(12, 20), Span(24, 16)]
    windows = [ContextWindow(0, 4, span) for span in spans]
    logits, wanted, nulls = [], [], []
    for number, window in enumerate(windows):
        starts, ends = rng.randint(0, 28, 5), rng.randint(0, 28, (5, 5))
        scores = rng.randint(-9, 0, 5) / 2, rng.randint(-9, 0, (5, 5)) / 2
        start, end = rng.randint(-9, 9, (2, 28)) / 2
        impossible = float(rng.randint(-9, 9)) if has_classifier else None
        beam = answers.Beam(starts, ends, *scores)
        logits.append(answers.WindowLogits(start, end, beam, impossible))
        nulls.append(impossible if has_classifier else start[0] + end[0])
        for i, j in itertools.product(range(5), repeat=2):
            first, last = starts[i] - 4, ends[i, j] - 4
            token = first + window.span.start
            if not 0 <= first <= last < window.span.length or last - first >= 7:
                continue
            # The window with the most context on the shorter side has the token.
            context = [
                (min(token - s.start, s.start + s.length - 1 - token) + 0.01 * s.length, -k)
                for k, s in enumerate(spans)
                if s.start <= token < s.start + s.length
            ]
            if -max(context)[1] == number:
                text = f"{token}-{last + window.span.start}"
                wanted.append((text, scores[0][i], scores[1][i, j]))
    settings = settings_of_lengths(28, 12, 2, n_best_size=6, max_answer_length=7)
    found, null = answers.find_answers(windows, logits, settings, Words())
    wanted.sort(key=lambda answer: -answer[1] - answer[2])
    texts = {}
    for text, start, end in wanted:
        texts.setdefault(text, (text, start, end))
    assert [answer[:3] for answer in found] == list(texts.values())[:6] and wanted
    assert null == (min(nulls), has_classifier)
    odds = null.value if has_classifier else null.value - found[0].start_logit - found[0].end_logit
    assert answers.null_odds(found[0], null) == odds
    assert answers.null_odds(None, null) == 1e6


def test_a_classifier_alone_says_whether_there_is_an_answer():
    window = ContextWindow(0, 4, Span(0, 20))
    start, end = np.zeros((2, 28))
    start[[0, 6]], end[[0, 8]] = (50.0, 3.0), (50.0, 3.0)  # [CLS] scores far above the answer
    settings = settings_of_lengths(28, 12, 2, n_best_size=3, version_2_with_negative=True)
    for impossible in (-4.0, 2.5):
        logits = answers.WindowLogits(start, end, impossible=impossible)
        found, null = answers.find_answers([window], [logits], settings, Words())
        assert found[0] == ("2-4", 3.0, 3.0, 2, 5) and all(answer.text for answer in found)
        assert answers.null_odds(found[0], null) == impossible
    logits = logits._replace(impossible=None)
    found, null = answers.find_answers([window], [logits], settings, Words())
    assert found[0] == ("", 50.0, 50.0, 0, 0) and answers.null_odds(found[1], null) == 94.0
