"""Learns a WordPiece vocabulary from text.

    python -m tools.build_vocabulary --input_file='text/*.txt' --output_file=vocab.txt

Text is split into words by the rules it will later be tokenized by, and the words go to the learner
that comes with tensorflow-text, which must be installed. The file has one token a line: [PAD],
[UNK], [CLS], [SEP] and [MASK], the characters, then words and pieces of words, the frequent ones
first. The same text gives the same file. Time and memory grow with the number of different words: a
few hundred megabytes of text, well mixed, teach as much as all of it.
"""

import collections
import math
import os
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from absl import flags, logging

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.runs import command_flags
from bert_tf.text import documents

# In the order of the released English vocabularies, without their [unused] lines. [PAD] is 0
# because padding is written as 0.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# A vocabulary this little above --vocab_size ends the search, which is slow.
_SLACK = 0.02
# The learner's default. Longer words are all but always no words.
_MAX_TOKEN_LENGTH = 50
# Memory: some 2 GB for a million words. Rarer ones hardly change what is learned.
_MAX_WORDS = 1_000_000
_MAX_CHUNKS = 1_000_000


def count_words(lines: Iterable[Sequence[str]], do_lower_case: bool) -> dict[str, int]:
    """Returns how often each word occurs, words being those of `BasicTokenizer`; sorted by word.

    Args:
        lines: batches of lines.
        do_lower_case: whether to lowercase text and strip its accents.
    """
    tokenizer = tokenization.BasicTokenizer(do_lower_case)
    words: collections.Counter[str] = collections.Counter()
    # What stands between spaces repeats itself, so each such chunk is tokenized once. That is the
    # same where spaces are the only white space: in printable text.
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


def learn_vocabulary(
    word_counts: Mapping[str, int], vocab_size: int, max_unique_chars: int
) -> list[str]:
    """Returns the tokens of a vocabulary of `vocab_size`, fewer if the text is too short for it.

    Each of the kept characters is a token, at the start of a word and inside one, so that every
    word of kept characters (and of at most 200) can be tokenized.

    Args:
        word_counts: how often each word occurs.
        vocab_size: largest number of tokens.
        max_unique_chars: how many different characters to keep, the frequent ones first. Words with
            others teach nothing, and are unknown afterwards.

    Raises:
        UserError: there are no words, more characters than `vocab_size` has room for, or no
            tensorflow-text.
    """
    try:
        from tensorflow_text.tools.wordpiece_vocab.wordpiece_tokenizer_learner_lib import learn
    except ImportError as error:
        raise UserError(
            f"a vocabulary is learned by tensorflow-text, which is not installed here ({error});"
            " run this where the package has the extra `cpu`, and copy the vocabulary"
        ) from error
    if not word_counts:
        raise UserError("--input_file: the text has no words; name files that hold some")
    counts = collections.Counter(word_counts)
    for word in word_counts:
        if len(word) > _MAX_TOKEN_LENGTH:
            # The learner leaves out words this long; their characters must not be lost with them.
            for char in word:
                counts[char] += word_counts[word]

    # The learner keeps what occurs at least `threshold` times. Its own search for the threshold may
    # end on either side of the size, so it is given one threshold at a time, and what is too many
    # is cut. Steps are ratios because good thresholds are small compared to the largest count.
    low, high = 1, max(counts.values())
    best: list[str] = []
    while low <= high:
        threshold = math.isqrt(low * high)
        vocab = learn(
            counts,
            vocab_size,
            list(SPECIAL_TOKENS),
            lower_thresh=threshold,
            upper_thresh=threshold,
            max_input_tokens=_MAX_WORDS,
            max_token_length=_MAX_TOKEN_LENGTH,
            max_unique_chars=max_unique_chars,
        )
        vocab = [token for token in vocab if _can_occur(token)]
        logging.info("What occurs at least %d times: %d tokens", threshold, len(vocab))
        if len(vocab) >= vocab_size or len(best) < vocab_size:
            best = vocab
        if len(vocab) < vocab_size:
            high = threshold - 1
        elif len(vocab) > (1 + _SLACK) * vocab_size:
            low = threshold + 1
        else:
            break
    return _cut(best, vocab_size, max_unique_chars)


def _cut(vocab: Sequence[str], vocab_size: int, max_unique_chars: int) -> list[str]:
    """Returns `vocab` without its last tokens, but with every special token and character."""
    must_stay = {
        token for token in vocab if token in SPECIAL_TOKENS or len(token.removeprefix("##")) <= 1
    }
    if len(must_stay) > vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size}: the special tokens and the characters of the text take"
            f" {len(must_stay)}; raise it, or keep fewer characters than"
            f" --max_unique_chars={max_unique_chars}"
        )
    others = [token for token in vocab if token not in must_stay]
    kept = must_stay.union(others[: vocab_size - len(must_stay)])
    return [token for token in vocab if token in kept]


def _can_occur(token: str) -> bool:
    """Returns False for a piece inside a word, like "##,", that is always a word by itself."""
    char = token.removeprefix("##")
    if len(token) != 3 or len(char) != 1:
        return True
    word = f"a{char}"
    return tokenization.BasicTokenizer(do_lower_case=False).tokenize(word) == [word]


def build_vocabulary(
    input_file: str,
    output_file: str,
    vocab_size: int,
    do_lower_case: bool,
    max_unique_chars: int,
) -> None:
    """Learns a vocabulary from text files and writes it; see the flags of the same names.

    Raises:
        UserError: nothing matches, the text cannot be read or has no words, or the file must not
            be written. Nothing is left behind then.
        OSError: writing failed in another way, perhaps for the moment.
    """
    files = storage.expand_files(input_file, "input_file")
    try:
        tf.io.gfile.makedirs(os.path.dirname(output_file) or ".")
    except tf.errors.OpError as error:
        message = f"--output_file={output_file} cannot be written: {error.message}"
        raise storage.write_error(error, message) from error
    # Opened before the work, so that it is not done in vain.
    with UnfinishedFile(output_file, f"--output_file={output_file}") as file:
        word_counts = count_words(documents.read_text(files, "input_file"), do_lower_case)
        vocab = learn_vocabulary(word_counts, vocab_size, max_unique_chars)
        file.write("".join(f"{token}\n" for token in vocab).encode())
        file.finish()
    _report(word_counts, vocab, output_file)


def _report(word_counts: Mapping[str, int], vocab: Sequence[str], output_file: str) -> None:
    known = set(vocab)
    lost = sum(count for word, count in word_counts.items() if not known.issuperset(word))
    total = sum(word_counts.values())
    logging.info(
        "%s: %d tokens, learned from %d words, %d of them different",
        output_file,
        len(vocab),
        total,
        len(word_counts),
    )
    if lost:
        logging.warning(
            "%d words (%.3g%%) have characters that are not in the vocabulary and will be [UNK];"
            " --max_unique_chars keeps more",
            lost,
            100 * lost / total,
        )


def _define_flags() -> None:
    flags.DEFINE_string("input_file", None, "UTF-8 text: files or globs, separated by commas.")
    flags.DEFINE_string("output_file", None, "The vocabulary, one token a line; replaced.")
    flags.DEFINE_integer("vocab_size", 30522, "The number of tokens at most.", lower_bound=1)
    flags.DEFINE_bool("do_lower_case", True, "Whether to lowercase text and strip its accents.")
    flags.DEFINE_integer(
        "max_unique_chars",
        1000,
        "How many different characters to keep. Chinese and Japanese need several thousand.",
        lower_bound=1,
    )
    flags.mark_flags_as_required(["input_file", "output_file"])


def main() -> None:
    """Reads the flags and learns the vocabulary."""
    settings = flags.FLAGS
    build_vocabulary(
        settings.input_file,
        settings.output_file,
        settings.vocab_size,
        settings.do_lower_case,
        settings.max_unique_chars,
    )


if __name__ == "__main__":
    _define_flags()
    command_flags.run_program(main)
