"""CoNLL column files: a word a line, its tag in the last column, sentences between empty lines."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from bert_tf.errors import UserError
from bert_tf.files.whole_files import read_text, write_whole

DOCUMENT_START = "-DOCSTART-"
_TAG = re.compile(r"O|[BI]-.+")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """The words of a sentence.

    words: as in the file.
    tags: one for each word; None where the file has words only.
    document: a number that only the sentences of one document share. A file without any
        `-DOCSTART-` line says nothing of documents: there each sentence is one of its own.
    """

    words: list[str]
    tags: list[str] | None
    document: int


def is_tag(text: str) -> bool:
    """Returns whether it is a tag of IOB1 and IOB2: `O`, `B-TYPE` or `I-TYPE`."""
    return _TAG.fullmatch(text) is not None


def read_sentences(path: str, flag: str, tags_required: bool = True) -> list[Sentence]:
    """Returns the sentences of a file.

    Args:
        path: a UTF-8 file. Columns are parted by blanks or tabs; the first is the word, the last
            the tag: `O`, `B-TYPE` or `I-TYPE`, where `B-` may stand at the beginning of every
            entity (IOB2) or only of those that follow one of their own type (IOB1).
        flag: the flag (no dashes) that named it, for messages.
        tags_required: whether a file of words alone is refused.

    Raises:
        UserError: the file cannot be read, holds no sentence, a line has no tag where others have
            (or tags are required), or a tag is none.
    """
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    documents = 0

    def end_sentence() -> None:
        if words:
            sentences.append(Sentence(words[:], tags[:] or None, documents))
            words.clear()
            tags.clear()

    tagged = True if tags_required else None  # None: the first line tells
    text = read_text(path, f"--{flag}: {path}", "it must hold a word and its tag a line")
    for number, line in enumerate(text.split("\n"), 1):
        columns = re.findall(r"[^ \t\r]+", line)  # not str.split: words may hold other spaces
        if not columns:
            end_sentence()
        elif columns[0] == DOCUMENT_START:
            end_sentence()
            documents += 1
        else:
            tagged = len(columns) > 1 if tagged is None else tagged
            if not tagged and len(columns) > 1:
                raise UserError(
                    f"--{flag}: {path}, line {number}: a line of this file holds a word alone, as"
                    f" its first one does; this one has {len(columns)} columns. Tag all words or"
                    " none"
                )
            if tagged and len(columns) == 1:
                raise UserError(
                    f"--{flag}: {path}, line {number}: a line holds a word and, in its last column,"
                    f" its tag; this one holds only {columns[0]!r}. Add the tag"
                )
            if tagged and not is_tag(columns[-1]):
                raise UserError(
                    f"--{flag}: {path}, line {number}: a tag is O, B-TYPE or I-TYPE; the last"
                    f" column has {columns[-1]!r}. Convert other schemes to these"
                )
            words.append(columns[0])
            if tagged:
                tags.append(columns[-1])
    end_sentence()
    if not sentences:
        raise UserError(f"--{flag}: {path} holds no sentence; it needs a word and its tag a line")
    if not documents:
        sentences = [
            dataclasses.replace(sentence, document=i) for i, sentence in enumerate(sentences)
        ]
    return sentences


def write_predictions(
    path: str, sentences: Iterable[Sentence], predicted: Iterable[Sequence[str]]
) -> None:
    """Writes each word with its tag, if it has one, and the predicted one: conlleval's input.

    Columns are parted by a blank, and an empty line ends each sentence.
    """
    parts = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        columns = [sentence.words, tags]
        if sentence.tags is not None:
            columns.insert(1, sentence.tags)
        lines = (" ".join(line) for line in zip(*columns, strict=True))
        parts.append("\n".join(lines) + "\n\n")
    write_whole(path, "".join(parts))
