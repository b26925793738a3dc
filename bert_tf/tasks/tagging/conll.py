"""Reads and writes CoNLL column files.

Each line has a word in the first column and, if the words are tagged, its tag in the last. Empty
lines end sentences, and `-DOCSTART-` lines begin documents.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

from bert_tf.errors import UserError, quoted
from bert_tf.files.encodings import check_line_ends
from bert_tf.files.label_file import check_label, is_tag
from bert_tf.files.whole_files import read_text, write_whole

DOCUMENT_START = "-DOCSTART-"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence and its tags.

    tags: tag of each word; None if the file has no tags.
    document: index of its document. In a file without `-DOCSTART-` lines every sentence is a
        document.
    weight: how much each of its words counts in losses and scores; None for 1. CoNLL files have no
        column for it.
    """

    words: list[str]
    tags: list[str] | None
    document: int
    weight: float | None = None


def read_sentences(path: str, flag: str, tags_required: bool = True) -> list[Sentence]:
    """Returns the sentences of a CoNLL file.

    Args:
        path: UTF-8 file. Columns are separated by spaces or tabs; each word's line has as many as
            the first word's. The first column is the word, the last the tag: `O`, `B-TYPE` or
            `I-TYPE`. `B-` begins every entity (IOB2), or only those that directly follow an entity
            of the same type (IOB1).
        flag: the flag (no dashes) that named it, for messages.
        tags_required: whether the words must have tags.

    Raises:
        UserError: the file cannot be read, has no sentence, has an invalid tag, lacks required
            tags, or has tags for some of its words only; or a line has more or fewer columns.
    """
    file = f"--{flag}: {path}"
    rule = "it must have a word and its tag on each line"
    text = read_text(path, file, rule)
    check_line_ends(text, file)
    # str.split would also split at other white space.
    rows = [
        (number, re.findall(r"[^ \t\r]+", line)) for number, line in enumerate(text.split("\n"), 1)
    ]
    first_word = next((columns for _, columns in rows if _is_word(columns)), None)
    if first_word is None:
        raise UserError(f"{file} has no sentence; {rule}")
    is_tagged = tags_required or len(first_word) > 1
    sentences = []
    documents = 0
    for are_words, group in itertools.groupby(rows, lambda row: _is_word(row[1])):
        if not are_words:
            documents += sum(columns[:1] == [DOCUMENT_START] for _, columns in group)
            continue
        words, tags = [], []
        for number, columns in group:
            place = f"{file}, line {number}"
            _check_columns(columns, is_tagged, place)
            if len(columns) != len(first_word):
                raise UserError(
                    f"{place}: the line has {len(columns)} columns, but the first word's has"
                    f" {len(first_word)}, and spaces and tabs separate columns; correct the line. A"
                    " word with a space in it becomes several lines"
                )
            words.append(columns[0])
            tags.append(columns[-1])
        sentences.append(Sentence(words, tags if is_tagged else None, documents))
    if not documents:
        sentences = [dataclasses.replace(s, document=i) for i, s in enumerate(sentences)]
    return sentences


def _is_word(columns: Sequence[str]) -> bool:
    return bool(columns) and columns[0] != DOCUMENT_START


def _check_columns(columns: Sequence[str], is_tagged: bool, place: str) -> None:
    """Checks a word's line: it must have a tag if `is_tagged`, else one column."""
    if not is_tagged:
        if len(columns) > 1:
            raise UserError(
                f"{place}: either all words of a file must have tags, or none; the first word has"
                f" no tag, but this line has {len(columns)} columns"
            )
        return
    if len(columns) == 1:
        raise UserError(
            f"{place}: a line must have a word and, in its last column, its tag; this one has only"
            f" {quoted(columns[0])}. Add the tag"
        )
    if not is_tag(columns[-1]):
        raise UserError(
            f"{place}: a tag must be O, B-TYPE or I-TYPE; the last column has"
            f" {quoted(columns[-1])}. Convert tags of other schemes: E- to I-, and S- to"
            " B-; with --tag_scheme=bioes, run_tagging makes E- and S- itself"
        )
    check_label(columns[-1], place)


def write_predictions(
    path: str, sentences: Iterable[Sentence], predicted: Iterable[Sequence[str]]
) -> None:
    """Writes a line for each word: the word, its tag if known, and the predicted tag.

    Columns are separated by a space, and an empty line ends each sentence, as conlleval reads it.

    Raises:
        UserError: the file cannot be written.
        OSError: writing failed, for example because the disk is full; a retry may succeed.
    """
    parts = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        columns = [x for x in (sentence.words, sentence.tags, tags) if x is not None]
        lines = (" ".join(line) for line in zip(*columns, strict=True))
        parts.append("\n".join(lines) + "\n\n")
    write_whole(path, "".join(parts))
