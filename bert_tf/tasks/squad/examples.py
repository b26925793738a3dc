"""Reads SQuAD's JSON files: contexts and the questions about them."""

import bisect
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from absl import logging

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import storage, whole_files
from bert_tf.tasks.arguments import is_list, is_missing, plain, received, whole
from bert_tf.tasks.rows import Rows, read_rows
from bert_tf.tasks.squad.words import is_unspaced, word_spans

# The names of JSON's types in messages.
_KINDS = {dict: "an object", list: "a list", str: "a string", int: "a whole number"}


@dataclasses.dataclass(frozen=True, slots=True)
class SquadExample:
    """A question about a context. Positions are for training, and -1 without an answer."""

    qas_id: str
    question_text: str
    context_index: int  # index in `SquadData.contexts`
    # Texts of the correct answers. Training has one, or none if the context has no answer.
    # Prediction has all annotators' answers, or None if the file has no answers.
    answers: tuple[str, ...] | None
    start_position: int = -1  # index of the first word in `split_words` of the context
    end_position: int = -1  # index of the last word
    answer_start: int = -1  # the first character in the context
    is_impossible: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SquadData:
    """The contexts of a file, each stored once, and the questions about them."""

    contexts: list[str]
    examples: list[SquadExample]

    @property
    def correct_answers(self) -> dict[str, tuple[str, ...]] | None:
        """The correct answers by question id; None if a question lacks them."""
        found = {x.qas_id: x.answers for x in self.examples if x.answers is not None}
        return found if len(found) == len(self.examples) else None


def read_squad_examples(
    path: str, flag: str, is_training: bool, version_2_with_negative: bool
) -> SquadData:
    """Reads a SQuAD JSON file, named by `flag` (original: read_squad_examples).

    Only training requires an answer to every question. Training skips a question, with a warning,
    if the answer is not at its `answer_start`.
    """
    content, source = load_json(path, flag, "SQuAD"), f"--{flag}={path}"
    questions = questions_in(content, source)
    return squad_data(questions, source, is_training, version_2_with_negative)


def squad_data(
    questions: Iterable[tuple[str, str, dict]],
    source: str,
    is_training: bool,
    version_2_with_negative: bool,
    show_ids: bool = True,
) -> SquadData:
    """Makes contexts and examples from questions as in a SQuAD file, named `source`.

    `questions` are (place for messages, context, question).
    """
    contexts: list[str] = []
    examples: list[SquadExample] = []
    ids: set[str] = set()
    repeated: list[str] = []
    unanswered = 0
    for where, context, question in questions:
        if not contexts or contexts[-1] is not context:
            contexts.append(context)
            spans = word_spans(context) if is_training else []
        # Ids are the keys of the predictions' JSON files, so they must be strings.
        qas_id = str(_get(question, "id", where, str, int))
        if qas_id in ids:
            repeated.append(qas_id)
        ids.add(qas_id)
        impossible = _is_impossible(question, where)
        unanswered += impossible
        common = qas_id, question["question"], len(contexts) - 1
        if not is_training:
            examples.append(SquadExample(*common, _answer_texts(question, where)))
        elif impossible and version_2_with_negative:
            examples.append(SquadExample(*common, (), is_impossible=True))
        else:
            where = f"{where} (id {quoted(qas_id)})" if show_ids else where
            text, start = _the_answer(question, where)
            words = _find_answer(context, spans, text, start, where)
            if words:
                examples.append(SquadExample(*common, (text,), *words, start))
    if not ids:
        raise UserError(f"{source} has no question; its paragraphs need `qas`")
    if not examples:
        raise UserError(
            f"{source}: answers must be found at their answer_start, counted in characters from 0;"
            f" none of the {len(ids)} answers is"
        )
    if repeated:
        _report_repeated(source, repeated, len(ids), is_training)
    if unanswered and not version_2_with_negative:
        logging.warning(
            "%s: %d questions have no answer (is_impossible), but without --version_2_with_negative"
            " the model always gives one. Add that flag to allow no answer",
            source,
            unanswered,
        )
    return SquadData(contexts, examples)


def _report_repeated(source: str, repeated: Sequence[str], num_ids: int, is_training: bool) -> None:
    message = (
        f"{source}: every question must have a unique id; {len(repeated)} repeat one of the"
        f" {num_ids} ids: {listed(repeated)}"
    )
    if not is_training:  # predictions are stored by id, so one would overwrite another
        raise UserError(f"{message}. Rename or remove them")
    logging.warning("%s", message)


def load_json(path: str, flag: str, dataset: str) -> object:
    """Reads a JSON file; messages name its flag and the expected dataset."""
    storage.check_file_system(path, flag)
    rule = f"it must be a JSON file in {dataset}'s format"
    return whole_files.read_json(path, f"--{flag}={path}", rule)


def questions_in(content: object, source: str) -> Iterator[tuple[str, str, dict]]:
    """Yields (place in the file, context, question) for every question."""
    for i, article in enumerate(_get(content, "data", f"{source}: the file", list)):
        here = f"{source}: data[{i}]"
        for j, paragraph in enumerate(_get(article, "paragraphs", here, list)):
            there = f"{here}.paragraphs[{j}]"
            context = _get(paragraph, "context", there, str)
            for k, question in enumerate(_get(paragraph, "qas", there, list)):
                where = f"{there}.qas[{k}]"
                _get(question, "question", where, str)
                yield where, context, question


def _get(node: object, key: str, where: str, *kinds: type):
    if not isinstance(node, dict):
        raise UserError(
            f"{where} must be an object with `{key}`, as in SQuAD's files; it is {_kind(node)}"
        )
    if key not in node:
        names = listed(sorted(node)) or "nothing"
        raise UserError(f"{where} must have `{key}`, as in SQuAD's files; it has {names}")
    # In Python, true and false are whole numbers.
    if not isinstance(node[key], kinds) or isinstance(node[key], bool):
        wanted = " or ".join(_KINDS[kind] for kind in kinds)
        raise UserError(f"{where}: `{key}` must be {wanted}; it is {_kind(node[key])}")
    return node[key]


def _kind(value: object) -> str:
    return _KINDS.get(type(value), f"{value!r}")


def _is_impossible(question: dict, where: str) -> bool:
    value = question.get("is_impossible")
    if value not in (None, False, True):
        raise UserError(f"{where}: `is_impossible` must be true or false; it is {_kind(value)}")
    return bool(value)


def _answer_texts(question: dict, where: str) -> tuple[str, ...] | None:
    if "answers" not in question:
        return None
    answers = _get(question, "answers", where, list)
    return tuple(_get(a, "text", f"{where}.answers[{i}]", str) for i, a in enumerate(answers))


def _the_answer(question: dict, where: str) -> tuple[str, int]:
    answers = _get(question, "answers", where, list)
    if len(answers) != 1:
        advice = (
            "keep one answer (dev files have several)"
            if answers
            else "for SQuAD 2.0 add --version_2_with_negative and mark the question is_impossible"
        )
        raise UserError(
            "For training, each question should have exactly 1 answer;"
            f" {where} has {len(answers)}: {advice}"
        )
    where += ".answers[0]"
    return _get(answers[0], "text", where, str), _get(answers[0], "answer_start", where, int)


def _find_answer(
    context: str, spans: list[tuple[int, int]], text: str, start: int, where: str
) -> tuple[int, int] | None:
    # Returns None, after a warning, if the words at `start` do not contain the answer. In a script
    # without spaces, where a word can be a sentence, the answer must be at its `answer_start`.
    end = start + len(text) - 1
    if start < 0 or max(start, end) >= len(context):
        raise UserError(
            f"{where}: an answer must lie within its context of {len(context)} characters; this"
            f" one has answer_start {quoted(start)} and {len(text)} characters: {quoted(text)}"
        )
    first, last = (
        bisect.bisect_right(spans, place, key=lambda span: span[0]) - 1 for place in (start, end)
    )
    found = " ".join(context[begin:stop] for begin, stop in spans[first : last + 1])
    wanted = " ".join(text.split())
    missing = not wanted or wanted not in found
    if not missing and wanted != " ".join(context[start : end + 1].split()):
        missing = any(is_unspaced(context[begin:stop]) for begin, stop in spans[first : last + 1])
    if missing:
        logging.warning(
            "%s: Could not find answer: %s vs. %s", where, quoted(found), quoted(wanted)
        )
        return None
    return first, last


class AnswerOptions(TypedDict, total=False):
    """Keyword arguments of `Pretrained.answer`, which describes them."""

    null_score_diff_threshold: float | None
    max_seq_length: int
    doc_stride: int
    max_answer_length: int
    method: str


class SquadRows(Rows):
    """Rows of (question, context) and answers."""

    task = "squad"
    head = "squad"
    inputs, targets = "questions", "answers"
    predict_options = frozenset(AnswerOptions.__annotations__)

    def __init__(self) -> None:
        self.are_all_answered = True

    def examples(self, purpose: str, x: Any, y: Any = None, weights: Any = None) -> SquadData:
        inputs, targets = self.names(purpose)
        pairs, answers, weights = read_rows(x, y, weights, inputs, targets)
        self.no_weights(weights)
        questions = []
        if purpose != "validation":  # validation uses training's value
            self.are_all_answered = True
        for i, (pair, answer) in enumerate(zip(pairs, answers, strict=True)):
            _check_pair(pair, f"{inputs}[{i}]")
            found = _answers(answer, pair[1], f"{targets}[{i}]", purpose == "train")
            self.are_all_answered &= bool(found)
            question = {"id": str(i), "question": pair[0], "answers": found}
            question["is_impossible"] = not found
            questions.append((f"{inputs}[{i}]", pair[1], question))
        negative = not self.are_all_answered
        return squad_data(questions, inputs, purpose == "train", negative, show_ids=False)

    def predict(self, model: Any, x: Any, options: dict[str, Any]) -> Any:
        pairs = whole(x, self.inputs)
        for i, pair in enumerate(pairs):
            _check_pair(pair, f"{self.inputs}[{i}]")
        threshold = None if self.are_all_answered else 0.0  # as in training
        options = {"null_score_diff_threshold": threshold, **options}
        found = model.answer([pair[0] for pair in pairs], [pair[1] for pair in pairs], **options)
        return np.array([answer.text for answer in found], object)


def _check_pair(pair: Any, place: str) -> None:
    if not isinstance(pair, tuple | list) or [*map(type, pair)] != [str, str]:
        raise UserError(
            f"{place} must be a pair of texts, (question, context); {received(pair)}."
            " For two columns: list(zip(table['question'], table['context']))"
        )


def _answers(value: Any, context: str, place: str, is_training: bool) -> list[dict[str, Any]]:
    """Converts the answers to a question to the form of SQuAD's files; [] for no answer."""
    value = plain(value)
    if isinstance(value, Mapping):  # as in the datasets of Hugging Face
        texts, starts = (value.get(key, ()) for key in ("text", "answer_start"))
        if not is_list(texts) or not is_list(starts) or len(texts) != len(starts):
            raise UserError(
                f"{place} must have lists text and answer_start of equal length; {received(value)}"
            )
    elif is_missing(value) or isinstance(value, str) and not value:
        return []
    elif isinstance(value, str):
        texts, starts = [value], [context.find(value)]
        if is_training and (number := context.count(value)) != 1:
            start = ": give (text, start), the start in characters from 0" if number else ""
            raise UserError(
                f"{place} must occur once in its context, and occurs {number} times{start};"
                f" {received(value)}"
            )
    elif isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str):
        if not value[0]:
            return []
        texts, starts = [value[0]], [value[1]]
    else:
        raise UserError(
            f"{place} must be (text, start), a text that occurs once, or None for no answer;"
            f" {received(value)}"
        )
    return [
        {"text": plain(text), "answer_start": plain(start)}
        for text, start in zip(texts, starts, strict=True)
    ]
