"""Text to word pieces to ids, by the rules of the original's tokenization.py, quirks included.

A `FullTokenizer` splits text into words (`BasicTokenizer`) and each word into the longest pieces
that the vocabulary has (`WordpieceTokenizer`). It is the reference; `fast_tokenization` gives the
same ids in bulk.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError

UNKNOWN_TOKEN = "[UNK]"

# Released models whose vocabulary says nothing of the case in a way that can be read off the file.
_LOWER_CASED_MODELS = frozenset(
    (
        "uncased_L-24_H-1024_A-16",
        "uncased_L-12_H-768_A-12",
        "multilingual_L-12_H-768_A-12",
        "chinese_L-12_H-768_A-12",
    )
)
_CASED_MODELS = frozenset(
    ("cased_L-12_H-768_A-12", "cased_L-24_H-1024_A-16", "multi_cased_L-12_H-768_A-12")
)

# The blocks of ideographs, not all that Chinese, Japanese or Korean text is written with: Hangul,
# Hiragana and Katakana are spelled with spaces or pieced together like any other alphabet.
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

# A warning names this many tokens and no more.
_MAX_NAMED = 10


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Returns nothing; raises if a released checkpoint was trained with the other casing.

    Args:
        do_lower_case: whether text will be lowercased.
        init_checkpoint: path of a checkpoint. Only paths that end as in Google's archives, MODEL
            folder and then `bert_model.ckpt`, are judged; others, "" and None pass.

    Raises:
        UserError: the casing is not that of the released model.
    """
    match = re.match(r".*?([A-Za-z0-9_-]+)/bert_model\.ckpt", init_checkpoint or "")
    if match is None:
        return
    model_name = match.group(1)
    for models, needed in ((_LOWER_CASED_MODELS, True), (_CASED_MODELS, False)):
        if model_name in models and bool(do_lower_case) != needed:
            kind = "lowercased" if needed else "cased"
            raise UserError(
                f"--init_checkpoint={init_checkpoint}: {model_name} was trained on {kind} text, but"
                f" --do_lower_case={bool(do_lower_case)}; set --do_lower_case={needed}, or move the"
                " checkpoint to a folder of another name if this is meant"
            )


def check_vocab_size(vocab: Mapping[str, int], vocab_size: int, vocab_file: str) -> None:
    """Returns nothing; raises if the vocabulary has ids that a model has no embedding for.

    Args:
        vocab: token -> id.
        vocab_size: of the model's configuration.
        vocab_file: where the vocabulary is from, for messages.

    Raises:
        UserError: there are more tokens than embeddings. Where there are fewer, which may be
            meant, a warning says so.
    """
    size = max(vocab.values()) + 1
    told = (
        f"--vocab_file={vocab_file} has {size} tokens, and vocab_size of --bert_config_file is"
        f" {vocab_size}"
    )
    if size > vocab_size:
        raise UserError(f"{told}; a checkpoint needs the vocabulary that it was trained with")
    if size < vocab_size:
        logging.warning("%s. Is it the vocabulary that the checkpoint was trained with?", told)


def convert_to_unicode(text: str | bytes) -> str:
    """Returns `text` as a str; of bytes, what is not UTF-8 is left out.

    Raises:
        UserError: `text` is neither str nor bytes.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Text must be str or bytes, not {type(text).__name__}: {text!r}")


def printable_text(text: str | bytes) -> str:
    """Returns `text` as `print` and logging take it: in Python 3, what `convert_to_unicode` does.

    Raises:
        UserError: `text` is neither str nor bytes.
    """
    return convert_to_unicode(text)


def load_vocab(vocab_file: str, required_tokens: Sequence[str] = ()) -> dict[str, int]:
    """Returns the vocabulary: token -> id, the number of its line from 0.

    A token is its line without white space at either end. A repeated token has the id of its last
    line and the place in the dictionary of its first; an empty line is the token "". Both are
    warned of. (`load_vocab` in the original.)

    Args:
        vocab_file: path of a UTF-8 file, one token a line.
        required_tokens: tokens that must be there.

    Raises:
        UserError: the file is missing, empty or not UTF-8, or lacks required tokens.
    """
    try:
        with tf.io.gfile.GFile(vocab_file, "rb") as reader:
            data = reader.read()
    except tf.errors.OpError as error:
        raise UserError(f"--vocab_file={vocab_file}: cannot be read: {error.message}") from error
    try:
        # GFile.readline, which the original calls, drops every carriage return, also inside a line,
        # and knows no line ends but "\n".
        text = data.replace(b"\r", b"").decode("utf-8")
    except UnicodeDecodeError as error:
        line_number = 1 + error.object.count(b"\n", 0, error.start)
        raise UserError(
            f"--vocab_file={vocab_file}: line {line_number} is not UTF-8 ({error.reason}); convert"
            " the file, or name a vocabulary"
        ) from error
    if not text:
        raise UserError(f"--vocab_file={vocab_file}: the file is empty; it needs one token a line")
    tokens = [line.strip() for line in text.removesuffix("\n").split("\n")]
    vocab = {token: index for index, token in enumerate(tokens)}
    missing = [token for token in required_tokens if token not in vocab]
    if missing:
        raise UserError(
            f"--vocab_file={vocab_file}: lacks {', '.join(missing)}; it must have each of"
            f" {', '.join(required_tokens)} on a line of its own. It has {len(vocab)} tokens, the"
            f" first {', '.join(map(repr, tokens[:3]))}"
        )
    _warn_of_odd_lines(vocab_file, tokens, vocab)
    return vocab


def _warn_of_odd_lines(vocab_file: str, tokens: list[str], vocab: dict[str, int]) -> None:
    odd = [
        f"line {index + 1}: {'empty' if not token else f'{token!r} again on line {last + 1}'}"
        for index, token in enumerate(tokens)
        if (last := vocab[token]) != index or not token
    ]
    if odd:
        shown = "; ".join(odd[:_MAX_NAMED]) + ("; ..." if len(odd) > _MAX_NAMED else "")
        logging.warning(
            "%s: %d of %d lines are empty or repeated further down, so that text never gets their"
            " ids: %s",
            vocab_file,
            len(odd),
            len(tokens),
            shown,
        )


def convert_by_vocab(vocab: Mapping, items: Iterable) -> list:
    """Returns `vocab[item]` of each item, in order.

    Raises:
        KeyError: an item is not in the vocabulary; the message names it.
    """
    items = list(items)
    try:
        return [vocab[item] for item in items]
    except KeyError as error:
        item = error.args[0]
        kind = "Token" if isinstance(item, str) else "Id"
        raise KeyError(
            f"{kind} {item!r} is not in the vocabulary of {len(vocab)} entries; tokenize with the"
            " vocabulary that ids are converted with, or add it to the --vocab_file"
        ) from None


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the id of each token; raises KeyError for one that is not in `vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the token of each id; raises KeyError for one that is not in `inv_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Returns the parts of `text` between white space as Python's str.split sees it."""
    return text.split()


class FullTokenizer:
    """Text to word pieces and ids (`FullTokenizer` in the original).

    Attributes:
        vocab: token -> id.
        inv_vocab: id -> token.
        basic_tokenizer, wordpiece_tokenizer: the two steps.
    """

    def __init__(
        self, vocab_file: str, do_lower_case: bool = True, required_tokens: Sequence[str] = ()
    ):
        """Reads the vocabulary.

        Args:
            vocab_file: path of a UTF-8 file, one token a line.
            do_lower_case: whether to lowercase text and strip its accents.
            required_tokens: tokens the vocabulary must have. [UNK] is always one of them: the
                original fails only when the first unknown word is converted.

        Raises:
            UserError: see `load_vocab`.
        """
        needed = dict.fromkeys((UNKNOWN_TOKEN, *required_tokens))
        self.vocab = load_vocab(vocab_file, tuple(needed))
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the word pieces of `text`; each is in `vocab`."""
        return [
            piece
            for word in self.basic_tokenizer.tokenize(text)
            for piece in self.wordpiece_tokenizer.tokenize(word)
        ]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the id of each token; raises KeyError for one that is not in `vocab`."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each id; raises KeyError for one that is not in `inv_vocab`."""
        return convert_by_vocab(self.inv_vocab, ids)


class BasicTokenizer:
    """Text to words: cleaning, lowercasing, splitting at spaces, punctuation and ideographs."""

    def __init__(self, do_lower_case: bool = True):
        """Sets whether to lowercase text and strip its accents."""
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words of `text`; every punctuation mark and ideograph is one by itself."""
        words = []
        for token in whitespace_tokenize(self.clean(convert_to_unicode(text))):
            if self.do_lower_case:
                token = self._run_strip_accents(token.lower())
            words += self._run_split_on_punc(token)
        # Once more, as in the original: a token of nothing but accents is empty now.
        return whitespace_tokenize(" ".join(words))

    def clean(self, text: str) -> str:
        """Returns `text` without controls, white space made spaces and spaces around ideographs.

        Character by character: what becomes of one does not depend on the others.
        """
        return self._tokenize_chinese_chars(self._clean_text(text))

    def _run_strip_accents(self, text: str) -> str:
        decomposed = unicodedata.normalize("NFD", text)
        return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")

    def _run_split_on_punc(self, text: str) -> list[str]:
        spaced = "".join(f" {char} " if _is_punctuation(char) else char for char in text)
        return spaced.split()

    def _tokenize_chinese_chars(self, text: str) -> str:
        return "".join(f" {char} " if self._is_chinese_char(ord(char)) else char for char in text)

    def _is_chinese_char(self, code_point: int) -> bool:
        return any(first <= code_point <= last for first, last in CJK_RANGES)

    def _clean_text(self, text: str) -> str:
        return "".join(
            " " if _is_whitespace(char) else char
            for char in text
            if char not in "\0\ufffd" and not _is_control(char)
        )


class WordpieceTokenizer:
    """Words to word pieces, the longest first."""

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = UNKNOWN_TOKEN,
        max_input_chars_per_word: int = 200,
    ):
        """Takes a vocabulary; words of more than `max_input_chars_per_word` become `unk_token`."""
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of each word of `text`, those after a word's first with "##" before.

        From the left, each piece is the longest that the vocabulary has. A word that cannot be
        pieced together to its end is one `unk_token`.

        Args:
            text: words between white space, as `BasicTokenizer` makes them.
        """
        pieces = []
        for word in whitespace_tokenize(convert_to_unicode(text)):
            pieces += self._pieces(word) or [self.unk_token]
        return pieces

    def _pieces(self, word: str) -> list[str] | None:
        if len(word) > self.max_input_chars_per_word:
            return None
        pieces = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return None
            pieces.append(piece)
            start = end
        return pieces


def _is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
    # Tab and line ends are controls to Unicode, white space here.
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char: str) -> bool:
    # Every ASCII mark, also those Unicode calls symbols ("$", "^", "`"), so that all part words.
    return (
        "!" <= char <= "/"
        or ":" <= char <= "@"
        or "[" <= char <= "`"
        or "{" <= char <= "~"
        or unicodedata.category(char).startswith("P")
    )
