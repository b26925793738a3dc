"""Reads Hugging Face's `tokenizer.json`: a whole tokenizer in a file, with its vocabulary.

The package `tokenizers` reads the file. Files that would not split texts like this library's
tokenizers are refused.
"""

import base64
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tokenizers

from bert_tf.errors import UserError, as_given, as_line, quoted
from bert_tf.files.whole_files import read_json
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text.byte_pairs import MERGES, UNKNOWN_ID, in_order_of_ids
from bert_tf.text.sentence_piece_model import Unigrams
from bert_tf.text.tokenizer_settings import BYTE_PAIRS, FAIRSEQ_PIECES, SENTENCE_PIECES, WORD_PIECES

TOKENIZER_FILE = "tokenizer.json"
ONLY = "nothing else is supported. Choose a different model"
_KINDS = {"WordPiece": WORD_PIECES, "BPE": BYTE_PAIRS, "Unigram": SENTENCE_PIECES}
# Keys that are read or harmless: a byte-level BPE knows every byte, and bert_tf computes offsets
# itself.
_FREE = {
    WORD_PIECES: {
        *("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"),
        *("vocab", "max_input_chars_per_word"),
    },
    BYTE_PAIRS: {
        *("vocab", "merges", "unk_token", "fuse_unk", "byte_fallback"),
        *("add_prefix_space", "trim_offsets"),
    },
    SENTENCE_PIECES: {"vocab", "unk_id"},
    FAIRSEQ_PIECES: {"vocab", "unk_id", "precompiled_charsmap"},
}
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
_WORDS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, _METASPACE]}
# The required values of all other keys. Values such as null and false are ignored.
_PARTS: dict[str, dict[str, dict[str, Any]]] = {
    WORD_PIECES: {
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"},
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    },
    BYTE_PAIRS: {
        "model": {"type": "BPE"},
        "normalizer": {},
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True},
    },
    SENTENCE_PIECES: {"model": {"type": "Unigram"}, "pre_tokenizer": _WORDS},
    FAIRSEQ_PIECES: {"model": {"type": "Unigram"}},
}
# The steps of ALBERT's normalizer.
_QUOTES = [{"type": "Replace", "pattern": {"String": x}, "content": '"'} for x in ("``", "''")]
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclasses.dataclass(frozen=True)
class TokenizerJson:
    """The content of a `tokenizer.json`."""

    kind: str  # WORD_PIECES, BYTE_PAIRS, SENTENCE_PIECES or FAIRSEQ_PIECES
    vocab: dict[str, int]  # in the order of ids; for a BPE, including the added tokens
    merges: str  # a BPE's `merges.txt`
    switches: dict[str, Any]  # by their names in `tokenizer_config.json`
    added_tokens: list[dict[str, Any]]  # with their options, as in the file
    unigrams: Unigrams | None = None  # for SENTENCE_PIECES or FAIRSEQ_PIECES
    has_layout: bool = False  # whether the file says which special tokens a sequence gets
    is_of_class: bool = True  # False if a FAIRSEQ_PIECES file's steps are not XLM-RoBERTa's

    def files(self) -> dict[str, str]:
        """Returns the content of the vocabulary's files by name."""
        if self.kind == BYTE_PAIRS:
            return {BYTE_PAIRS: json.dumps(self.vocab), MERGES: self.merges}
        return {WORD_PIECES: "".join(f"{token}\n" for token in self.vocab)}


def read_tokenizer_json(folder: str) -> TokenizerJson | None:
    """Reads a folder's `tokenizer.json`; None if there is no such file."""
    path = os.path.join(folder, TOKENIZER_FILE)
    if not tf.io.gfile.exists(path):
        return None
    content = read_json(path, path, "it must be the tokenizer of a BERT model")
    tokenizer, parts = _load(content, path)
    kind = _KINDS.get(parts["model"]["type"], WORD_PIECES)
    if kind == SENTENCE_PIECES and all(piece != "[CLS]" for piece, _ in parts["model"]["vocab"]):
        kind = FAIRSEQ_PIECES
    for name, expected in _PARTS[kind].items():
        found = {key: x for key, x in (parts[name] or {}).items() if key not in _FREE[kind] and x}
        if found != expected:
            raise UserError(
                f"{path}: its {name} must be {json.dumps(expected or None)}; received"
                f" {quoted(json.dumps(found or None))}: {ONLY}"
            )
    read = {WORD_PIECES: _word_pieces, BYTE_PAIRS: _byte_pairs}.get(kind, _sentence_pieces)
    found = read(parts, content.get("added_tokens") or [], path)
    if tokenizer.post_processor:
        _check_layout(tokenizer, parts["post_processor"], found.vocab, path)
    return dataclasses.replace(found, has_layout=bool(tokenizer.post_processor))


def _load(content: Any, path: str) -> tuple[Any, dict[str, Any]]:
    """Returns the tokenizer of the package `tokenizers`, and its parts with all their keys."""
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        return tokenizer, json.loads(tokenizer.to_str())
    except BaseException as error:  # a panic in the package is not an Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserError(
            f"{path}: it must be the tokenizer of a BERT model; the package tokenizers"
            f" {tokenizers.__version__} cannot read it ({as_given(as_line(str(error)))}). Choose a"
            " different model"
        ) from error


def _word_pieces(parts: dict[str, Any], added: list[Any], path: str) -> TokenizerJson:
    model, normalizer = parts["model"], parts["normalizer"]
    vocab = in_order_of_ids(model["vocab"])
    missing = [token for token in _SPECIAL if token not in vocab]
    if missing:
        raise UserError(
            f"{path}: the vocabulary's ids must be the numbers from 0 to"
            f" {len(model['vocab']) - 1}, each once, and it must have {', '.join(_SPECIAL)}"
        )
    lines = {token.strip() for token in vocab if "\n" not in token and "\r" not in token}
    if len(lines) < len(vocab):
        raise UserError(
            f"{path}: {WORD_PIECES} cannot hold these tokens: one has a line break, or two differ"
            " only in white space at their ends; choose a different model"
        )
    if model["max_input_chars_per_word"] < 1:
        raise UserError(f"{path}: max_input_chars_per_word must be above 0")
    switches = {
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        "clean_text": normalizer["clean_text"],
        "max_input_chars_per_word": model["max_input_chars_per_word"],
    }
    return TokenizerJson(WORD_PIECES, vocab, "", switches, added)


def _byte_pairs(parts: dict[str, Any], added: list[Any], path: str) -> TokenizerJson:
    model = parts["model"]
    tokens = {token["content"]: token["id"] for token in added}
    merges = "".join(f"{line}\n" for line in ["#version: 0.2", *map(" ".join, model["merges"])])
    switches = {"add_prefix_space": parts["pre_tokenizer"]["add_prefix_space"]}
    return TokenizerJson(BYTE_PAIRS, {**model["vocab"], **tokens}, merges, switches, added)


def _sentence_pieces(parts: dict[str, Any], added: list[Any], path: str) -> TokenizerJson:
    model, normalizer = parts["model"], parts["normalizer"]
    steps = normalizer.get("normalizers", [normalizer]) if normalizer else []
    kinds = [step["type"] for step in steps]
    charsmap = next((x["precompiled_charsmap"] for x in steps if x["type"] == "Precompiled"), None)
    pieces = [(piece, float(np.float32(score))) for piece, score in model["vocab"]]
    unigrams = Unigrams(pieces, model["unk_id"], (), base64.b64decode(charsmap or ""))
    vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
    if "[CLS]" not in vocab:  # fairseq's
        of_class = (parts["pre_tokenizer"], model["unk_id"]) == (_WORDS, UNKNOWN_ID)
        of_class &= steps[bool(charsmap) :] in ([], [_ONE_SPACE])
        return TokenizerJson(FAIRSEQ_PIECES, vocab, "", {}, added, unigrams, is_of_class=of_class)
    switches = {"do_lower_case": "Lowercase" in kinds, "keep_accents": "StripAccents" not in kinds}
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
    return TokenizerJson(SENTENCE_PIECES, vocab, "", switches, added, unigrams)


def _check_layout(
    tokenizer: Any, processor: dict[str, Any], vocab: Mapping[str, int], path: str
) -> None:
    """Checks that texts and pairs of texts get special tokens as in BERT, or as in RoBERTa."""
    a, b = len(vocab), len(vocab) + 1
    model = tokenizers.models.WordLevel({"a": a, "b": b}, unk_token="a")
    texts = [tokenizers.Tokenizer(model).encode(x) for x in "ab"]
    layouts = []
    if all(token in vocab for token in ("[CLS]", "[SEP]")):
        cls, sep = vocab["[CLS]"], vocab["[SEP]"]
        layouts.append([([cls, a, sep], [0] * 3), ([cls, a, sep, b, sep], [0, 0, 0, 1, 1])])
    if all(token in vocab for token in ("<s>", "</s>")):
        cls, sep = vocab["<s>"], vocab["</s>"]
        layouts.append([([cls, a, sep], [0] * 3), ([cls, a, sep, sep, b, sep], [0] * 6)])
    named = {
        x["SpecialToken"]["id"]
        for key in ("single", "pair")
        for x in processor.get(key, [])
        if "SpecialToken" in x
    }
    found = []
    if named <= processor.get("special_tokens", {}).keys():
        made = [tokenizer.post_processor.process(*texts[:n]) for n in (1, 2)]
        found = [(x.ids, x.type_ids) for x in made]
    if found not in layouts:
        raise UserError(
            f"{path}: post_processor must put [CLS] before a text and [SEP] after it, or <s> and"
            " </s>, and between two texts [SEP], or </s></s>, with the ids of the vocabulary and"
            f" BERT's segments; received {quoted(processor)}. Choose a different model"
        )
