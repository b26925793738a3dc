"""Fuzzes SQuAD's files: an oracle of a few lines confirms what is read; all else is refused."""

import copy
import json
import random
from pathlib import Path

from bert_tf.tasks.squad.examples import SquadData, read_squad_examples
from bert_tf.tasks.squad.scoring import evaluate, evaluate_with_negative
from bert_tf.tasks.squad.words import FinalText, is_unspaced, split_words
from bert_tf.tokenization import BasicTokenizer
from tests.fuzz.cases import attempt, damage, places

_WORDS = (
    "The the river Thames (1895-1943). Café cafe\u0301 a\u00a0b 鶴の 👩\u200d👧 İstanbul \u0301"
    " x\u2028y \ufeffone \ud800 end, ##s $5.00 \x85"
).split(" ")
_SPACES = [" ", " ", " ", "  ", "\n", "\t", "\u202f", "\r\n", "\u00a0", ""]
_VALUES = [
    *(None, True, False, 0, 1, -1, 10**30, 0.5, "", "x", "false", [], {}, ["x"], {"text": "x"}),
    *("x" * 5000, ["x" * 5000] * 3, {"x" * 5000: 1}, "\ud800", "1"),
]


def _paragraph(random: random.Random) -> dict:
    context = "".join(
        random.choice(_WORDS) + random.choice(_SPACES) for _ in range(random.randint(1, 12))
    )
    qas = []
    for _ in range(random.randrange(4)):
        answers = []
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            start = random.randrange(len(context) + 1)
            text = context[start : start + random.choice([0, 1, 4, 9])]
            answers.append({"text": text, "answer_start": start + random.choice([0] * 9 + [1])})
        question = {"id": random.choice(["q", 1, "1", random.random().hex()]), "question": "Who?"}
        if random.random() < 0.9:
            question["answers"] = answers
        if random.random() < 0.3:
            question["is_impossible"] = not answers
        qas.append(question)
    return {"context": context, "qas": qas}


def _mutate(random: random.Random, content: dict) -> None:
    container, key = random.choice([*places(content)])
    if random.random() < 0.3:
        del container[key]
    else:
        container[key] = copy.deepcopy(random.choice(_VALUES))


def _check(content: dict, data: SquadData, is_training: bool, version_2: bool) -> None:
    """Checks what was read, question by question."""
    examples = iter(data.examples)
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                context, answers = paragraph["context"], question.get("answers")
                impossible = is_training and version_2 and bool(question.get("is_impossible"))
                if impossible:
                    answers = []  # whatever the file has
                texts = None if answers is None else tuple(answer["text"] for answer in answers)
                if is_training and not impossible:
                    (answer,) = answers
                    start, length = answer["answer_start"], len(answer["text"])
                    assert start >= 0 and start + max(length, 1) <= len(context)
                    span = _words_of(context, start, max(start + length - 1, 0))
                    words = split_words(context)[span[0] : span[1] + 1]
                    text = " ".join(texts[0].split())
                    if not text or text not in " ".join(words):
                        continue  # left out with a warning
                    there = " ".join(context[start : start + length].split())
                    if text != there and any(map(is_unspaced, words)):
                        continue  # so, too: such words can be a sentence
                example = next(examples)
                assert example.qas_id == str(question["id"])
                assert data.contexts[example.context_index] == context
                assert example.is_impossible == impossible
                assert example.answers == texts
                if is_training and not impossible:
                    assert (example.start_position, example.end_position) == span
    assert next(examples, None) is None
    if not is_training:
        assert len({example.qas_id for example in data.examples}) == len(data.examples)


def _words_of(context: str, start: int, end: int) -> tuple[int, int]:
    """Returns the words of two characters, found by going through all (the original's way)."""
    word, numbers, after_space = -1, [], True
    for char in context:
        is_space = char in " \t\r\n\u202f"
        word += not is_space and after_space
        after_space = is_space
        numbers.append(word)
    return numbers[start], numbers[end]


def fuzz_squad_files(random: random.Random, folder: Path) -> None:
    articles = [{"title": "t", "paragraphs": [_paragraph(random) for _ in range(3)]}]
    content = {"version": "x", "data": articles}
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        _mutate(random, content)
    text = json.dumps(content, ensure_ascii=random.random() < 0.7)
    data = text.encode("utf-8", "surrogatepass")
    damaged = random.random() < 0.15
    path = folder / "x.json"
    path.write_bytes(damage(random, data) if damaged else data)
    is_training, version_2 = random.random() < 0.6, random.random() < 0.5
    message, read = attempt(
        lambda: read_squad_examples(str(path), "train_file", is_training, version_2),
        naming=f"--train_file={path}",
    )
    if message is None:
        _check(json.loads(path.read_bytes().decode("utf-8-sig")), read, is_training, version_2)


def fuzz_squad_answers(random: random.Random, folder: Path) -> None:
    """The words of an answer, and the scores, of any text."""
    context = "".join(random.choice(_WORDS) + random.choice(_SPACES) for _ in range(8))
    words = split_words(context)
    start = random.randrange(len(words)) if words else 0
    chosen = words[start : start + 3]
    do_lower_case = random.random() < 0.5
    predicted = random.choice(["", "the", " ".join(chosen), " ".join(chosen).lower(), "a ##b"])
    begin, end = FinalText(BasicTokenizer(do_lower_case).tokenize)(predicted, chosen)
    assert 0 <= begin <= end <= len(" ".join(chosen))
    found = " ".join(chosen)[begin:end]
    for score in (evaluate, evaluate_with_negative):
        results = score({"q": (found,), "r": ("x",)}, {"q": found, "r": "x"})
        exact = results["exact_match" if score is evaluate else "exact"]
        assert exact == 100.0 and 0.0 <= results["f1"] <= 100.0
