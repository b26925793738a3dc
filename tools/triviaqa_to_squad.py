r"""Writes TriviaQA in SQuAD's format, to fine-tune on it before SQuAD (the paper, 4.2).

    python -m tools.triviaqa_to_squad --triviaqa_file=qa/wikipedia-train.json \
        --evidence_dir=evidence --output_file=triviaqa-train.json
    python run_squad.py --do_train --train_file=triviaqa-train.json ...

The two inputs are what http://nlp.cs.washington.edu/triviaqa/ calls the reading comprehension data.
Of each document that is evidence for a question the first 400 words and punctuation marks become a
context, if at least one of the possible answers is in it; the first such place is the answer.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.progress import Progress
from bert_tf.runs import command_flags
from bert_tf.tasks.squad.examples import load_json

# The folders below --evidence_dir and what lists a question's documents in them.
FOLDERS = {"wikipedia": "EntityPages", "web": "SearchResults"}

_TOKEN = re.compile(r"\w+|[^\w\s]")


class Question(NamedTuple):
    """A question, its id, and all that would be right answers."""

    question_id: str
    text: str
    answers: list[str]


def first_tokens(text: str, max_tokens: int) -> str:
    """Returns the beginning of a text, up to its token (word or mark) number `max_tokens`."""
    end = 0
    for count, match in enumerate(_TOKEN.finditer(text), 1):
        end = match.end()
        if count == max_tokens:
            break
    return text[:end]


def find_answer(context: str, answers: Sequence[str]) -> dict[str, str | int] | None:
    """Returns SQuAD's `text` and `answer_start` of the first answer in a context, None if none is.

    Case does not count, nor how much white space is between words; parts of words are no answers.
    Of several answers at one place it is the longest.
    """
    lowered = " ".join(context.lower().split())
    # Most are nowhere: to look for them all by one expression would take ten times as long.
    candidates = [words for words in map(str.split, answers) if " ".join(words).lower() in lowered]
    candidates = sorted(filter(None, candidates), key=lambda words: -len(" ".join(words)))
    if not candidates:
        return None
    patterns = (r"\s+".join(map(re.escape, words)) for words in candidates)
    found = re.search(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", context, re.IGNORECASE)
    return {"text": found.group(), "answer_start": found.start()} if found else None


def read_triviaqa(path: str, folders: Sequence[str]) -> dict[str, list[Question]]:
    """Returns the questions that each document is evidence for, by its path in --evidence_dir.

    Args:
        path: TriviaQA's JSON.
        folders: which of `FOLDERS`.

    Raises:
        UserError: the file is missing, no JSON or not built like TriviaQA's, or lists no document.
    """
    content = load_json(path, "triviaqa_file", "TriviaQA")
    documents: dict[str, list[Question]] = {}
    try:
        for item in content["Data"]:
            answer = item["Answer"]
            names = [answer["Value"], *answer["Aliases"], *answer["NormalizedAliases"]]
            question = Question(item["QuestionId"], item["Question"], list(dict.fromkeys(names)))
            for folder in folders:
                for file in dict.fromkeys(
                    page["Filename"] for page in item.get(FOLDERS[folder], ())
                ):
                    documents.setdefault(f"{folder}/{file}", []).append(question)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"--triviaqa_file={path} must have `Data`, a list of objects with `QuestionId`,"
            " `Question`, `Answer` (`Value`, `Aliases`, `NormalizedAliases`) and lists of objects"
            f" with `Filename`, as qa/wikipedia-train.json has; {type(error).__name__}: {error}"
        ) from error
    if not documents:
        lists = " or ".join(FOLDERS[folder] for folder in folders)
        raise UserError(f"--triviaqa_file={path}: no question has a document in its {lists}")
    return documents


def paragraphs(
    documents: dict[str, list[Question]], evidence_dir: str, max_tokens: int
) -> Iterator[tuple[str, dict]]:
    """Yields the path and SQuAD's paragraph of each document that holds an answer.

    Raises:
        UserError: none of the documents is there.
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
                    f"--evidence_dir={evidence_dir}: {name} cannot be read: {error.message}"
                ) from error
            context = first_tokens(text, max_tokens)
            qas = []
            for question in questions:
                answer = find_answer(context, question.answers)
                if answer:
                    qas.append(
                        {
                            "id": f"{question.question_id}--{name}",
                            "question": question.text,
                            "answers": [answer],
                            "is_impossible": False,
                        }
                    )
            if qas:
                yield name, {"context": context, "qas": qas}
    if len(missing) == len(documents):
        raise UserError(
            f"--evidence_dir={evidence_dir} has none of the {len(missing)} documents of"
            f" --triviaqa_file, such as {missing[0]}; it is the folder `evidence` of TriviaQA"
        )
    if missing:
        logging.warning(
            "%d of %d documents are not there, such as %s", len(missing), len(documents), missing[0]
        )


def triviaqa_to_squad(
    triviaqa_file: str,
    evidence_dir: str,
    output_file: str,
    folders: Sequence[str] = ("wikipedia",),
    max_tokens: int = 400,
) -> int:
    """Returns the number of questions written; the arguments are the flags.

    Raises:
        UserError: an input is missing or not TriviaQA's, no document holds an answer, or the
            output must not be written. There is no output then.
        OSError: a document that is there cannot be read, or writing failed in another way.
    """
    documents = read_triviaqa(triviaqa_file, folders)
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
                f" an answer in its first {max_tokens} tokens; nothing is written"
            )
        file.write(b"\n]}\n")
        file.finish()
    logging.info("%s: %d questions from %d documents", output_file, count, len(documents))
    return count


def _define_flags() -> None:
    flags.DEFINE_string("triviaqa_file", None, "TriviaQA's questions: qa/wikipedia-train.json.")
    flags.DEFINE_string("evidence_dir", None, "TriviaQA's folder `evidence`.")
    flags.DEFINE_string("output_file", None, "The file in SQuAD's format; replaced.")
    flags.DEFINE_multi_enum(
        "folders",
        ["wikipedia"],
        list(FOLDERS),
        "Which folders of --evidence_dir to take documents from; may be given twice. The paper"
        " took Wikipedia's.",
    )
    flags.DEFINE_integer(
        "max_tokens", 400, "Words and punctuation marks of a document to keep.", lower_bound=1
    )
    flags.mark_flags_as_required(["triviaqa_file", "evidence_dir", "output_file"])


def main() -> None:
    """Reads the flags and converts."""
    settings = flags.FLAGS
    triviaqa_to_squad(
        settings.triviaqa_file,
        settings.evidence_dir,
        settings.output_file,
        settings.folders,
        settings.max_tokens,
    )


if __name__ == "__main__":
    _define_flags()
    command_flags.run_program(main)
