"""Maps a predicted answer, made of word pieces, back to the original text."""

import functools
from collections.abc import Callable, Sequence

from absl import logging

_CACHED_WORDS = 1 << 16


class FinalText:
    """Finds a predicted text, which the tokenizer has normalised, in the original words.

    Example: the prediction "steve smith" in the words "Steve Smith's" gives "Steve Smith". The
    words are tokenized, too. If words and tokens have the same number of characters, not counting
    spaces, character i of the words matches character i of the tokens. If the numbers differ, as
    with decomposed accents, the answer is all of the words. (Original: get_final_text.)

    Args:
        split_words: the method of this name of the tokenizer that made the word pieces. (The
            original uses a tokenizer with the same casing.)
        verbose_logging: whether to log each failure to align.
    """

    def __init__(self, split_words: Callable[[str], list[str]], verbose_logging: bool = False):
        self._verbose_logging = verbose_logging
        # Single words can be cached: their tokens do not depend on their neighbours.
        self._tokenize = functools.lru_cache(_CACHED_WORDS)(
            lambda word: " ".join(split_words(word))
        )

    def __call__(self, predicted_text: str, words: Sequence[str]) -> tuple[int, int]:
        """Returns the first character of the predicted text in `" ".join(words)`, and its last + 1.

        If the text is not found, all words are the answer.

        Args:
            predicted_text: joined word pieces, with a space between words.
            words: the words of the context, from the first to the last word of the answer.
        """
        original = " ".join(words)
        tokenized = " ".join(filter(None, map(self._tokenize, words)))
        start = tokenized.find(predicted_text)
        places = [i for i, char in enumerate(original) if char != " "]
        if start == -1:
            problem = "Unable to find text: '%s' in '%s'", predicted_text
        elif len(places) != len(tokenized) - tokenized.count(" "):
            problem = "Length not equal after stripping spaces: '%s' vs '%s'", tokenized
        elif not predicted_text:
            problem = "Nothing to align: '%s' in '%s'", predicted_text
        else:
            first = start - tokenized.count(" ", 0, start)
            last = first + len(predicted_text) - predicted_text.count(" ") - 1
            return places[first], places[last] + 1
        if self._verbose_logging:
            logging.info(*problem, original)
        return 0, len(original)
