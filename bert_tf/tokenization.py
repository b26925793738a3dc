"""WordPiece tokenization by the rules of the original's tokenization.py, quirks included.

`FullTokenizer` splits text into words (`BasicTokenizer`) and each word into the longest pieces in
the vocabulary (`WordpieceTokenizer`). It is the reference; `text.fast_tokenization` gives the same
ids much faster.
"""

import re
import string
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import decode_utf8, drop_carriage_returns, read_bytes

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

UNKNOWN_TOKEN = "[UNK]"
SEQUENCE_TOKENS = ("[CLS]", "[SEP]")  # at the beginning of a sequence, and after each text
MASK_TOKEN = "[MASK]"
MAX_INPUT_CHARS_PER_WORD = 200  # longer words are unknown; Hugging Face's limit is 100

# Google's released models, and whether their text was lower-cased.
_RELEASED_MODELS = {
    "uncased_L-24_H-1024_A-16": True,
    "uncased_L-12_H-768_A-12": True,
    "multilingual_L-12_H-768_A-12": True,
    "chinese_L-12_H-768_A-12": True,
    "cased_L-12_H-768_A-12": False,
    "cased_L-24_H-1024_A-16": False,
    "multi_cased_L-12_H-768_A-12": False,
}

# The blocks of ideographs. Hangul, Hiragana and Katakana are left out: they are split at spaces and
# into word pieces like any alphabet.
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
# White space to str.split, but not to the package `tokenizers`: a word that has one is unknown.
_SEPARATORS = dict.fromkeys(range(0x1C, 0x20), "\ufffd")
_NO_IDEOGRAPHS = range(0x2B820, 0x2B920)  # the package `tokenizers` does not count these

_MAX_NAMED = 10  # lines in a warning


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Checks that `do_lower_case` fits a released checkpoint, judging by its name.

    Only paths MODEL/bert_model.ckpt with a MODEL of Google's archives are checked; other paths, ""
    and None pass. `text.casing.check_casing` also checks the vocabulary and the recorded casing.

    Raises:
        UserError: the model was trained with the other casing.
    """
    name = r"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]++)/bert_model\.ckpt"
    match = re.search(name, init_checkpoint or "")
    if match is None:
        return
    model_name = match.group(1)
    needed = casing_of_released_model(model_name)
    if needed not in (None, bool(do_lower_case)):
        kind = "lowercased" if needed else "cased"
        raise UserError(
            f"--init_checkpoint={init_checkpoint}: {model_name} was trained on {kind} text, but"
            f" --do_lower_case={bool(do_lower_case)}; set --do_lower_case={needed}. If this is a"
            " different model, rename its folder"
        )


def casing_of_released_model(name: str) -> bool | None:
    """Returns the `do_lower_case` of a model of Google's archives; None for other names."""
    return _RELEASED_MODELS.get(name)


def check_vocab_size(vocab: Mapping[str, int], vocab_size: int, vocab_file: str) -> None:
    """Checks that the model has an embedding for every id of the vocabulary, token -> id.

    Warns if there are more embeddings (`vocab_size`) than tokens, which may be intended.

    Raises:
        UserError: there are more tokens than embeddings.
    """
    size = max(vocab.values()) + 1
    sizes = (
        f"--vocab_file={vocab_file} has {size} tokens, and vocab_size of --bert_config_file is"
        f" {vocab_size}"
    )
    if size > vocab_size:
        raise UserError(f"{sizes}; a checkpoint needs the vocabulary that it was trained with")
    if size < vocab_size:
        logging.warning("%s. Is it the vocabulary that the checkpoint was trained with?", sizes)


def convert_to_unicode(text: str | bytes) -> str:
    """Returns `text` as a str; bytes are decoded as UTF-8, and invalid bytes dropped.

    Raises:
        ValueError: `text` is neither str nor bytes.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Text must be str or bytes, not {type(text).__name__}: {quoted(text)}")


def printable_text(text: str | bytes) -> str:
    """Returns `text` as a str for `print` and logging, like `convert_to_unicode`."""
    return convert_to_unicode(text)


def load_vocab(vocab_file: str, required_tokens: Sequence[str] = ()) -> dict[str, int]:
    """Returns the vocabulary of a UTF-8 file: token -> id, which is its line number from 0.

    A token is a line, stripped of white space. A repeated token gets the id of its last line and
    keeps the dictionary position of its first line. An empty line is the token "". A warning lists
    repeated and empty lines. (`load_vocab` in the original.)

    Raises:
        UserError: the file is missing, empty or not UTF-8, or lacks required tokens.
    """
    place = f"--vocab_file={vocab_file}"
    # GFile.readline, which the original calls, drops every carriage return, even mid-line, and
    # splits lines at "\n" only.
    text = drop_carriage_returns(decode_utf8(read_bytes(vocab_file, place), place), place)
    if not text:
        raise UserError(f"--vocab_file={vocab_file}: the file is empty; it needs one token a line")
    tokens = [line.strip() for line in text.removesuffix("\n").split("\n")]
    vocab = {token: index for index, token in enumerate(tokens)}
    missing = [token for token in required_tokens if token not in vocab]
    if missing:
        raise UserError(
            f"--vocab_file={vocab_file}: lacks {', '.join(missing)}; it must have each of"
            f" {', '.join(required_tokens)} on a separate line. It has {len(vocab)} tokens, the"
            f" first is {quoted(tokens[0])}"
        )
    _warn_of_odd_lines(vocab_file, tokens, vocab)
    return vocab


def _warn_of_odd_lines(vocab_file: str, tokens: list[str], vocab: dict[str, int]) -> None:
    odd = [
        f"line {index + 1}: {'empty' if not token else f'{quoted(token)} again on line {last + 1}'}"
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


def convert_by_vocab(vocab: Mapping[_Item, _Value], items: Iterable[_Item]) -> list[_Value]:
    """Returns `vocab[item]` for each item, in order.

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
            f"{kind} {quoted(item)} is not in the vocabulary of {len(vocab)} entries; tokenize with"
            " the vocabulary that ids are converted with, or add it to the --vocab_file"
        ) from None


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the id of each token; raises KeyError for a token that is not in `vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the token of each id; raises KeyError for one that is not in `inv_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Returns the parts of `text` between white space as Python's str.split sees it."""
    return text.split()


class FullTokenizer:
    """Splits text into word pieces and converts them to ids (`FullTokenizer` in the original).

    Attributes:
        vocab: token -> id.
        inv_vocab: id -> token.
        basic_tokenizer, wordpiece_tokenizer: the two steps.
    """

    def __init__(
        self,
        vocab_file: str | Mapping[str, int],
        do_lower_case: bool = True,
        required_tokens: Sequence[str] = (),
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
        **switches: Any,
    ):
        """Reads the vocabulary.

        Args:
            vocab_file: path of a UTF-8 file, one token a line; or a vocabulary, token -> id.
            do_lower_case: whether to lower-case text and, by default, strip its accents.
            required_tokens: tokens that the vocabulary must have in addition to [UNK]. (Without
                [UNK] the original fails later, at the first unknown word.)
            max_input_chars_per_word: longer words become [UNK].
            **switches: see `BasicTokenizer`.

        Raises:
            UserError: see `load_vocab`.
        """
        if isinstance(vocab_file, str):
            needed = dict.fromkeys((UNKNOWN_TOKEN, *required_tokens))
            vocab_file = load_vocab(vocab_file, tuple(needed))
        self.vocab = vocab_file
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case, **switches)
        self.wordpiece_tokenizer = WordpieceTokenizer(
            self.vocab, max_input_chars_per_word=max_input_chars_per_word
        )

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
    """Splits text into words at white space, punctuation and ideographs."""

    def __init__(
        self,
        do_lower_case: bool = True,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        clean_text: bool = True,
        drop_category_c: bool = False,
        hugging_face: bool = False,
    ):
        """Stores the switches. BERT's original has only the first; most others are Hugging Face's.

        Args:
            do_lower_case: whether to lower-case text.
            strip_accents: whether to strip accents; None for the value of `do_lower_case`.
            tokenize_chinese_chars: whether each ideograph is a word.
            clean_text: whether to drop control characters and make all white space spaces.
            drop_category_c: whether cleaning drops all of Unicode's category C, as ELECTRA's does
                (google-research/electra, `_is_control`), including unassigned and
                private-use characters. BERT's drops Cc and Cf.
            hugging_face: whether to follow the package `tokenizers` where it differs: a character
                is lower-cased on its own, so that no sigma becomes a final sigma; cleaning drops
                private-use characters; U+2B820 to U+2B91F are not ideographs.
        """
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.clean_text = clean_text
        self.hugging_face = hugging_face
        self.dropped = {"Cc", "Cf"} | ({"Co"} if hugging_face else set())
        if drop_category_c:
            self.dropped |= {"Co", "Cn", "Cs"}

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words of `text`; each punctuation mark and each ideograph is a word."""
        words = []
        for token in whitespace_tokenize(self.clean(convert_to_unicode(text))):
            words += self._run_split_on_punc(self._normal_case(token))
        # Split again, as in the original: a token of accents only is empty now.
        return whitespace_tokenize(" ".join(words))

    def normalize(self, text: str) -> str:
        """Returns `text` cleaned, lower-cased and without accents, as the switches say."""
        return self._normal_case(self.clean(text))

    def _normal_case(self, text: str) -> str:
        text = self.lower(text) if self.do_lower_case else text
        return self._run_strip_accents(text) if self.strip_accents else text

    def lower(self, text: str) -> str:
        """Returns `text` lower-cased."""
        return "".join(map(str.lower, text)) if self.hugging_face else text.lower()

    def clean(self, text: str) -> str:
        """Returns `text` without control characters and with spaces around ideographs.

        All white space becomes spaces. Each character is replaced independently of its neighbours.
        """
        if self.clean_text:
            text = self._clean_text(text)
        elif self.hugging_face:
            text = text.translate(_SEPARATORS)
        return self._tokenize_chinese_chars(text) if self.tokenize_chinese_chars else text

    def _run_strip_accents(self, text: str) -> str:
        decomposed = unicodedata.normalize("NFD", text)
        return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")

    def _run_split_on_punc(self, text: str) -> list[str]:
        spaced = "".join(f" {char} " if _is_punctuation(char) else char for char in text)
        return spaced.split()

    def _tokenize_chinese_chars(self, text: str) -> str:
        return "".join(f" {char} " if self._is_chinese_char(ord(char)) else char for char in text)

    def _is_chinese_char(self, code_point: int) -> bool:
        if self.hugging_face and code_point in _NO_IDEOGRAPHS:
            return False
        return any(first <= code_point <= last for first, last in CJK_RANGES)

    def _clean_text(self, text: str) -> str:
        return "".join(
            " " if _is_whitespace(char) else char
            for char in text
            if char not in "\0\ufffd" and not _is_control(char, self.dropped)
        )


class WordpieceTokenizer:
    """Splits words into word pieces, greedily: the longest piece first."""

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = UNKNOWN_TOKEN,
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
    ):
        """Takes the vocabulary, token -> id. Words longer than the maximum become `unk_token`."""
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text: str | bytes) -> list[str]:
        """Splits each word of `text` into pieces; "##" begins each piece after a word's first.

        From the left, each piece is the longest one in the vocabulary. A word that cannot be split
        into pieces up to its end becomes one `unk_token`. White space separates the words.
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


def _is_control(char: str, dropped: Container[str] = ("Cc", "Cf")) -> bool:
    # Unicode counts tabs and line ends as controls; the original counts them as white space.
    return char not in "\t\n\r" and unicodedata.category(char) in dropped


def _is_punctuation(char: str) -> bool:
    # All ASCII marks split words, including those that Unicode counts as symbols ("$", "^", "`").
    return char in string.punctuation or unicodedata.category(char).startswith("P")
