"""Reads Hugging Face's `tokenizer.json`: a whole tokenizer in a file, with its vocabulary."""

import base64
import dataclasses
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

from bert_tf.errors import UserError, quoted
from bert_tf.files.json_keys import JsonKeys, Needed
from bert_tf.files.whole_files import read_json
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text import byte_pairs, fast_tokenization, sentence_pieces
from bert_tf.text.byte_pairs import MERGES, check_text, in_order_of_ids
from bert_tf.text.sentence_piece_model import Unigrams
from bert_tf.text.tokenizer_settings import MAX_INPUT_CHARS

TOKENIZER_FILE = "tokenizer.json"
# The kinds of vocabularies, by the names of their files.
WORD_PIECES, BYTE_PAIRS = fast_tokenization.VOCABULARY, byte_pairs.VOCABULARY
SENTENCE_PIECES = sentence_pieces.MODEL

ONLY = "nothing else is supported. Choose a different model"
_KEYS = JsonKeys(
    used={"model", "normalizer", "pre_tokenizer", "post_processor", "added_tokens"},
    needed={"version": Needed(("1.0", None), ONLY)},
    harmless={"decoder", "truncation", "padding"},
)
_NORMALIZER_KEYS = JsonKeys(
    used={"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"},
    needed={"type": Needed(("BertNormalizer",), ONLY)},
)
_WORD_PIECE_KEYS = JsonKeys(
    used={"type", "vocab", "max_input_chars_per_word"},
    needed={
        "unk_token": Needed(("[UNK]",), ONLY),
        "continuing_subword_prefix": Needed(("##",), ONLY),
    },
)
_BYTE_LEVEL_KEYS = JsonKeys(
    used={"add_prefix_space"},
    needed={"type": Needed(("ByteLevel",), ONLY), "use_regex": Needed((True,), ONLY)},
    harmless={"trim_offsets"},
)
_BYTE_PAIR_KEYS = JsonKeys(
    used={"type", "vocab", "merges"},
    needed={
        "dropout": Needed((None, 0), ONLY),
        "continuing_subword_prefix": Needed(("", None), ONLY),
        "end_of_word_suffix": Needed(("", None), ONLY),
        "ignore_merges": Needed((False,), ONLY),
    },
    harmless={"unk_token", "fuse_unk", "byte_fallback"},  # every byte has a token
)
_UNIGRAM_KEYS = JsonKeys(
    used={"type", "vocab", "unk_id"}, needed={"byte_fallback": Needed((False, None), ONLY)}
)
# The steps of ALBERT's normalizer and pre-tokenizer.
_QUOTES = [{"type": "Replace", "pattern": {"String": x}, "content": '"'} for x in ("``", "''")]
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_METASPACE = {
    **{"replacement": "▁", "prepend_scheme": "always", "split": True},
    **{"add_prefix_space": True, "str_rep": "▁"},  # in older files
}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclasses.dataclass(frozen=True)
class TokenizerJson:
    """The content of a `tokenizer.json`.

    kind: WORD_PIECES, BYTE_PAIRS or SENTENCE_PIECES.
    vocab: token -> id, in the order of ids; a BPE's has the added tokens, too.
    merges: a BPE's `merges.txt`.
    unigrams: the SentencePiece model of SENTENCE_PIECES.
    switches: value by the name in `tokenizer_config.json`.
    added_tokens: tokens with their options, as in the file.
    has_layout: whether the file says which special tokens a sequence gets.
    """

    kind: str
    vocab: dict[str, int]
    merges: str
    switches: dict[str, Any]
    added_tokens: list[dict[str, Any]]
    unigrams: Unigrams | None = None
    has_layout: bool = False

    def files(self) -> dict[str, str]:
        """Returns the content of the vocabulary's files by name."""
        if self.kind == BYTE_PAIRS:
            return {BYTE_PAIRS: json.dumps(self.vocab), MERGES: self.merges}
        return {WORD_PIECES: "".join(f"{token}\n" for token in self.vocab)}


def read_tokenizer_json(folder: str) -> TokenizerJson | None:
    """Returns the content of a folder's `tokenizer.json`; None if there is no such file.

    Raises:
        UserError: the file is damaged, or is the tokenizer of another kind of model.
    """
    path = os.path.join(folder, TOKENIZER_FILE)
    if not tf.io.gfile.exists(path):
        return None
    content = read_json(path, path, "it must be the tokenizer of a BERT model")
    content = content if isinstance(content, dict) else {}
    _KEYS.check(content, path)
    model, normalizer, splitter = (
        part if isinstance(part := content.get(key), dict) else {}
        for key in ("model", "normalizer", "pre_tokenizer")
    )
    added = content.get("added_tokens") or []
    kind = model.get("type", "WordPiece"), normalizer.get("type"), splitter.get("type")
    parts = model.get("vocab"), added, model.get("merges", [])
    if kind[0] == "Unigram" and isinstance(added, list):
        found = _sentence_pieces(model, normalizer, splitter, added, path)
    elif not all(map(isinstance, parts, (dict, list, list))) or kind not in (
        ("WordPiece", "BertNormalizer", "BertPreTokenizer"),
        ("BPE", None, "ByteLevel"),
    ):
        raise UserError(
            f"{path}: it must be the tokenizer of a BERT model: WordPiece with BertNormalizer and"
            " BertPreTokenizer, or RoBERTa's BPE with ByteLevel and no normalizer, with a"
            f" vocabulary; received {quoted(kind)}"
        )
    elif kind[0] == "BPE":
        found = _byte_pairs(model, splitter, added, path)
    else:
        found = _word_pieces(model, normalizer, added, path)
    processor = content.get("post_processor")
    if processor is not None:
        _check_layout(processor, found.vocab, path)
    return dataclasses.replace(found, has_layout=processor is not None)


def _word_pieces(
    model: dict[str, Any], normalizer: dict[str, Any], added: list[Any], path: str
) -> TokenizerJson:
    _WORD_PIECE_KEYS.check(model, path)
    _NORMALIZER_KEYS.check(normalizer, path)
    vocab = in_order_of_ids(model["vocab"])
    missing = [token for token in _SPECIAL if token not in vocab]
    if not vocab or missing:
        raise UserError(
            f"{path}: the vocabulary's ids must be the numbers from 0 to"
            f" {len(model['vocab']) - 1}, each once, and it must have {', '.join(_SPECIAL)}"
        )
    check_text(vocab, path)
    if any(char in token for token in vocab for char in "\r\n") or len(
        {token.strip() for token in vocab}
    ) < len(vocab):
        raise UserError(
            f"{path}: tokens must be different lines of a {WORD_PIECES}, which has no white space"
            " at the ends of a line; choose a different model"
        )
    lowercase = normalizer.get("lowercase")
    if not isinstance(lowercase, bool):
        raise UserError(f"{path}: lowercase must be true or false; received {quoted(lowercase)}")
    longest = model.get("max_input_chars_per_word", MAX_INPUT_CHARS)
    if type(longest) is not int or longest < 1:
        raise UserError(
            f"{path}: max_input_chars_per_word must be a whole number above 0; received"
            f" {quoted(longest)}"
        )
    switches = {
        "do_lower_case": lowercase,
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "clean_text": normalizer.get("clean_text", True),
        "max_input_chars_per_word": longest,
    }
    return TokenizerJson(WORD_PIECES, vocab, "", switches, added)


def _byte_pairs(
    model: dict[str, Any], splitter: dict[str, Any], added: list[Any], path: str
) -> TokenizerJson:
    _BYTE_PAIR_KEYS.check(model, path)
    _BYTE_LEVEL_KEYS.check(splitter, path)
    # A pair is a list, or in older files a string with a space in it.
    lines = [" ".join(x) if _is_pair(x) else x for x in model.get("merges", [])]
    if wrong := [x for x in lines if not isinstance(x, str) or "\n" in x]:
        raise UserError(
            f"{path}: each of the merges must be two tokens; received {quoted(wrong[0])}. Choose a"
            " different model"
        )
    tokens = {
        token["content"]: token["id"]
        for token in added  # `tokenizer_files` refuses odd ones
        if isinstance(token, dict) and "id" in token and isinstance(token.get("content"), str)
    }
    merges = "".join(f"{line}\n" for line in ["#version: 0.2", *lines])
    switches = {"add_prefix_space": splitter.get("add_prefix_space", True)}
    return TokenizerJson(BYTE_PAIRS, {**model["vocab"], **tokens}, merges, switches, added)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value)


def _sentence_pieces(
    model: dict[str, Any],
    normalizer: dict[str, Any],
    splitter: dict[str, Any],
    added: list[Any],
    path: str,
) -> TokenizerJson:
    """Returns the content of a file with ALBERT's tokenizer."""
    _UNIGRAM_KEYS.check(model, path)
    steps = normalizer.get("normalizers")
    steps = [x if isinstance(x, dict) else {} for x in steps] if isinstance(steps, list) else []
    kinds = [step.get("type") for step in steps]
    switches = {"do_lower_case": "Lowercase" in kinds, "keep_accents": "StripAccents" not in kinds}
    charsmap = next(
        (x.get("precompiled_charsmap") for x in steps if "precompiled_charsmap" in x), ""
    )
    expected = [
        *_QUOTES,
        *([] if switches["keep_accents"] else [{"type": "NFKD"}, {"type": "StripAccents"}]),
        *([{"type": "Lowercase"}] if switches["do_lower_case"] else []),
        *([{"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []),
    ]
    if steps not in (expected, [*expected, _ONE_SPACE]):
        raise UserError(
            f"{path}: the normalizer must be ALBERT's; received {quoted(kinds)}: {ONLY}"
        )
    parts = splitter.get("pretokenizers")
    if not isinstance(parts, list) or [
        {key: x for key, x in part.items() if x != _METASPACE.get(key)}
        for part in parts
        if isinstance(part, dict)
    ] != [{"type": "WhitespaceSplit"}, {"type": "Metaspace"}]:
        raise UserError(
            f"{path}: the pre_tokenizer must be ALBERT's; received {quoted(parts)}: {ONLY}"
        )
    try:
        pieces = [
            (f"{piece:s}", struct.unpack("<f", struct.pack("<f", score))[0])
            for piece, score in model["vocab"]
        ]
        rules = base64.b64decode(charsmap, validate=True)
    except (TypeError, ValueError, KeyError, OverflowError, struct.error) as error:
        raise UserError(
            f"{path}: the model must have a vocab of pieces and scores, and the normalizer a"
            f" precompiled_charsmap in base 64; {quoted(str(error))}"
        ) from error
    check_text((piece for piece, _ in pieces), path)
    unigrams = Unigrams(pieces, model.get("unk_id"), (), rules)
    vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
    return TokenizerJson(SENTENCE_PIECES, vocab, "", switches, added, unigrams)


def _check_layout(processor: Any, vocab: Mapping[str, int], path: str) -> None:
    """Checks that texts and pairs of texts get special tokens as in BERT, or as in RoBERTa."""
    layouts = [
        (f"{name}Processing", tuple((token, vocab.get(token)) for token in tokens))
        for name, *tokens in (("Bert", "[CLS]", "[SEP]"), ("Roberta", "<s>", "</s>"))
    ]
    try:
        if processor["type"] == "TemplateProcessing":
            found = [_parts(processor, key) for key in ("single", "pair")]
            right = found in [_templates(*layout) for layout in layouts]
        else:
            tokens = tuple(tuple(processor[key]) for key in ("cls", "sep"))
            right = (processor["type"], tokens) in layouts
    except (TypeError, LookupError, AttributeError, ValueError):
        right = False
    if not right:
        raise UserError(
            f"{path}: post_processor must put [CLS] before a text and [SEP] after it, or <s> and"
            " </s>, and between two texts [SEP], or </s></s>, with the ids of the vocabulary and"
            f" BERT's segments; received {quoted(processor)}. Choose a different model"
        )


def _templates(kind: str, tokens: tuple[tuple[str, int | None], ...]) -> list[list[Any]]:
    """Returns what `_parts` must return for a text and for a pair of texts."""
    (cls, sep), is_bert = tokens, kind == "BertProcessing"
    single = [(cls, 0), ("A", 0), (sep, 0)]
    return [single, [*single, *([] if is_bert else [(sep, 0)]), ("B", is_bert), (sep, is_bert)]]


def _parts(processor: dict[str, Any], key: str) -> list[tuple[Any, int]]:
    """Returns the tokens with their ids, the texts, A and B, and the segment of each."""
    found = []
    for part in processor[key]:
        ((kind, value),) = part.items()
        name = value["id"]
        if kind == "SpecialToken":
            name = (name, *processor["special_tokens"][name]["ids"])
        found.append((name, value["type_id"]))
    return found
