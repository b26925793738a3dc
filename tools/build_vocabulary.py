r"""Learns a vocabulary from text: word pieces, or a byte-level BPE.

    python -m tools.build_vocabulary --input_file='text/*.txt' --output_file=vocab.txt

    python -m tools.build_vocabulary --kind=byte_bpe --input_file='text/*.txt' \
        --output_file=vocab.json

BERT uses word pieces. BERT's tokenizer splits the text into words, and the tool finds the same
pieces as the learner of TensorFlow Text. The output file has one token per line: [PAD], [UNK],
[CLS], [SEP] and [MASK], then the characters, then words and pieces of words, most frequent first.
The same text always gives the same file. Time and memory grow with the number of different words: a
million take a minute and 1.1 GB, and rarer words are left out. A few hundred megabytes of
well-mixed text are enough.

RoBERTa uses a byte-level BPE, which the package `tokenizers` learns from the text in its original
case and with accents. The output files are vocab.json, and merges.txt beside it: <s>, <pad>, </s>,
<unk> and <mask>, then the 256 bytes, then the merged tokens, most frequent first.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.build_vocabulary")

import functools
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence

import tokenizers
from absl import flags, logging

from bert_tf import tokenization
from bert_tf.datasets.text_files import TEXT_FIELD, read_files
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.paths import check_overwrites
from bert_tf.files.whole_files import UnfinishedFile, write_whole
from bert_tf.runs.flags import command_flags
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text.byte_pairs import MERGES
from bert_tf.text.byte_pairs import SPECIAL_TOKENS as BYTE_PAIR_TOKENS
from bert_tf.text.new_words import WordPieceLearner, count_words

from . import with_flags

# In the order of the released English vocabularies, without their [unused] lines. [PAD] is 0
# because padding is written as 0.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

WORD_PIECE, BYTE_BPE = "word_piece", "byte_bpe"
# The sizes of the released vocabularies: BERT's uncased English vocabulary, and RoBERTa's.
_SIZES = {WORD_PIECE: 30522, BYTE_BPE: 50265}

# The search ends at a vocabulary up to this share larger than --vocab_size.
_SLACK = 0.02
_MAX_UNIQUE_CHARS = 1000


def learn_vocabulary(
    word_counts: Mapping[str, int], vocab_size: int, max_unique_chars: int
) -> list[str]:
    """Returns a vocabulary of `vocab_size` tokens, or fewer if the text is too short.

    The `max_unique_chars` most frequent characters are tokens, both at the start of a word and
    inside. Words with other characters become [UNK] later, and so do words of more than 200
    characters.
    """
    if not word_counts:
        raise UserError("--input_file: the text has no words; name files with text")
    learner = WordPieceLearner(word_counts, max_unique_chars)
    # A binary search for the threshold. Its middle is the geometric mean, because good thresholds
    # are far below the largest count.
    low, high = 1, learner.largest_count
    best: dict[str, int] = {}
    while low <= high:
        threshold = math.isqrt(low * high)
        found = learner.pieces(threshold)
        pieces = {piece: count for piece, count in found.items() if _can_occur(piece)}
        size = len(SPECIAL_TOKENS) + len(pieces)
        logging.info("Pieces that occur at least %d times: %d tokens", threshold, size)
        if size >= vocab_size or len(SPECIAL_TOKENS) + len(best) < vocab_size:
            best = pieces
        if size < vocab_size:
            high = threshold - 1
        elif size > (1 + _SLACK) * vocab_size:
            low = threshold + 1
        else:
            break
    return _cut(best, vocab_size, max_unique_chars)


def _cut(pieces: Mapping[str, int], vocab_size: int, max_unique_chars: int) -> list[str]:
    chars = sorted(piece for piece in pieces if len(piece) == 1)
    others = sorted(pieces.keys() - chars, key=lambda piece: (-pieces[piece], piece))
    inside = [piece for piece in others if len(piece.removeprefix("##")) == 1]
    must_stay = {*SPECIAL_TOKENS, *chars, *inside}
    if len(must_stay) > vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size} must be at least {len(must_stay)}, the number of special"
            " tokens and of characters in the text. Raise it, or lower"
            f" --max_unique_chars={max_unique_chars}"
        )
    longer = [piece for piece in others if piece not in must_stay]
    kept = must_stay.union(longer[: vocab_size - len(must_stay)])
    return [*SPECIAL_TOKENS, *chars, *(piece for piece in others if piece in kept)]


@functools.cache
def _can_occur(token: str) -> bool:
    """Returns False for pieces like "##,": the tokenizer splits words at such marks."""
    char = token.removeprefix("##")
    if len(token) != 3 or len(char) != 1:
        return True
    word = f"a{char}"
    return tokenization.BasicTokenizer(do_lower_case=False).tokenize(word) == [word]


def learn_byte_pairs(lines: Iterable[str], vocab_size: int) -> tuple[str, str]:
    """Returns a `vocab.json` and its `merges.txt`, of at most `vocab_size` tokens."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    least = len(BYTE_PAIR_TOKENS) + len(alphabet)
    if vocab_size < least:
        raise UserError(
            f"--vocab_size={vocab_size} must be at least {least}, the number of special tokens and"
            " bytes; raise it"
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=alphabet,
        special_tokens=list(BYTE_PAIR_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
    if not model["merges"]:
        raise UserError(
            "--input_file: no pair of bytes occurs twice, so there is nothing to merge; give more"
            " text"
        )
    logging.info("%d tokens, %d of them merged", len(vocab), len(model["merges"]))
    merges = "".join(f"{first} {second}\n" for first, second in model["merges"])
    return json.dumps(vocab, ensure_ascii=False) + "\n", f"#version: 0.2\n{merges}"


def build_vocabulary(
    input_file: str,
    output_file: str,
    vocab_size: int | None = None,
    do_lower_case: bool = True,
    max_unique_chars: int = _MAX_UNIQUE_CHARS,
    text_field: str = TEXT_FIELD,
    kind: str = WORD_PIECE,
) -> None:
    """Learns a vocabulary from text files and writes it; the arguments are the flags."""
    files = storage.expand_files(input_file, "input_file")
    written = [output_file]
    if kind == BYTE_BPE:
        if storage.ending_of(output_file) != ".json":
            raise UserError(
                f"--output_file={output_file} must end in .json with --kind={BYTE_BPE}: the"
                " programs recognize this kind of vocabulary by its name, usually vocab.json"
            )
        written.append(os.path.join(os.path.dirname(output_file), MERGES))
    check_overwrites(written, "output_file", {"input_file": files})
    vocab_size = vocab_size or _SIZES[kind]
    place = f"--output_file={output_file}"
    with storage.write_errors(output_file, place):
        tf.io.gfile.makedirs(os.path.dirname(output_file) or ".")
    lines = (batch for _, batch in read_files(files, "input_file", text_field))
    # Opened first, so that a wrong path fails before the work.
    with UnfinishedFile(output_file, place) as file:
        if kind == BYTE_BPE:
            vocab_json, merges = learn_byte_pairs(itertools.chain.from_iterable(lines), vocab_size)
            write_whole(written[1], merges)
            file.write(vocab_json.encode())
            file.finish()
            return
        word_counts = count_words(lines, do_lower_case)
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
        *(output_file, len(vocab), total, len(word_counts)),
    )
    if lost:
        logging.warning(
            "%d words (%.3g%%) have characters that are not in the vocabulary and will be [UNK];"
            " raise --max_unique_chars to keep more characters",
            *(lost, 100 * lost / total),
        )


def main() -> None:
    for name in ("do_lower_case", "max_unique_chars"):
        if flags.FLAGS.kind == BYTE_BPE and flags.FLAGS[name].present:
            raise UserError(
                f"--{name} is for --kind={WORD_PIECE}; a byte-level BPE has every byte, and does"
                " not change the text. Leave it out"
            )
    with_flags(build_vocabulary)()


if __name__ == "__main__":
    flags.DEFINE_string(
        "input_file",
        None,
        "UTF-8 text, JSON lines (.jsonl) or Parquet (.parquet): files or globs, separated by"
        " commas. Text and JSON lines may be compressed (.gz, .zst).",
    )
    flags.DEFINE_string(
        "text_field", TEXT_FIELD, "Field of JSON lines, or column of Parquet files, with the text."
    )
    flags.DEFINE_string(
        "output_file", None, "The vocabulary to write. An existing file is overwritten."
    )
    flags.DEFINE_enum(
        "kind",
        WORD_PIECE,
        list(_SIZES),
        "What to learn: BERT's word pieces, or RoBERTa's byte-level BPE.",
    )
    flags.DEFINE_integer(
        "vocab_size",
        None,
        f"Maximum number of tokens. Default: {_SIZES[WORD_PIECE]}, or {_SIZES[BYTE_BPE]} with"
        f" --kind={BYTE_BPE}.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Whether to lowercase the text and strip accents: true for an uncased model.",
    )
    flags.DEFINE_integer(
        "max_unique_chars",
        _MAX_UNIQUE_CHARS,
        "Number of different characters to keep, most frequent first. Chinese and Japanese need"
        " several thousand.",
        lower_bound=1,
    )
    flags.mark_flags_as_required(["input_file", "output_file"])
    command_flags.run_program(main)
