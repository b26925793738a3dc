"""`SentencePieceTokenizer`: converts text to the ids of a SentencePiece model, as in ALBERT.

ALBERT simplifies the text, `sentencepiece` splits it, and then numbers are split once more
(original: google-research/albert, tokenization.py).
"""

import copy
import functools
import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.files.whole_files import read_bytes
from bert_tf.text.base_tokenizer import Encoded, Piece, Tokenizer
from bert_tf.text.sentence_piece_model import problem_of
from bert_tf.text.tokenizer_settings import DEFAULTS, SENTENCE_PIECES, TokenizerSettings

WORD_START = "▁"  # the space before a word
UNKNOWN_PIECE = "<unk>"
_RULE = "the file must be a SentencePiece model, such as ALBERT's 30k-clean.model"
_MARKS = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')  # without the apostrophe
_LETTERS_AND_MARKS = _MARKS | frozenset(string.ascii_lowercase)
_SPACES = "\t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_SPACES += WORD_START + "".join(map(chr, range(0x2000, 0x200B)))
_WORD = re.compile(r"\S+")
_CHARACTER = re.compile(r".", re.DOTALL)
_QUOTES_OR_CHARACTER = re.compile(r"``|''|.", re.DOTALL)


def preprocess_text(
    text: str, lower: bool = False, keep_accents: bool = False, remove_space: bool = True
) -> str:
    """Returns the text with single spaces and without combining marks (same name in the original).

    `remove_space=False` keeps the white space, `keep_accents=True` all other characters.
    """
    if remove_space:
        text = " ".join(text.split())
    if not keep_accents:
        text = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in text if not unicodedata.combining(char))
    return text.lower() if lower else text


def preprocess_as_tokenizers(text: str, lower: bool, keep_accents: bool) -> str:
    """Preprocesses a text like transformers' `AlbertTokenizer`, before the model's own rules."""
    # All marks are dropped, not only marks with a combining class, and each character is
    # lower-cased on its own.
    text = text.replace("``", '"').replace("''", '"')
    if not keep_accents:
        text = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in text if unicodedata.category(char)[0] != "M")
    return "".join(map(str.lower, text)) if lower else text


def continues_word(piece: str) -> bool:
    """Returns whether a piece continues a word in ALBERT's whole-word masking (_is_start_piece_sp).

    Such a piece consists of English letters and marks. A single mark does not continue a word.
    """
    if piece.startswith((WORD_START, "<")) or piece in _MARKS:
        return False
    return all(char.lower() in _LETTERS_AND_MARKS for char in piece)


class SentencePieceTokenizer(Tokenizer):
    """Converts texts to the ids of a SentencePiece model.

    `aliases` has a second id for unknown pieces, which says that the piece continues a word.
    """

    carries_space = True

    def __init__(
        self,
        model_file: str,
        do_lower_case: bool = True,
        required_tokens: Sequence[str] = (),
        settings: TokenizerSettings = DEFAULTS,
        content: bytes | None = None,
    ):
        """Reads the model.

        Args:
            required_tokens: pieces that the model must have in addition to <unk>.
            content: the model, instead of reading `model_file`.

        Raises:
            UserError: the file cannot be read, is not a SentencePiece model or lacks required
                pieces.
        """
        model = content or read_bytes(model_file, f"--vocab_file={model_file}")
        if problem := problem_of(model):
            raise UserError(f"--vocab_file={model_file}: {_RULE}; {problem}")
        self._model = _load(model, model_file)
        pieces = self._model.id_to_piece(list(range(self._model.piece_size())))
        self._own_vocab = {piece: i for i, piece in enumerate(pieces)}
        self.settings = settings.with_ids(self._own_vocab, f"--vocab_file={model_file}")
        self.vocab = {**self._own_vocab, **self.settings.added_vocabulary}
        self.inv_vocab = {i: piece for piece, i in self.vocab.items()}
        required = (UNKNOWN_PIECE, *required_tokens)
        if missing := [token for token in required if token not in self.vocab]:
            raise UserError(
                f"--vocab_file={model_file}: the model lacks {', '.join(missing)}; train it with"
                f" --control_symbols={','.join(required_tokens)} and the default --unk_piece"
            )
        self.do_lower_case = do_lower_case
        self.files = {SENTENCE_PIECES: model, **self.settings.files()}
        self.unknown_id: int = self.vocab[UNKNOWN_PIECE]
        self._continued_unknown_id = max(self.inv_vocab) + 1
        self.aliases = {self._continued_unknown_id: self.unknown_id}
        self._spaces: dict[int, str] = {}
        self._word = _WORD
        if settings.hugging_face:
            self._find_spaces()

    @functools.cached_property
    def continuations(self) -> frozenset[int]:
        """Ids of pieces that continue a word, including the id in `aliases`."""
        known = (i for piece, i in self._own_vocab.items() if continues_word(piece))
        return frozenset([*known, *self.aliases])

    def with_casing(self, do_lower_case: bool) -> "SentencePieceTokenizer":
        """Returns a tokenizer with the same model and this casing."""
        other = copy.copy(self)
        other.do_lower_case = do_lower_case  # nothing else depends on it
        return other

    def after_lowering(self) -> "SentencePieceTokenizer":
        """Returns a tokenizer that first lower-cases each character of a text."""
        return self.with_casing(True)

    def simplified(self, text: str) -> str:
        """Returns a text without combining marks and with single spaces; keeps upper case."""
        simple = self._preprocess(text, lower=False)
        return " ".join(simple.split()) if self.settings.remove_space else simple

    def _preprocess(self, text: str, lower: bool | None = None) -> str:
        lower = self.do_lower_case if lower is None else lower
        keep_accents, remove_space = self.settings.keep_accents, self.settings.remove_space
        if self.settings.hugging_face:
            return preprocess_as_tokenizers(text, lower, keep_accents).translate(self._spaces)
        return preprocess_text(text, lower, keep_accents, remove_space)

    def _find_spaces(self) -> None:
        """Finds white space that the model's rules keep (spaces will replace it) or drop."""
        found = map("".join, self._split([f"a{char}a" for char in _SPACES]))
        both = [*zip(_SPACES, found, strict=True)]
        self._spaces = {ord(char): " " for char, text in both if char in text[1:]}
        dropped = "".join(char for char, text in both if text == f"{WORD_START}aa")
        self._word = re.compile(rf"[\S\x1c-\x1f{dropped}]+")

    @property
    def _normalizer(self) -> Any:
        steps = tokenizers.normalizers
        accents = [] if self.settings.keep_accents else [steps.NFKD(), steps.StripAccents()]
        return steps.Sequence([*accents, *([steps.Lowercase()] if self.do_lower_case else [])])

    def _encode(self, texts: Sequence[str]) -> Encoded:
        found = self.split(list(map(self._preprocess, texts)))
        ids = [self._own_vocab.get(piece, self.unknown_id) for pieces in found for piece in pieces]
        return np.array(ids, np.int32), list(map(len, found))

    def _encode_for_masking(self, texts: Sequence[str]) -> Encoded:
        # The text of unknown pieces decides whether they continue a word.
        found = self.split(list(map(self._preprocess, texts)))
        unknown, vocab = (self.unknown_id, self._continued_unknown_id), self._own_vocab
        ids = [
            vocab[piece] if piece in vocab else unknown[continues_word(piece)]
            for pieces in found
            for piece in pieces
        ]
        return np.array(ids, np.int32), list(map(len, found))

    def _pieces(self, text: str) -> list[Piece]:
        # In each run of characters without white space, pieces are matched to the characters that
        # `preprocess_text` returns. If the model changes the number of characters, each piece gets
        # the offsets of the whole run.
        words = list(self._word.finditer(text))
        found = self.split([self._preprocess(word[0]) for word in words])
        placed = []
        for word, pieces in zip(words, found, strict=True):
            sources = self._sources(word)
            ids = [self._own_vocab.get(piece, self.unknown_id) for piece in pieces]
            texts = [piece.replace(WORD_START, "") for piece in pieces]
            exact = sum(map(len, texts)) == len(sources)
            place, after_mark, lone = 0, True, False  # lone: after a word start without letters
            for piece_id, piece in zip(ids, texts, strict=True):
                start, stop = word.span()
                if exact and piece:
                    start = sources[place][0]
                    stop = sources[place + len(piece) - 1][1]
                    place += len(piece)
                elif exact:  # only a word start
                    stop = start = sources[place][0]
                known = bool(piece) and piece_id != self.unknown_id
                mark = known and tokenization._is_punctuation(piece[0])
                placed.append(Piece(piece_id, start, stop, after_mark or (mark and not lone)))
                after_mark, lone = mark, not piece
        return placed

    def _sources(self, word: re.Match[str]) -> list[tuple[int, int]]:
        """Returns the place in the text of each character of a preprocessed word."""
        parts = _QUOTES_OR_CHARACTER if self.settings.hugging_face else _CHARACTER
        return [
            (word.start() + part.start(), word.start() + part.end())
            for part in parts.finditer(word[0])
            for _ in self._preprocess(part[0])
        ]

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Converts token ids to text, with a space before each word."""
        return "".join(self.inv_vocab[i] for i in token_ids).replace(WORD_START, " ")

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """Returns the pieces of each preprocessed text."""
        found = self._split(texts)
        if self.settings.hugging_face:
            return found
        return [[part for piece in pieces for part in self._parts(piece)] for pieces in found]

    def _parts(self, piece: str) -> list[str]:
        # A number with a comma after it is split again without the comma, which becomes a piece.
        # This puts a word start before the number. The word start stays, as in the original, which
        # fails to remove it because it compares a string with bytes.
        if not piece.endswith(",") or not piece[-2:-1].isdigit():
            return [piece]
        (again,) = self._split([piece[:-1].replace(WORD_START, "")])
        return [*again, ","]

    def _split(self, texts: Sequence[str]) -> list[list[str]]:
        # Half a surrogate pair, which UTF-8 cannot encode, becomes a question mark. A call with a
        # list of texts would start threads.
        valid = (text.encode("utf-8", "replace").decode() for text in texts)
        return [self._model.encode(text, out_type=str) for text in valid]


def _load(model: bytes, model_file: str) -> Any:
    """Returns the model of the package `sentencepiece`."""
    import sentencepiece  # slow to import

    sentencepiece.set_min_log_level(1)  # no log line if a model has no map of characters
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise UserError(
            f"--vocab_file={model_file}: {_RULE}; the package sentencepiece cannot read it"
        ) from error
