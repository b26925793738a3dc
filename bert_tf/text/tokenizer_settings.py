"""`TokenizerSettings`: a model folder's tokenizer settings and added tokens."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

from bert_tf.errors import UserError, listed, quoted
from bert_tf.tokenization import MAX_INPUT_CHARS_PER_WORD

_BETWEEN_TEXTS = "\0"  # never part of a token


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text as it is written, such as [MASK] or [E1]."""

    content: str
    token_id: int | None = None  # None until it is looked up in the vocabulary
    single_word: bool = False  # only found if no letter, digit or underscore touches it
    lstrip: bool = False  # includes the white space before it
    rstrip: bool = False  # includes the white space after it
    normalized: bool = False  # found in normalized text, which may lack accents and capitals

    @property
    def options(self) -> dict[str, Any]:
        """The content and the flags, by their names in Hugging Face's files."""
        return {name: x for name, x in vars(self).items() if name != "token_id"}


class AddedTokens:
    """Finds tokens in texts; `normalizer`, of the package `tokenizers`, normalizes texts first."""

    def __init__(self, tokens: Sequence[AddedToken], normalizer: Any):
        # Every text between two tokens is one unknown token of this model.
        model = tokenizers.models.WordLevel({"": 0}, unk_token="")
        self._tokenizer = tokenizers.Tokenizer(model)
        is_normalized = any(token.normalized for token in tokens)
        if is_normalized and normalizer:
            self._tokenizer.normalizer = normalizer
        self._tokenizer.add_tokens([tokenizers.AddedToken(**token.options) for token in tokens])
        self._ids = {self._tokenizer.token_to_id(x.content): x.token_id for x in tokens}
        self._contents = None if is_normalized else [x.content for x in tokens]

    def spans(self, text: str) -> Iterator[tuple[int, int, int | None]]:
        """Yields (start, end, token id) of the tokens of a text, and of the texts between them.

        The id is None for a text between tokens.
        """
        # The package refuses half a surrogate pair.
        valid = text.encode("utf-8", "replace").decode()
        found = self._tokenizer.encode(valid, add_special_tokens=False)
        for i, (start, end) in zip(found.ids, found.offsets, strict=True):
            yield start, end, self._ids.get(i)

    def parts(self, text: str) -> list[str | int]:
        """Returns the ids of a text's tokens, and the texts between them, in order."""
        return [
            text[start:end] if token_id is None else token_id
            for start, end, token_id in self.spans(text)
        ]

    def encode(
        self,
        encode: Callable[[Sequence[str]], tuple[np.ndarray, Sequence[int] | np.ndarray]],
        texts: Sequence[str],
    ) -> tuple[np.ndarray, Sequence[int] | np.ndarray]:
        """Like `encode`, which returns (ids, lengths), but also finds the tokens."""
        # Few texts have added tokens, and a single search of all texts is fastest.
        everything = _BETWEEN_TEXTS.join(texts)
        if self._contents is not None and not any(x in everything for x in self._contents):
            return encode(texts)
        strings: list[str] = []
        tokens: list[int] = []
        rows: tuple[list[int], list[int]] = [], []  # the text number of each string and token
        before: list[int] = []  # number of strings before each token
        for row, text in enumerate(texts):
            for part in self.parts(text):
                if isinstance(part, str):
                    strings.append(part)
                    rows[0].append(row)
                else:
                    tokens.append(part)
                    rows[1].append(row)
                    before.append(len(strings))
        ids, sizes = encode(strings)
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        counts = np.zeros(len(texts), np.int64)
        np.add.at(counts, rows[0], sizes)
        np.add.at(counts, rows[1], 1)
        return np.insert(ids, ends[before], tokens), counts


# The kinds of vocabularies, by the names of their files in a model's folder.
WORD_PIECES, SENTENCE_PIECES = "vocab.txt", "spm.model"
BYTE_PAIRS, FAIRSEQ_PIECES = "vocab.json", "sentencepiece.bpe.model"
TOKENIZER_CONFIG = "tokenizer_config.json"
DO_LOWER_CASE = "do_lower_case"
# Keys of added tokens with an id, and of added tokens without one.
ADDED_TOKENS, MORE_TOKENS = "added_tokens_decoder", "additional_special_tokens"
_BERT = {name: f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
_BERT |= {"bos": "[CLS]", "eos": "[SEP]"}
_ROBERTA = {"unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
_ROBERTA |= {"bos": "<s>", "eos": "</s>"}
# Kind -> key of a special token in Hugging Face's files, without `_token` -> the token.
SPECIAL_TOKENS = {
    WORD_PIECES: _BERT,
    SENTENCE_PIECES: _BERT | {"unk": "<unk>", "pad": "<pad>"},
    BYTE_PAIRS: _ROBERTA,
    FAIRSEQ_PIECES: _ROBERTA,
}
_ALL_SPECIAL_TOKENS = {*_BERT.values(), *_ROBERTA.values()}

# The package `tokenizers` makes longer words unknown; the original's limit is 200.
MAX_INPUT_CHARS = 100


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """The switches of a tokenizer by their names in `tokenizer_config.json`.

    The defaults are google-research's. `do_lower_case` is missing, since it is a flag of the
    programs. The first four are arguments of `tokenization.BasicTokenizer`; `keep_accents` and
    `remove_space` are arguments of `sentence_pieces.preprocess_text`.
    """

    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    clean_text: bool = True
    drop_category_c: bool = False
    max_input_chars_per_word: int | None = None  # None for the library's limit
    keep_accents: bool = False
    remove_space: bool = True
    add_prefix_space: bool = False  # whether a byte-level BPE puts a space before every text
    added_tokens: tuple[AddedToken, ...] = ()
    # Hugging Face's name, if the folder is in that format. The package `tokenizers` is then the
    # reference where the switches leave something open.
    tokenizer_class: str | None = None
    # The folder's `do_lower_case`.
    recorded_casing: bool | None = dataclasses.field(default=None, compare=False)

    def with_ids(self, vocab: Mapping[str, int], place: str) -> "TokenizerSettings":
        """Returns the settings with an id for every added token.

        A token without an id gets its id in the vocabulary (`place` in messages), or else the next
        free id. Special tokens that the vocabulary lacks are dropped.
        """
        if not self.added_tokens:
            return self
        tokens: list[AddedToken] = []
        placed = {x.content: x.token_id for x in self.added_tokens if x.token_id is not None}
        ids = {**vocab, **placed}
        for token in self.added_tokens:
            if token.content in _ALL_SPECIAL_TOKENS and token.content not in ids:
                continue
            token_id = ids.setdefault(token.content, max(ids.values()) + 1)
            tokens.append(dataclasses.replace(token, token_id=token_id))
        names = {i: name for name, i in vocab.items()}
        wrong = [x for x in tokens if names.get(x.token_id, x.content) != x.content]
        wrong += [x for x in tokens if vocab.get(x.content, x.token_id) != x.token_id]
        if wrong:
            raise UserError(
                f"{place}: an added token must have the id of its line, or an id after the last"
                f" line; {quoted(wrong[0].content)} has id {quoted(wrong[0].token_id)}. Are the"
                " files from the same model?"
            )
        new = sorted(x.token_id for x in tokens if x.token_id not in names)
        if self.hugging_face and new != list(range(len(vocab), len(vocab) + len(new))):
            raise UserError(
                f"{place}: the ids of added tokens must be the numbers from {len(vocab)} on, which"
                " transformers gives them whatever the files say; they are"
                f" {listed(map(str, new))}. Add tokens for the missing ids, such as [unused0], or"
                " choose a different model"
            )
        return dataclasses.replace(self, added_tokens=tuple(tokens))

    def with_tokens(self, contents: Iterable[str]) -> "TokenizerSettings":
        known = {token.content for token in self.added_tokens}
        more = (AddedToken(content) for content in contents if content not in known)
        return dataclasses.replace(self, added_tokens=(*self.added_tokens, *more))

    def of_model(self, drop_category_c: bool) -> "TokenizerSettings":
        """Sets `drop_category_c` if given, unless the settings are Hugging Face's."""
        if not drop_category_c or self.hugging_face:
            return self
        return dataclasses.replace(self, drop_category_c=True)

    @property
    def switches(self) -> dict[str, Any]:
        """The arguments of `tokenization.BasicTokenizer`, without `do_lower_case`."""
        names = ("strip_accents", "tokenize_chinese_chars", "clean_text", "drop_category_c")
        return {name: getattr(self, name) for name in (*names, "hugging_face")}

    @property
    def hugging_face(self) -> bool:
        """Whether the package `tokenizers` is the reference."""
        return self.tokenizer_class is not None

    @property
    def longest_word(self) -> int:
        """The number of characters above which a word is unknown."""
        own = MAX_INPUT_CHARS if self.hugging_face else MAX_INPUT_CHARS_PER_WORD
        return self.max_input_chars_per_word or own

    @property
    def added_vocabulary(self) -> dict[str, int]:
        """Added token -> id."""
        return {token.content: token.token_id for token in self.added_tokens}

    def files(self) -> dict[str, str]:
        """Returns a `tokenizer_config.json` with the settings that are not the default, or {}."""
        content: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default and field.name not in _NOT_WRITTEN
        }
        if self.added_tokens:
            placed = [x for x in self.added_tokens if x.token_id is not None]
            content[ADDED_TOKENS] = {str(x.token_id): x.options for x in placed}
            content[MORE_TOKENS] = [
                {"__type": "AddedToken", **token.options}
                if token != AddedToken(token.content)
                else token.content
                for token in self.added_tokens
                if token not in placed
            ]
        content = {name: value for name, value in content.items() if value not in ({}, [])}
        return {TOKENIZER_CONFIG: json.dumps(content)} if content else {}


_NOT_WRITTEN = ("added_tokens", "recorded_casing")  # added tokens have other names in the file
DEFAULTS = TokenizerSettings()
SETTINGS_KEYS = {
    *(field.name for field in dataclasses.fields(TokenizerSettings) if field.compare),
    ADDED_TOKENS,
    MORE_TOKENS,
}
