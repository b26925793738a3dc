"""Reads retrieval sets, which are queries and texts to find, in the format of the BEIR benchmark.

Each line of queries.jsonl and corpus.jsonl is an object with `_id`, `text` and, optionally,
`title`. qrels.tsv, or qrels/test.tsv, has the columns query-id, corpus-id and score.
"""

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping

from bert_tf import strict_json
from bert_tf.datasets.tables import number_in
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import whole_files
from bert_tf.files.whole_files import drop_carriage_returns
from bert_tf.start import lazy_tensorflow as tf

_QRELS = ("qrels.tsv", "qrels/test.tsv")
_QRELS_RULE = "a query's _id, a text's _id and a score of 0 or more, separated by tabs"


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """Queries and the texts to find.

    queries: the queries that have a relevant text, in the order of their file.
    texts: all texts, each after its title.
    relevant: for each query: number of a text -> its relevance, above 0.
    itself: for each query: the number of the text with the same _id, or -1.
    """

    queries: list[str]
    texts: list[str]
    relevant: list[Mapping[int, float]]
    itself: list[int]


def read_retrieval_set(folder: str, flag: str) -> RetrievalSet:
    place = f"--{flag}: {folder}"
    queries = _read_texts(place, folder, "queries.jsonl")
    texts = _read_texts(place, folder, "corpus.jsonl")
    numbers = {name: number for number, name in enumerate(texts)}
    name = next((x for x in _QRELS if tf.io.gfile.exists(os.path.join(folder, x))), _QRELS[0])
    relevant: dict[str, dict[int, float]] = {}
    scores: dict[tuple[str, str], float] = {}
    for where, query, text, score in _read_qrels(place, folder, name):
        for known, file, given in ((queries, "queries", query), (texts, "corpus", text)):
            if given not in known:
                raise UserError(
                    f"{where}: {quoted(given)} must be the _id of a line of {file}.jsonl, which has"
                    f" {listed([*known][:3])} ...; correct or delete the line"
                )
        if scores.setdefault((query, text), score) != score:
            raise UserError(
                f"{where}: a query and a text must have one score; {quoted(query)} and"
                f" {quoted(text)} have {scores[query, text]:g} in an earlier line and {score:g}"
                " here. Delete one of the lines"
            )
        if score > 0:
            relevant.setdefault(query, {})[numbers[text]] = score
    found = [query for query in queries if query in relevant]
    if not found:
        raise UserError(
            f"{place}/{name} must name a relevant text, with a score above 0, for at least one"
            " query. Correct the file or choose another folder"
        )
    return RetrievalSet(
        [queries[query] for query in found],
        [*texts.values()],
        [relevant[query] for query in found],
        [numbers.get(query, -1) for query in found],
    )


def _lines(place: str, folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Yields (place for messages, line) for each non-empty line of a file."""
    rule = "the folder must hold queries.jsonl, corpus.jsonl and qrels.tsv or qrels/test.tsv"
    text = whole_files.read_text(os.path.join(folder, name), f"{place}/{name}", rule)
    text = drop_carriage_returns(text, f"{place}/{name}")
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{place}/{name}, line {number}", line


def _read_texts(place: str, folder: str, name: str) -> dict[str, str]:
    """Returns _id -> title, if any, and text."""
    texts: dict[str, str] = {}
    for where, line in _lines(place, folder, name):
        try:
            value = strict_json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}, is not JSON ({error}): {quoted(line)}") from error
        fields = value if isinstance(value, dict) else {}
        key, text, title = (fields.get(field, "") for field in ("_id", "text", "title"))
        if not (isinstance(key, str) and key and isinstance(text, str) and isinstance(title, str)):
            raise UserError(
                f"{where}, must be an object with the strings _id, text and, optionally, title;"
                f" it is {quoted(line)}"
            )
        if key in texts:
            raise UserError(
                f"{where}: the _id {quoted(key)} must be unique; it is on an earlier line"
            )
        texts[key] = f"{title} {text}".strip()
        if not texts[key]:
            raise UserError(f"{where}: {quoted(key)} must have a text; fill it in or delete it")
    return texts


def _read_qrels(place: str, folder: str, name: str) -> Iterator[tuple[str, str, str, float]]:
    """Yields (place, query, text, score) for each line, except a header."""
    for i, (where, line) in enumerate(_lines(place, folder, name)):
        parts = line.split("\t")
        score = number_in(parts[2]) if len(parts) == 3 else math.nan
        if i == 0 and len(parts) == 3 and math.isnan(score):
            continue  # the header
        if not 0 <= score < math.inf:
            raise UserError(f"{where}, must have {_QRELS_RULE}; it is {quoted(line)}")
        yield where, parts[0], parts[1], score
