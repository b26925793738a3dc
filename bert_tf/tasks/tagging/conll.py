"""Reads and writes CoNLL column files.

Each line has a word in the first column and, if the words are tagged, its tag in the last. Empty
lines end sentences, and `-DOCSTART-` lines begin documents.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from bert_tf.errors import UserError, quoted
from bert_tf.files.label_file import check_label, is_tag
from bert_tf.files.whole_files import read_text, write_whole

DOCUMENT_START = "-DOCSTART-"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence and its tags.

    words: words as in the file.
    tags: tag of each word; None if the file has no tags.
    document: number of its document. In a file without `-DOCSTART-` lines every sentence is a
        document of its own.
    """

    words: list[str]
    tags: list[str] | None
    document: int


def read_sentences(path: str, flag: str, tags_required: bool = True) -> list[Sentence]:
    """Returns the sentences of a CoNLL file.

    Args:
        path: UTF-8 file. Columns are separated by spaces or tabs. The first is the word, the last
            the tag: `O`, `B-TYPE` or `I-TYPE`. `B-` begins every entity (IOB2), or only those that
            directly follow an entity of the same type (IOB1).
        flag: the flag (no dashes) that named it, for messages.
        tags_required: whether the words must have tags.

    Raises:
        UserError: the file cannot be read, has no sentence, has an unknown tag, or lacks tags: all
            words of a file must have one, or none.
    """
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    known: set[str] = set()
    documents = 0

    def end_sentence() -> None:
        if words:
            sentences.append(Sentence(words[:], tags[:] or None, documents))
            words.clear()
            tags.clear()

    tagged = True if tags_required else None  # None: as the first line is
    text = read_text(path, f"--{flag}: {path}", "it must have a word and its tag on each line")
    for number, line in enumerate(text.split("\n"), 1):
        columns = re.findall(r"[^ \t\r]+", line)  # str.split would also split at other spaces
        if not columns:
            end_sentence()
        elif columns[0] == DOCUMENT_START:
            end_sentence()
            documents += 1
        else:
            tagged = len(columns) > 1 if tagged is None else tagged
            if not tagged and len(columns) > 1:
                raise UserError(
                    f"--{flag}: {path}, line {number}: all words of a file must have tags, or none;"
                    f" the first word has none, and this line has {len(columns)} columns"
                )
            if tagged and len(columns) == 1:
                raise UserError(
                    f"--{flag}: {path}, line {number}: a line must have a word and, in its last"
                    f" column, its tag; this one has only {quoted(columns[0])}. Add the tag"
                )
            if tagged and not is_tag(columns[-1]):
                raise UserError(
                    f"--{flag}: {path}, line {number}: a tag must be O, B-TYPE or I-TYPE; the last"
                    f" column has {quoted(columns[-1])}. Convert tags of other schemes"
                )
            words.append(columns[0])
            if tagged:
                if columns[-1] not in known:
                    check_label(columns[-1], f"--{flag}: {path}, line {number}")
                    known.add(columns[-1])
                tags.append(columns[-1])
    end_sentence()
    if not sentences:
        raise UserError(
            f"--{flag}: {path} has no sentence; it must have a word and its tag on each line"
        )
    if not documents:
        sentences = [
            dataclasses.replace(sentence, document=i) for i, sentence in enumerate(sentences)
        ]
    return sentences


def write_predictions(
    path: str, sentences: Iterable[Sentence], predicted: Iterable[Sequence[str]]
) -> None:
    """Writes a line for each word: the word, its tag if known, and the predicted tag.

    Columns are separated by a space, and an empty line ends each sentence, as conlleval reads it.

    Args:
        path: the file.
        sentences: sentences, with or without tags.
        predicted: predicted tags of each sentence.

    Raises:
        UserError: the file cannot be written.
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    parts = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        columns = [sentence.words, tags]
        if sentence.tags is not None:
            columns.insert(1, sentence.tags)
        lines = (" ".join(line) for line in zip(*columns, strict=True))
        parts.append("\n".join(lines) + "\n\n")
    write_whole(path, "".join(parts))
