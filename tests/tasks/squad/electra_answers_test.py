"""ELECTRA's answers: the beam of a joint prediction, and a classifier for "no answer"."""

import itertools
import json
import os
import pathlib

import numpy as np
import pytest

from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.squad import answers
from bert_tf.tasks.squad.examples import read_squad_examples
from bert_tf.tasks.squad.features import ContextWindow, SquadEncoder
from bert_tf.text.tokenizers import load_tokenizer
from bert_tf.text.windows import Span
from tests.support.golden import needs_golden
from tests.support.squad_files import settings_of_lengths


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
    settings = settings_of_lengths(
        options["max_seq_length"],
        options["doc_stride"],
        n_best_size=options["n_best_size"],
        version_2_with_negative=is_v2,
    )
    encoder = SquadEncoder(data, tokenizer, settings, is_training=False)
    write_records(str(tmp_path / "x.tf_record"), data.examples, encoder)
    results = np.load(folder / "results.npz")
    places = {eid: i for i, eid in enumerate(results["eid"])}

    def logits():
        for index, own in itertools.groupby(encoder.windows, lambda w: w.example_index):
            for number, window in enumerate(own):
                row = {name: results[name][places[1000 * index + number]] for name in results}
                names = "start_top_index", "end_top_index", "start_top_log_probs"
                beam = answers.Beam(*(row[name] for name in names), row["end_top_log_probs"])
                yield answers.WindowLogits(
                    window.unique_id,
                    row["start_logits"],
                    row["end_logits"],
                    beam if options.get("joint_prediction", True) else None,
                    row["answerable_logit"] if has_classifier else None,
                )

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
    windows = [ContextWindow(i, 0, 4, span) for i, span in enumerate(spans)]
    logits, wanted, nulls = [], [], []
    for window in windows:
        starts, ends = rng.randint(0, 28, 5), rng.randint(0, 28, (5, 5))
        scores = rng.randint(-9, 0, 5) / 2, rng.randint(-9, 0, (5, 5)) / 2
        start, end = rng.randint(-9, 9, (2, 28)) / 2
        impossible = float(rng.randint(-9, 9)) if has_classifier else None
        beam = answers.Beam(starts, ends, *scores)
        logits.append(answers.WindowLogits(window.unique_id, start, end, beam, impossible))
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
            if -max(context)[1] == window.unique_id:
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
    window = ContextWindow(0, 0, 4, Span(0, 20))
    start, end = np.zeros((2, 28))
    start[[0, 6]], end[[0, 8]] = (50.0, 3.0), (50.0, 3.0)  # [CLS] scores far above the answer
    settings = settings_of_lengths(28, 12, 2, n_best_size=3, version_2_with_negative=True)
    for impossible in (-4.0, 2.5):
        logits = answers.WindowLogits(0, start, end, impossible=impossible)
        found, null = answers.find_answers([window], [logits], settings, Words())
        assert found[0] == ("2-4", 3.0, 3.0, 2, 5) and all(answer.text for answer in found)
        assert answers.null_odds(found[0], null) == impossible
    logits = logits._replace(impossible=None)
    found, null = answers.find_answers([window], [logits], settings, Words())
    assert found[0] == ("", 50.0, 50.0, 0, 0) and answers.null_odds(found[1], null) == 94.0
