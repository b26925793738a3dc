"""Hugging Face's files of a tokenizer: tokenizer_config.json, added_tokens.json, tokenizer.json."""

import json
import os
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.json_keys import JsonKeys, Needed
from bert_tf.files.whole_files import read_json
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.byte_pairs import (
    MERGES,
    SPECIAL_TOKENS,
    VOCABULARY,
    BytePairTokenizer,
    in_order_of_ids,
)
from bert_tf.text.fast_tokenization import FastTokenizer

TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"  # a whole tokenizer, with its vocabulary
DO_LOWER_CASE = "do_lower_case"
_ADDED_TOKENS = "added_tokens.json"
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_RULE = "it must be the tokenizer of a BERT model"
_REMEDY = "correct or delete it"

# --- the keys of each file ------------------------------------------------------------------------

_CONFIG_KEYS = JsonKeys(
    used={DO_LOWER_CASE, "added_tokens_decoder"},
    harmless={"clean_up_tokenization_spaces", "name_or_path", "special_tokens_map_file"},
)
# The keys of a byte-level BPE's tokenizer_config.json.
_BYTE_PAIR_CONFIG_KEYS = JsonKeys(
    used=_CONFIG_KEYS.used,
    needed={
        "add_prefix_space": Needed(
            (False, None),
            "a space before every text is not supported. Choose a different model, or begin every"
            " text with a space and correct the file",
        )
    },
    harmless={*_CONFIG_KEYS.harmless, "errors"},  # how invalid UTF-8 is displayed
)
_TOKENIZER_KEYS = JsonKeys(
    used={"model", "normalizer", "pre_tokenizer", "added_tokens"},
    harmless={"version", "decoder"},
)

# --- tokenizer_config.json and added_tokens.json --------------------------------------------------


def read_tokenizer_config(folder: str) -> dict[str, Any]:
    """Returns a folder's `tokenizer_config.json`, {} without one; UserError if it is damaged."""
    path = os.path.join(folder, TOKENIZER_CONFIG)
    if not tf.io.gfile.exists(path):
        return {}
    config = read_json(path, path, _REMEDY)
    if not isinstance(config, dict) or not isinstance(config.get(DO_LOWER_CASE), bool | None):
        raise UserError(
            f"{path} must hold a dictionary whose {DO_LOWER_CASE}, if it has one, is true or false;"
            f" received {quoted(config)}"
        )
    _CONFIG_KEYS.check(config, path)
    return config


def check_byte_pair_files(folder: str) -> None:
    """Raises UserError if files beside a BPE ask for added tokens or a space before every text."""
    config, path = read_tokenizer_config(folder), os.path.join(folder, TOKENIZER_CONFIG)
    _BYTE_PAIR_CONFIG_KEYS.check(config, path)
    decoder = config.get("added_tokens_decoder")  # id -> token with its options
    tokens = decoder.values() if isinstance(decoder, dict) else ()
    contents = [t["content"] for t in tokens if isinstance(t, dict) and "content" in t]
    _check_added_tokens(contents, path)
    path = os.path.join(folder, _ADDED_TOKENS)
    if tf.io.gfile.exists(path):
        added = read_json(path, path, _REMEDY)
        _check_added_tokens(added if isinstance(added, dict) else (), path)


def _check_added_tokens(tokens: Iterable[str], path: str) -> None:
    if others := [token for token in tokens if token not in SPECIAL_TOKENS]:
        raise UserError(
            f"{path}: the added tokens of a byte-level BPE must be among"
            f" {', '.join(SPECIAL_TOKENS)}; received {listed(others)}. Choose a model without them"
        )


# --- tokenizer.json -------------------------------------------------------------------------------


def read_tokenizer(path: str, do_lower_case: bool) -> tuple[Tokenizer, bool | None]:
    """Returns the tokenizer of a `tokenizer.json`, and its casing; None for a byte-level BPE.

    The argument `do_lower_case` overrides the file's casing. Raises UserError if the tokenizer is
    not a BERT's or RoBERTa's.
    """
    content = _read(path)
    if files := _byte_pairs(content, path):
        required = BytePairTokenizer.sequence_tokens
        return BytePairTokenizer(path, do_lower_case, required, files), None
    vocab, lowercase = _word_pieces(content, path)
    if missing := [token for token in _SPECIAL if token not in vocab]:
        raise UserError(f"{path}: the vocabulary must have {listed(missing)}")
    return FastTokenizer(vocab, do_lower_case), lowercase


def read_byte_pairs(path: str) -> dict[str, str]:
    """Returns the `vocab.json` and `merges.txt` of a `tokenizer.json`; {} if it is not a BPE."""
    return _byte_pairs(_read(path), path)


def _read(path: str) -> dict[str, Any]:
    content = read_json(path, path, _RULE)
    content = content if isinstance(content, dict) else {}
    _TOKENIZER_KEYS.check(content, path)
    return content


def _word_pieces(content: dict[str, Any], path: str) -> tuple[dict[str, int], bool]:
    """Returns the vocabulary, token -> id in the order of ids, and `do_lower_case`."""
    parts = [content.get(key) for key in ("model", "normalizer")]
    model, normalizer = (part if isinstance(part, dict) else {} for part in parts)
    prefix = model.get("continuing_subword_prefix", "##")
    kinds = (model.get("type", "WordPiece"), normalizer.get("type"), prefix)
    vocab = model.get("vocab")
    if kinds != ("WordPiece", "BertNormalizer", "##") or not isinstance(vocab, dict):
        raise UserError(
            f"{path}: {_RULE}: WordPiece with a vocabulary and ##, and BertNormalizer; received"
            f" {quoted(kinds)}"
        )
    if not (ordered := in_order_of_ids(vocab)):
        raise UserError(
            f"{path}: the vocabulary's ids must be the numbers from 0 to {len(vocab) - 1}, each"
            " once"
        )
    lowercase, strip_accents = normalizer.get("lowercase"), normalizer.get("strip_accents")
    if not isinstance(lowercase, bool) or strip_accents not in (None, lowercase):
        raise UserError(
            f"{path}: lowercase of BertNormalizer must be true or false, and strip_accents must be"
            f" null or equal to it, as in google-research/bert; received {quoted(lowercase)} and"
            f" {quoted(strip_accents)}"
        )
    return ordered, lowercase


def _byte_pairs(content: dict[str, Any], path: str) -> dict[str, str]:
    """Returns the content of a BPE's `vocab.json` and `merges.txt` by name; {} if not a BPE."""
    model = content.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        return {}
    vocab, merges, added = model.get("vocab"), model.get("merges"), content.get("added_tokens")
    splitter = content.get("pre_tokenizer")
    if (
        not (isinstance(vocab, dict) and isinstance(merges, list) and isinstance(added, list))
        or not isinstance(splitter, dict)
        or (splitter.get("type"), splitter.get("add_prefix_space")) != ("ByteLevel", False)
        or content.get("normalizer") is not None
    ):
        raise UserError(
            f"{path}: a BPE must be RoBERTa's: with a vocabulary, merges, added tokens, the"
            " pre-tokenizer ByteLevel without add_prefix_space, and no normalizer; received"
            f" {quoted(splitter)} and {quoted(content.get('normalizer'))}"
        )
    # A pair is a list, or in older files a string with a space in it.
    lines = [merge if isinstance(merge, str) else " ".join(map(str, merge)) for merge in merges]
    tokens = {
        token["content"]: token["id"]
        for token in added
        if isinstance(token, dict) and {"content", "id"} <= token.keys()
    }
    _check_added_tokens(tokens, path)
    check_byte_pair_files(os.path.dirname(path))
    text = "".join(f"{line}\n" for line in lines)
    return {VOCABULARY: json.dumps({**vocab, **tokens}), MERGES: f"#version: 0.2\n{text}"}
