"""Tests of counting the words of a text."""

import collections

from bert_tf import tokenization
from bert_tf.text import word_counts

TEXT = (
    "The lowering of the lower and the lowest; the newer, the newest, the widest.\n"
    "\n"
    "D\u00e9j\u00e0 vu -- na\u00efve widening\tof the new \u4e2d\u6587 words\u2026 "
    "\u03a3\u03bf\u03c6\u03cc\u03c2 #1!\u200b\n"
) * 3


def test_words_are_counted_as_the_tokenizer_splits_them(monkeypatch):
    monkeypatch.setattr(word_counts, "_MAX_CHUNKS", 4)
    odd = "A\u200bB\tc\x0bd e\u2028f \ufffdg\ufffd h\u4e2d\u03a3\u03a3. i\u3000\u0130 \0 \x1c"
    batches = [TEXT.split("\n"), [odd, "", "one\u00a0two"], odd.split(" ")]
    for do_lower_case in (True, False):
        basic = tokenization.BasicTokenizer(do_lower_case)
        expected = collections.Counter(
            word for batch in batches for line in batch for word in basic.tokenize(line)
        )
        counts = word_counts.count_words(batches, do_lower_case)
        assert counts == expected and list(counts) == sorted(counts)
