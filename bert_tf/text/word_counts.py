"""Counts the words of a text as BERT's tokenizer splits it."""

import collections
from collections.abc import Iterable, Sequence

from bert_tf import tokenization
from bert_tf.text.tokenizer_settings import DEFAULTS, TokenizerSettings

_MAX_CHUNKS = 1_000_000


def count_words(
    lines: Iterable[Sequence[str]], do_lower_case: bool, settings: TokenizerSettings = DEFAULTS
) -> dict[str, int]:
    """Returns the number of occurrences of each word in batches of lines, sorted by word.

    By default, `do_lower_case` also strips accents.
    """
    tokenizer = tokenization.BasicTokenizer(do_lower_case, **settings.switches)
    words: collections.Counter[str] = collections.Counter()
    # Chunks between white space repeat, so each is tokenized once. In printable text, whose only
    # white space is the space, this gives the same words as tokenizing the line.
    chunks: collections.Counter[str] = collections.Counter()

    def tokenize_chunks() -> None:
        for chunk, count in chunks.items():
            for word in tokenizer.tokenize(chunk):
                words[word] += count
        chunks.clear()

    for batch in lines:
        for line in batch:
            if line.isprintable():
                chunks.update(line.split())
            else:
                words.update(tokenizer.tokenize(line))
        if len(chunks) > _MAX_CHUNKS:
            tokenize_chunks()
    tokenize_chunks()
    return dict(sorted(words.items()))
