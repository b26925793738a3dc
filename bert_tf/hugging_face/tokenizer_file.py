"""Reads a `tokenizer.json`: the tokenizer of BERT, or of RoBERTa."""

import json

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import read_json
from bert_tf.text.byte_pairs import MERGES, VOCABULARY, check_added_tokens

_RULE = "it must be the tokenizer of a BERT model"
_PARTS = ("model", "normalizer")


def read_tokenizer(path: str) -> tuple[dict[str, int], bool]:
    """Returns the vocabulary, token -> id in the order of ids, and `do_lower_case`.

    Raises:
        UserError: the file is damaged, or is the tokenizer of another kind of model.
    """
    content = read_json(path, path, _RULE)
    parts = [content.get(key) if isinstance(content, dict) else None for key in _PARTS]
    model, normalizer = (part if isinstance(part, dict) else {} for part in parts)
    prefix = model.get("continuing_subword_prefix", "##")
    kinds = (model.get("type", "WordPiece"), normalizer.get("type"), prefix)
    vocab = model.get("vocab")
    if kinds != ("WordPiece", "BertNormalizer", "##") or not isinstance(vocab, dict):
        raise UserError(
            f"{path}: {_RULE}: WordPiece with a vocabulary and ##, and BertNormalizer; received"
            f" {quoted(kinds)}"
        )
    ids = list(vocab.values())
    if not ids or any(type(i) is not int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise UserError(
            f"{path}: the ids of the vocabulary must be the numbers from 0 to {len(ids) - 1}, each"
            " once"
        )
    lowercase, strip_accents = normalizer.get("lowercase"), normalizer.get("strip_accents")
    if not isinstance(lowercase, bool) or strip_accents not in (None, lowercase):
        raise UserError(
            f"{path}: lowercase of BertNormalizer must be true or false, and strip_accents null or"
            f" the same, as in google-research/bert; received {quoted(lowercase)} and"
            f" {quoted(strip_accents)}"
        )
    return dict(sorted(vocab.items(), key=lambda item: item[1])), lowercase


def read_byte_pairs(path: str) -> dict[str, str] | None:
    """Returns the content of the `vocab.json` and `merges.txt` of a byte-level BPE, by name.

    None if the file has another tokenizer.

    Raises:
        UserError: the file is damaged, or has tokens that a byte-level BPE here does not have.
    """
    content = read_json(path, path, _RULE)
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or model.get("type") != "BPE":
        return None
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
    # A pair is a list, or in older files a text with a space in it.
    lines = [merge if isinstance(merge, str) else " ".join(map(str, merge)) for merge in merges]
    tokens = {
        token["content"]: token["id"]
        for token in added
        if isinstance(token, dict) and {"content", "id"} <= token.keys()
    }
    check_added_tokens(tokens, path)
    text = "".join(f"{line}\n" for line in lines)
    return {VOCABULARY: json.dumps({**vocab, **tokens}), MERGES: f"#version: 0.2\n{text}"}
