"""Fuzzes vocab.txt: read as the original reads it, or refused."""

import random
from pathlib import Path

from bert_tf import tokenization
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.fuzz.cases import attempt, damage

_LINES = (
    *("[UNK]", "[CLS]", "[SEP]", "[PAD]"),
    *("a", "##a", "b", "##b", "", " ", "a ", "\ta", "##", "[unk]", "A", "é", "e\u0301", "[UNK] x"),
    *("鶴", "\u00a0", "\x85", "\u2028a", "\ufeff[UNK]", "\0", "👍", ".", "a b", "x" * 300),
)


def _of_the_original(data: bytes) -> dict[str, int] | None:
    """Returns what the original's load_vocab reads, without a byte-order mark; None if not text."""
    try:
        text = data.replace(b"\r", b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    return {line.strip(): index for index, line in enumerate(lines)}


def fuzz_vocabularies(random: random.Random, folder: Path) -> None:
    lines = random.sample(_LINES, random.randint(0, len(_LINES)))
    lines += random.choices(_LINES, k=random.randrange(6))
    if random.random() < 0.8:
        lines += ["[UNK]", "[CLS]", "[SEP]"]
    random.shuffle(lines)
    if random.random() < 0.05:
        lines.insert(random.randint(0, len(lines)), "x" * 1_000_000)
    end = random.choice(["\n", "\n", "\r\n", "\r"])
    data = (end.join(lines) + random.choice(["", end])).encode()
    data = random.choice([b"", b"", b"", b"\xef\xbb\xbf"]) + data
    if random.random() < 0.4:
        data = damage(random, data)
    path = folder / "vocab.txt"
    path.write_bytes(data)

    expected = _of_the_original(data)
    fits = expected is not None and expected.keys() >= {"[UNK]", "[CLS]", "[SEP]"}
    required = ("[CLS]", "[SEP]")
    message, fast = attempt(lambda: FastTokenizer(str(path), True, required), naming=str(path))
    assert (message is None) == fits, message
    if fits:
        reference = tokenization.FullTokenizer(str(path), True, required)
        assert fast.vocab == expected == reference.vocab
        assert list(fast.vocab) == list(expected)
        text = " ".join(random.sample(_LINES, 5))
        ids = reference.convert_tokens_to_ids(reference.tokenize(text))
        assert fast.encode([text])[0].tolist() == ids
