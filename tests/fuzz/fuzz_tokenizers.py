"""Fuzzes the two tokenizers with texts of all scripts: both must give the same ids."""

import functools
import random
import tempfile
from pathlib import Path

from bert_tf import tokenization
from bert_tf.text import fast_tokenization

# Special tokens, word pieces, spaces of all kinds, marks, controls, ligatures, jamo, emoji.
_PARTS = (
    "[MASK] [CLS] [unused1] ##a ## a un ##able İ ß ﬁ Ⅷ ﷺ ẛ̣ Σ ς ΑΣ . -- ' 가 각 ᄀ 豈 鶴 か゛ é"
    " e\u0301 \u0301 \u0327 \u200b \u200d \ufeff \ufffd \u00ad \u2028 \u3000 \u00a0 \x85 \x1c \x0b"
    " \0 \t \r \n 👩\u200d👧 🇩🇪 👍🏽 x\u0336 \u202e $ ^ ` ~ \U000e0041 \U0002f800 \U00010400"
).split(" ")
_RANGES = [*[(0x20, 0x7E)] * 4, (0, 0x24F), (0x300, 0x6FF), (0x900, 0x1FFF), (0x2000, 0x33FF)]
_RANGES += [(0x3400, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
_PIECES = "a b c e i n o s t un able é ß σ ς 가 ᄀ か 鶴 . - ' [ ] 👍 $ mask cls".split()


@functools.cache
def _tokenizers(
    do_lower_case: bool,
) -> tuple[tokenization.FullTokenizer, fast_tokenization.FastTokenizer]:
    """Returns both tokenizers; the fast one keeps its cache from case to case."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        tokens = ["[PAD]", "[UNK]", "[MASK]", "[CLS]", *_PIECES, *(f"##{p}" for p in _PIECES)]
        path.write_text("\n".join(tokens), encoding="utf-8")
        fast = fast_tokenization.FastTokenizer(str(path), do_lower_case)
        return fast.reference, fast


def random_text(random: random.Random) -> str:
    parts = []
    for _ in range(random.randrange(12)):
        kind = random.randrange(5)
        if kind == 0:
            parts.append(random.choice(_PARTS))
        elif kind == 1:
            first, last = random.choice(_RANGES)
            parts += [chr(random.randint(first, last)) for _ in range(random.randint(1, 6))]
        elif kind == 2:
            parts.append(" ")
        elif kind == 3:
            parts += random.choices([*_PIECES, *map(str.upper, _PIECES)], k=random.randint(1, 9))
        else:  # about the length beyond which a word is unknown
            parts.append(random.choice(_PIECES) * random.choice([2, 99, 100, 101, 199, 200, 201]))
    return "".join(parts)


def fuzz_both_tokenizers(random: random.Random, folder: Path) -> None:
    reference, fast = _tokenizers(random.random() < 0.5)
    texts = [random_text(random) for _ in range(random.choice([1, 20]))]
    ids, row_splits = fast.encode(texts)
    for text, start, end in zip(texts, row_splits[:-1], row_splits[1:], strict=True):
        tokens = reference.tokenize(text)
        expected = reference.convert_tokens_to_ids(tokens)
        assert ids[start:end].tolist() == expected, ascii(text)
        assert reference.convert_ids_to_tokens(expected) == tokens, ascii(text)


def fuzz_tokenizers_of_ascii(random: random.Random, folder: Path) -> None:
    """Texts of printable ASCII, which the fast tokenizer gives to tensorflow-text if it can."""
    do_lower_case = random.random() < 0.5
    reference, _ = _tokenizers(do_lower_case)
    encode = _ascii_encoder(do_lower_case)
    if encode is None:
        return
    letters = "ab.c es-tou n'[]$#\tABE"
    texts = ["".join(random.choices(letters, k=random.choice([0, 5, 60, 250]))) for _ in range(20)]
    ids, lengths = encode(texts)
    expected = [reference.convert_tokens_to_ids(reference.tokenize(text)) for text in texts]
    assert lengths.tolist() == list(map(len, expected)), texts
    assert ids.tolist() == sum(expected, []), texts


@functools.cache
def _ascii_encoder(do_lower_case: bool):
    return fast_tokenization._make_ascii_encoder(_tokenizers(do_lower_case)[0])
