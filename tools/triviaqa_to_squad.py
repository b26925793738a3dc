r"""Converts TriviaQA to SQuAD's format, to fine-tune on it before SQuAD (the paper, 4.2).

    python -m tools.triviaqa_to_squad --triviaqa_file=qa/wikipedia-train.json \
        --evidence_dir=evidence --output_file=triviaqa-train.json
    python run_squad.py --do_train --train_file=triviaqa-train.json ...

Both inputs are from the reading comprehension data of http://nlp.cs.washington.edu/triviaqa/. For
each question and each of its evidence documents, the context is the document's first 400 words and
punctuation marks. The answer is the first match of any accepted answer in the context. Documents
without a match are left out.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.triviaqa_to_squad")

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import flags, logging

from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.files.paths import check_overwrites
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.progress import Progress
from bert_tf.runs.flags import command_flags
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.squad.examples import load_json

from . import with_flags

# Folder below --evidence_dir -> the key that lists a question's documents in it.
FOLDERS = {"wikipedia": "EntityPages", "web": "SearchResults"}

# Windows' separator, and characters that no file system allows.
_NOT_IN_NAMES = re.compile(r"[\\\0\ud800-\udfff]")
_TOKEN = re.compile(r"\w+|[^\w\s]")


class Question(NamedTuple):
    """A question, its id, and all accepted answers."""

    question_id: str
    text: str
    answers: list[str]


def first_tokens(text: str, max_tokens: int) -> str:
    """Returns the first `max_tokens` tokens of a text, words and punctuation marks, unchanged."""
    end = 0
    for count, match in enumerate(_TOKEN.finditer(text), 1):
        end = match.end()
        if count == max_tokens:
            break
    return text[:end]


def find_answer(context: str, answers: Sequence[str]) -> dict[str, str | int] | None:
    """Returns SQuAD's `text` and `answer_start` of the first accepted answer in a context, or None.

    Only whole words match; case and white space between words do not matter. If several answers
    match at the same place, the longest wins.
    """
    lowered = " ".join(context.lower().split())
    # Most answers do not occur. A regular expression of all answers would take ten times as long.
    candidates = [words for words in map(str.split, answers) if " ".join(words).lower() in lowered]
    candidates = sorted(filter(None, candidates), key=lambda words: -len(" ".join(words)))
    if not candidates:
        return None
    patterns = (r"\s+".join(map(re.escape, words)) for words in candidates)
    found = re.search(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", context, re.IGNORECASE)
    return {"text": found.group(), "answer_start": found.start()} if found else None


def read_triviaqa(path: str, folders: Sequence[str]) -> dict[str, list[Question]]:
    """Returns the questions of each evidence document, by the document's path in --evidence_dir."""
    content = load_json(path, "triviaqa_file", "TriviaQA")
    documents: dict[str, list[Question]] = {}
    try:
        for item in content["Data"]:
            answer = item["Answer"]
            names = [answer["Value"], *answer["Aliases"], *answer["NormalizedAliases"]]
            answers = list(dict.fromkeys(map(_text, names)))
            question = Question(_text(item["QuestionId"]), _text(item["Question"]), answers)
            for folder in folders:
                pages = item.get(FOLDERS[folder], ())
                for file in dict.fromkeys(_text(page["Filename"]) for page in pages):
                    documents.setdefault(f"{folder}/{file}", []).append(question)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"--triviaqa_file={path} must have `Data`, a list of objects with `QuestionId`,"
            " `Question`, `Answer` (`Value`, `Aliases`, `NormalizedAliases`) and lists of objects"
            f" with `Filename`, like qa/wikipedia-train.json; {type(error).__name__}:"
            f" {str(error)[:120]}"
        ) from error
    if not documents:
        lists = " or ".join(FOLDERS[folder] for folder in folders)
        raise UserError(f"--triviaqa_file={path}: no question has a document in its {lists}")
    return documents


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is {quoted(value)}")
    return value


def document_path(evidence_dir: str, name: str, question_id: str) -> str:
    """Returns the path of the document `name`, which must not lead or link out of the folder."""
    path = os.path.join(evidence_dir, name)
    is_plain = not _NOT_IN_NAMES.search(name) and not {"", ".", ".."}.intersection(name.split("/"))
    if is_plain and "://" not in evidence_dir:  # only local folders have links
        root = os.path.realpath(evidence_dir)
        is_plain = os.path.commonpath([root, os.path.realpath(path)]) == root
    if not is_plain:
        raise UserError(
            f"--triviaqa_file, question {quoted(question_id)}: the document {quoted(name)} must be"
            f' a file below --evidence_dir={evidence_dir}, named without "..", backslashes and'
            " links to other folders; correct --triviaqa_file, which may be malicious"
        )
    return path


def paragraphs(
    documents: dict[str, list[Question]], evidence_dir: str, max_tokens: int
) -> Iterator[tuple[str, dict]]:
    """Yields the path and SQuAD's paragraph of each document that has an answer.

    A context has at most `max_tokens` words and punctuation marks.
    """
    missing = []
    with Progress("reading documents", "documents", len(documents)) as work:
        for name, questions in documents.items():
            work.advance()
            try:
                with tf.io.gfile.GFile(os.path.join(evidence_dir, name), "rb") as reader:
                    text = reader.read().decode("utf-8", "replace")
            except tf.errors.NotFoundError:
                missing.append(name)
                continue
            except tf.errors.OpError as error:
                raise OSError(
                    f"--evidence_dir={evidence_dir}: {quoted(name)} cannot be read:"
                    f" {error.message[:200]}"
                ) from error
            context = first_tokens(text, max_tokens)
            qas = []
            for question in questions:
                if answer := find_answer(context, question.answers):
                    qa = {"id": f"{question.question_id}--{name}", "question": question.text}
                    qas.append({**qa, "answers": [answer], "is_impossible": False})
            if qas:
                yield name, {"context": context, "qas": qas}
    if len(missing) == len(documents):
        raise UserError(
            f"--evidence_dir={evidence_dir} must be TriviaQA's folder `evidence`; it has none of"
            f" the {len(missing)} documents of --triviaqa_file, such as {quoted(missing[0])}"
        )
    if missing:
        logging.warning(
            "%d of %d documents are missing, such as %s",
            *(len(missing), len(documents), quoted(missing[0])),
        )


def triviaqa_to_squad(
    triviaqa_file: str,
    evidence_dir: str,
    output_file: str,
    folders: Sequence[str] = ("wikipedia",),
    max_tokens: int = 400,
) -> int:
    """Converts TriviaQA to SQuAD's format and returns the number of questions written."""
    check_overwrites([output_file], "output_file", {"triviaqa_file": triviaqa_file})
    documents = read_triviaqa(triviaqa_file, folders)
    evidence = [
        document_path(evidence_dir, name, questions[0].question_id)
        for name, questions in documents.items()
    ]
    check_overwrites([output_file], "output_file", {"evidence_dir": evidence})
    count = 0
    storage.check_file_system(output_file, "output_file")
    with UnfinishedFile(output_file, f"--output_file={output_file}") as file:
        file.write(b'{"version": "1.1", "data": [')
        for name, paragraph in paragraphs(documents, evidence_dir, max_tokens):
            article = {"title": name, "paragraphs": [paragraph]}
            file.write(((",\n" if count else "\n") + json.dumps(article)).encode())
            count += len(paragraph["qas"])
        if not count:
            raise UserError(
                f"none of the {len(documents)} documents of --triviaqa_file={triviaqa_file} has"
                f" an answer in its first {max_tokens} tokens; nothing was written. Raise"
                " --max_tokens or use another file"
            )
        file.write(b"\n]}\n")
        file.finish()
    logging.info("%s: %d questions from %d documents", output_file, count, len(documents))
    return count


if __name__ == "__main__":
    flags.DEFINE_string(
        "triviaqa_file", None, "TriviaQA's questions, such as qa/wikipedia-train.json."
    )
    flags.DEFINE_string("evidence_dir", None, "TriviaQA's folder `evidence`.")
    flags.DEFINE_string(
        "output_file",
        None,
        "The file to write, in SQuAD's format. An existing file is overwritten.",
    )
    flags.DEFINE_multi_enum(
        "folders",
        ["wikipedia"],
        list(FOLDERS),
        "Folder of --evidence_dir to use; repeat the flag to use both. The paper used wikipedia.",
    )
    flags.DEFINE_integer(
        "max_tokens",
        400,
        "Length of a context: the first words and punctuation marks of a document.",
        lower_bound=1,
    )
    flags.mark_flags_as_required(["triviaqa_file", "evidence_dir", "output_file"])
    command_flags.run_program(with_flags(triviaqa_to_squad))
