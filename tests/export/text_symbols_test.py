"""Every character of Unicode becomes what the reference tokenizer makes of it."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import tokenization
from bert_tf.export import unicode_tables
from bert_tf.export.text_symbols import TextSymbols


def words_of(module: TextSymbols, letters: dict[str, int], texts: list[str]) -> list[list[str]]:
    chars = {symbol: char for char, symbol in letters.items()} | {unicode_tables.SPACE: " "}
    symbols, row_splits = module(tf.constant(texts))
    rows = np.split(symbols.numpy(), row_splits.numpy()[1:-1])
    return ["".join(map(chars.__getitem__, row.tolist())).split() for row in rows]


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
def test_every_code_point(do_lower_case, step):
    """On its own, and between letters on both sides of a sigma.

    Surrogates are left out, since UTF-8 lacks them. Every output character has its own symbol.
    """
    points = [
        point
        for point in range(0, 0x110000, step)
        # One of ten will do of those that are private or not assigned.
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
        or point % 10 == 3
        and not 0xD800 <= point < 0xE000
        and point < 0x32000
    ]
    texts = [f"{c} A{c}\u03a3 A\u03a3{c}B" for c in map(chr, points)]
    basic = tokenization.BasicTokenizer(do_lower_case)
    expected = [basic.tokenize(text) for text in texts]
    letters = unicode_tables.letters_of(word for words in expected for word in words)
    assert words_of(TextSymbols(letters, basic), letters, texts) == expected
