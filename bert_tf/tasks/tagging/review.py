"""Tables of tagged sentences, and the report of entities by type."""

import itertools
import os
from collections.abc import Sequence

from bert_tf.runs.results import review, tables
from bert_tf.runs.results.reports import span_report
from bert_tf.tasks.tagging.conll import Sentence
from bert_tf.tasks.tagging.entities import entity_counts


def write_tables(
    output_dir: str,
    name: str,
    sentences: Sequence[Sentence],
    predicted: Sequence[Sequence[str]],
    losses: Sequence[float],
) -> None:
    """Writes NAME.tsv and, if the sentences have tags, the wrong ones and a report.

    `errors.tsv` begins with the sentence whose worst word has the largest loss: of its correct tag
    the model was the surest that it is wrong. The files of test predictions are `test_errors.tsv`
    and `test_report`.

    Args:
        name: `eval_predictions`, or `predictions` for test predictions.
        predicted: the predicted tags of each sentence.
        losses: the loss of each word of all sentences.
    """
    known = sentences[0].tags is not None
    stream = iter(losses)
    rows = []
    for i, (sentence, tags) in enumerate(zip(sentences, predicted, strict=True)):
        highest = max(itertools.islice(stream, len(tags)), default=0.0)
        row = [f"sentence-{i}", " ".join(sentence.words), " ".join(tags)]
        if known:
            row += [" ".join(sentence.tags), _wrong(sentence, tags), highest]
        rows.append(row)
    columns = ["id", "text", "prediction", *(["tags", "wrong", "loss"] if known else [])]
    tables.write_table(os.path.join(output_dir, f"{name}.tsv"), columns, rows)
    if not known:
        return
    errors, report = ("errors", "eval_report")
    if name != review.EVALUATED:
        errors, report = ("test_errors", "test_report")
    wrong = sorted((row for row in rows if row[-2]), key=lambda row: -row[-1])
    tables.write_table(os.path.join(output_dir, f"{errors}.tsv"), columns, wrong)
    found = span_report(*entity_counts([sentence.tags for sentence in sentences], predicted))
    review.write_report(output_dir, "", found, report)


def _wrong(sentence: Sentence, tags: Sequence[str]) -> str:
    """Returns the words with a wrong tag; "" if there are none."""
    words = zip(sentence.words, sentence.tags, tags, strict=True)
    return "; ".join(f"{word}: {tag}, not {found}" for word, tag, found in words if tag != found)
