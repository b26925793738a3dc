"""`TokenizerSettings`: what a model's folder says of its tokenizer, beside the vocabulary."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from bert_tf.errors import UserError, listed, quoted
from bert_tf.text.added_tokens import AddedToken
from bert_tf.tokenization import MAX_INPUT_CHARS_PER_WORD

TOKENIZER_CONFIG = "tokenizer_config.json"
DO_LOWER_CASE = "do_lower_case"
# Added tokens with an id and without.
ADDED_TOKENS, MORE_TOKENS = "added_tokens_decoder", "additional_special_tokens"
# Key of a special token in Hugging Face's files, without its end `_token` -> the token.
WORD_PIECE_TOKENS = {name: f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
WORD_PIECE_TOKENS |= {"bos": "[CLS]", "eos": "[SEP]"}
SENTENCE_PIECE_TOKENS = WORD_PIECE_TOKENS | {"unk": "<unk>", "pad": "<pad>"}
BYTE_PAIR_TOKENS = {"unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
BYTE_PAIR_TOKENS |= {"bos": "<s>", "eos": "</s>"}
_SPECIAL_TOKENS = {*SENTENCE_PIECE_TOKENS.values(), "[UNK]", "[PAD]", *BYTE_PAIR_TOKENS.values()}

# Words with more characters are unknown to the package `tokenizers`; the original's limit is 200.
MAX_INPUT_CHARS = 100


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """The switches of a tokenizer by their names in `tokenizer_config.json`.

    The defaults are google-research's. `do_lower_case` is apart: the programs have a flag for it.

    strip_accents, tokenize_chinese_chars, clean_text, drop_category_c: see
        `tokenization.BasicTokenizer`.
    max_input_chars_per_word: longer words are unknown; None for the library's own limit.
    keep_accents, remove_space: see `sentence_pieces.preprocess_text`.
    add_prefix_space: whether a byte-level BPE puts a space before every text.
    added_tokens: tokens that are found in a text before it is split.
    tokenizer_class: Hugging Face's name of this kind of tokenizer, if a folder of its library has
        the settings. What the switches leave open is then done as in the package `tokenizers`, see
        `tokenization.BasicTokenizer` and `sentence_pieces.preprocess_text`.
    recorded_casing: the folder's `do_lower_case`; None if it does not say. It is not compared.
    """

    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    clean_text: bool = True
    drop_category_c: bool = False
    max_input_chars_per_word: int | None = None
    keep_accents: bool = False
    remove_space: bool = True
    add_prefix_space: bool = False
    added_tokens: tuple[AddedToken, ...] = ()
    tokenizer_class: str | None = None
    recorded_casing: bool | None = dataclasses.field(default=None, compare=False)

    def with_ids(self, vocab: Mapping[str, int], place: str) -> "TokenizerSettings":
        """Returns the settings with an id for every added token.

        A token without an id has the vocabulary's; if the vocabulary lacks it, the next free one.
        Special tokens that the vocabulary lacks are dropped.

        Args:
            vocab: token -> id.
            place: the vocabulary, for messages.

        Raises:
            UserError: an id is not the vocabulary's, or belongs to another token.
        """
        if not self.added_tokens:
            return self
        tokens: list[AddedToken] = []
        ids = {
            **vocab,
            **{x.content: x.token_id for x in self.added_tokens if x.token_id is not None},
        }
        for token in self.added_tokens:
            if token.content in _SPECIAL_TOKENS and token.content not in ids:
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
        """Returns the settings with more added tokens."""
        known = {token.content for token in self.added_tokens}
        more = (AddedToken(content) for content in contents if content not in known)
        return dataclasses.replace(self, added_tokens=(*self.added_tokens, *more))

    def of_model(self, drop_category_c: bool) -> "TokenizerSettings":
        """Returns the settings with the rule of a model's original, unless they are Hugging Face's.

        drop_category_c: of the model's configuration; see `tokenization.BasicTokenizer`.
        """
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
        """The number of characters after which a word is unknown."""
        own = MAX_INPUT_CHARS if self.hugging_face else MAX_INPUT_CHARS_PER_WORD
        return self.max_input_chars_per_word or own

    @property
    def added_vocabulary(self) -> dict[str, int]:
        """Added token -> id."""
        return {token.content: token.token_id for token in self.added_tokens}

    def files(self) -> dict[str, str]:
        """Returns the `tokenizer_config.json` with what differs from the defaults; {} for none."""
        content: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default and field.name not in _NOT_WRITTEN
        }
        if self.added_tokens:
            placed = [x for x in self.added_tokens if x.token_id is not None]
            content[ADDED_TOKENS] = {str(x.token_id): x.options for x in placed}
            content[MORE_TOKENS] = [
                {"__type": "AddedToken", **token.options} if token.has_flags else token.content
                for token in self.added_tokens
                if token not in placed
            ]
        content = {name: value for name, value in content.items() if value not in ({}, [])}
        return {TOKENIZER_CONFIG: json.dumps(content)} if content else {}


_NOT_WRITTEN = ("added_tokens", "recorded_casing")  # the former by other names
DEFAULTS = TokenizerSettings()
SETTINGS_KEYS = {
    *(field.name for field in dataclasses.fields(TokenizerSettings) if field.compare),
    ADDED_TOKENS,
    MORE_TOKENS,
}
