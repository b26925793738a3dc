"""Reads the settings of a tokenizer from Hugging Face's files in a model's folder.

Each key of a file is used, must have certain values, or is known to be harmless; any other key is
refused. So are two files that contradict each other.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf.errors import UserError, as_given, quoted
from bert_tf.files.whole_files import JsonKeys, Needed, read_checked
from bert_tf.text.byte_pairs import CAMEMBERT, MASK, check_text, class_of
from bert_tf.text.tokenizer_json import ONLY, TOKENIZER_FILE, TokenizerJson
from bert_tf.text.tokenizer_settings import (
    ADDED_TOKENS,
    BYTE_PAIRS,
    DO_LOWER_CASE,
    FAIRSEQ_PIECES,
    MAX_INPUT_CHARS,
    MORE_TOKENS,
    SENTENCE_PIECES,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    WORD_PIECES,
    AddedToken,
    TokenizerSettings,
)

_TOKENS_MAP, _ADDED_IDS = "special_tokens_map.json", "added_tokens.json"

# --- the keys of each file ------------------------------------------------------------------------

_MORE_TOKENS = (MORE_TOKENS, "extra_special_tokens")
_NUMBER = "max_input_chars_per_word"  # the others are true or false
_SWITCHES = {
    WORD_PIECES: (
        *("strip_accents", "tokenize_chinese_chars", "clean_text", "drop_category_c", _NUMBER),
    ),
    SENTENCE_PIECES: ("keep_accents", "remove_space"),
    BYTE_PAIRS: ("add_prefix_space",),
    FAIRSEQ_PIECES: (),
}
# Defaults of the classes below for switches that tokenizer_config.json lacks, whatever
# tokenizer.json says. The classes have no argument for the last three.
_CLASS_DEFAULTS = {
    **{DO_LOWER_CASE: True, "strip_accents": None, "tokenize_chinese_chars": True},
    **{"keep_accents": False, "add_prefix_space": False},
    **{"clean_text": True, "drop_category_c": False, _NUMBER: MAX_INPUT_CHARS},
}
_NO_ARGUMENTS = ("clean_text", "drop_category_c", _NUMBER)
# Classes that use a tokenizer.json as it is.
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_CLASSES = {
    WORD_PIECES: ("Bert", "DistilBert", "Electra"),
    SENTENCE_PIECES: ("Albert",),
    BYTE_PAIRS: ("Roberta",),
    FAIRSEQ_PIECES: ("XLMRoberta", "Camembert"),
}
_HARMLESS_CONFIG = {
    # History, and where files came from.
    *("name_or_path", "special_tokens_map_file", "tokenizer_file", "full_tokenizer_file"),
    *("vocab_file", "merges_file", "vocab_size", "backend", "is_local", "local_files_only"),
    *("processor_class", "model_type", "use_fast", "legacy", "unk_id"),
    # Arguments of calls, and of the steps after tokenization, which bert_tf does in its own way.
    *("model_max_length", "max_len", "max_length", "stride", "truncation_strategy"),
    *("padding_side", "pad_to_multiple_of", "pad_token_type_id"),
    *("model_input_names", "return_tensors", "chat_template"),
    # Turning ids back into text.
    *("clean_up_tokenization_spaces", "errors", "trim_offsets"),
}


@functools.cache
def _config_keys(kind: str) -> JsonKeys:
    names = [name + end for name in _CLASSES[kind] for end in ("Tokenizer", "TokenizerFast")]
    prefix = {"add_prefix_space": Needed((True, None), ONLY)}
    more = {SENTENCE_PIECES: {"unk_id": Needed((1, None), ONLY), **prefix}, FAIRSEQ_PIECES: prefix}
    return JsonKeys(
        used={
            *(DO_LOWER_CASE, ADDED_TOKENS, *_MORE_TOKENS, *_SWITCHES[kind]),
            *(f"{name}_token" for name in SPECIAL_TOKENS[kind]),
        },
        needed={
            "tokenizer_class": Needed((*names, *_GENERIC_CLASSES, None), ONLY),
            "do_basic_tokenize": Needed((True, None), ONLY),
            "never_split": Needed((None, []), "make them added tokens, or take a different model"),
            "wordpieces_prefix": Needed(("##",), ONLY),
            "truncation_side": Needed(
                ("right", None), "texts are cut at their end. Delete the key to cut them there"
            ),
            "split_special_tokens": Needed((False, None), ONLY),
            "sp_model_kwargs": Needed(({}, None), ONLY),
            "add_special_tokens": Needed((True, None), ONLY),
            "init_inputs": Needed(([], None), ONLY),
            **more.get(kind, {}),
        },
        harmless=_HARMLESS_CONFIG,
    )


# --- tokenizer_config.json and its companions -----------------------------------------------------


def read_tokenizer_config(folder: str) -> dict[str, Any]:
    """Reads a folder's `tokenizer_config.json`; {} if it is missing, UserError if damaged."""
    path = os.path.join(folder, TOKENIZER_CONFIG)
    config: dict[str, Any] = read_checked(path)
    if not isinstance(config.get(DO_LOWER_CASE), bool | None):
        raise UserError(
            f"{path}: {DO_LOWER_CASE} must be true or false; received"
            f" {quoted(config[DO_LOWER_CASE])}. Correct or delete it"
        )
    return config


def read_settings(
    folder: str, kind: str, in_json: TokenizerJson | None, hugging_face: bool = False
) -> TokenizerSettings:
    """Reads the settings of a folder's tokenizer; `in_json` is its `tokenizer.json`.

    A folder with a tokenizer file other than `tokenizer_config.json`, or with a `tokenizer_class`,
    also counts as `hugging_face`.
    """
    config, path = read_tokenizer_config(folder), os.path.join(folder, TOKENIZER_CONFIG)
    _config_keys(kind).check(config, path)
    class_ = config.get("tokenizer_class")
    has_defaults = class_ not in _GENERIC_CLASSES and (class_ is not None or hugging_face)
    for name in _NO_ARGUMENTS if has_defaults and hugging_face else ():
        if config.get(name) not in (None, _CLASS_DEFAULTS[name]):
            raise UserError(
                f"{path}: {name} must be {json.dumps(_CLASS_DEFAULTS[name])}, not"
                f" {_shown(config[name])}, which transformers ignores. Delete the key"
            )
    tokens_map, ids = (read_checked(os.path.join(folder, x)) for x in (_TOKENS_MAP, _ADDED_IDS))
    hugging_face |= bool(in_json or tokens_map or ids or "tokenizer_class" in config)
    hugging_face |= kind == FAIRSEQ_PIECES  # always split by `tokenizers`
    values = _switches(config, kind, path)
    casing = config.get(DO_LOWER_CASE)
    if in_json:
        _check_json(folder, kind, in_json, class_)
        _check_same(config, in_json.switches, has_defaults, folder)
        values = {**in_json.switches, **values}
        in_file = values.pop(DO_LOWER_CASE, None)
        casing = in_file if casing is None else casing
    added = in_json.added_tokens if in_json else []
    tokens = _tokens(config, tokens_map, ids, added, kind, hugging_face, folder)
    only_model = kind in (SENTENCE_PIECES, FAIRSEQ_PIECES) and not in_json
    _check_more_tokens(config, tokens_map, tokens, only_model, folder)
    return TokenizerSettings(
        **values,
        added_tokens=tuple(tokens),
        tokenizer_class=_class_of(folder, kind, in_json, class_) if hugging_face else None,
        recorded_casing=casing,
    )


def _check_json(folder: str, kind: str, in_json: TokenizerJson, class_: Any) -> None:
    if in_json.kind != kind:
        raise UserError(
            f"{folder} must have one vocabulary; it has a {kind}, and {TOKENIZER_FILE} has a"
            f" {in_json.kind}. Move the wrong one away"
        )
    if class_ in _GENERIC_CLASSES and not in_json.has_layout:
        raise UserError(
            f"{folder}: {TOKENIZER_FILE} must have a post_processor, since {class_} takes the file"
            " as it is: without one, texts get no special tokens, such as [CLS]. Add the"
            f" post_processor, or correct tokenizer_class in {TOKENIZER_CONFIG}"
        )
    if class_ in _GENERIC_CLASSES and not in_json.is_of_class:
        raise UserError(
            f"{folder}: {class_} takes {TOKENIZER_FILE} as it is, but its normalizer and"
            f" pre_tokenizer are not XLM-RoBERTa's. Choose a different model, or if it was trained"
            f" with this file, write its class to {TOKENIZER_CONFIG}:"
            f' "tokenizer_class": "{_class_of(folder, kind, in_json, class_)}"'
        )


def _class_of(folder: str, kind: str, in_json: TokenizerJson | None, class_: Any) -> str:
    if kind == FAIRSEQ_PIECES:
        if in_json:
            return class_of([*in_json.vocab], os.path.join(folder, TOKENIZER_FILE))
        names = (os.path.join(folder, x) for x in ("config.json", "bert_config.json"))
        kinds = [read_checked(name).get("model_type") for name in names]
        if "camembert" in (*kinds, str(class_)[:9].lower()):
            return CAMEMBERT
        if not any((*kinds, class_)):
            logging.warning(
                "%s has no config.json or tokenizer_config.json that names the tokenizer of %s: its"
                " ids are taken to be XLM-RoBERTa's. Copy the model's files, if it is a CamemBERT",
                *(folder or ".", kind),
            )
    return f"{_CLASSES[kind][0]}Tokenizer"


def _switches(config: Mapping[str, Any], kind: str, path: str) -> dict[str, Any]:
    """Returns the switches of a `tokenizer_config.json` that are not null."""
    found = {}
    for name in _SWITCHES[kind]:
        value = config.get(name)
        if value is None:
            continue
        is_right = type(value) is int and value > 0 if name == _NUMBER else type(value) is bool
        if not is_right:
            rule = "a whole number above 0" if name == _NUMBER else "true or false"
            raise UserError(f"{path}: {name} must be {rule}; received {quoted(value)}")
        found[name] = value
    return found


def _check_same(
    config: Mapping[str, Any], in_file: Mapping[str, Any], has_defaults: bool, folder: str
) -> None:
    # `has_defaults`: the tokenizer's class does not read switches from `tokenizer.json`.
    for name, value in in_file.items():
        stated, source = config.get(name), TOKENIZER_CONFIG
        if name == "strip_accents" and value is None:
            value = in_file[DO_LOWER_CASE]
        if has_defaults and (stated is None or name in _NO_ARGUMENTS):
            stated, source = _CLASS_DEFAULTS[name], "the class of its tokenizer"
            if name == "strip_accents":
                stated = config.get(DO_LOWER_CASE) is not False
        if stated is not None and stated != value:
            raise UserError(
                f"{folder}: {TOKENIZER_FILE} and {source} must say the same; {name} is"
                f" {_shown(value):.40} in the former and {_shown(stated)} in the latter. Correct"
                f" the one that the model was not trained with. If it was trained with"
                f' {TOKENIZER_FILE}, write "tokenizer_class": "{_GENERIC_CLASSES[0]}" to'
                f" {TOKENIZER_CONFIG}"
            )


def _tokens(
    config: Mapping[str, Any],
    tokens_map: Mapping[str, Any],
    ids: Mapping[str, Any],
    in_json: list[Any],
    kind: str,
    hugging_face: bool,
    folder: str,
) -> list[AddedToken]:
    """Returns the added tokens of all files; a later file overrides an earlier one."""
    found = {x: AddedToken(x) for x in SPECIAL_TOKENS[kind].values()} if hugging_face else {}
    # With lstrip, as in RoBERTa's released files; transformers 5 forgets this flag.
    found |= {MASK.content: MASK} if kind in (BYTE_PAIRS, FAIRSEQ_PIECES) else {}
    for content, i in ids.items():
        options = {"content": content, "id": i, "normalized": True}
        found[content] = _token(options, os.path.join(folder, _ADDED_IDS))
    for name, source in ((_TOKENS_MAP, tokens_map), (TOKENIZER_CONFIG, config)):
        path = os.path.join(folder, name)
        for key, token in SPECIAL_TOKENS[kind].items():
            value = source.get(f"{key}_token")
            if value is None:
                continue
            added = _token(value, path)
            if added.content != token:
                raise UserError(
                    f"{path}: {key}_token must be {token}; received {quoted(added.content)}: {ONLY}"
                )
            if isinstance(value, dict) or hugging_face:
                found[token] = added
        # A dictionary is read first: it names special tokens.
        for key in sorted(_MORE_TOKENS, key=lambda x: not isinstance(source.get(x), dict)):
            values = source.get(key) or []
            values = list(values.values()) if isinstance(values, dict) else values
            for value in values if isinstance(values, list) else [values]:
                added = _token(value, path)
                known = found.get(added.content, added)
                # For these tokens transformers 5 takes the flags of added_tokens.json.
                stays = source is tokens_map and key == MORE_TOKENS and added.content in ids
                if not stays:
                    found[added.content] = dataclasses.replace(added, token_id=known.token_id)
    decoder = config.get(ADDED_TOKENS) or {}
    path = os.path.join(folder, TOKENIZER_CONFIG)
    for i, options in decoder.items() if isinstance(decoder, dict) else [("", decoder)]:
        known = options if isinstance(options, dict) else {}
        added = _token({**known, "id": int(i) if i.isdecimal() else i}, path)
        found[added.content] = added
    for options in in_json:
        added = _token(options, os.path.join(folder, TOKENIZER_FILE))
        found[added.content] = added
    return list(found.values())


def _check_more_tokens(
    config: Mapping[str, Any],
    tokens_map: Mapping[str, Any],
    tokens: list[AddedToken],
    only_model: bool,
    folder: str,
) -> None:
    # `only_model`: the vocabulary is a SentencePiece model without a `tokenizer.json`.
    old, new = _MORE_TOKENS
    sources = (config, new), (tokens_map, new), (config, old), (tokens_map, old)
    values = (source.get(key) for source, key in sources)
    lists = [value if isinstance(value, list) else [] for value in values]
    counts = lists[0] + lists[1]
    ignored = lists[2] if counts else []
    counts += lists[2] if not ignored else []
    ignored = ignored + lists[3] if counts or only_model else ignored
    for token in tokens:
        if token.content in ignored and token.content not in counts and token.token_id is None:
            raise UserError(
                f"{folder}: transformers ignores the token {quoted(token.content)}: it does not"
                f" read {old} beside {new}, nor {old} of {_TOKENS_MAP} beside either of them in"
                f" {TOKENIZER_CONFIG} or beside a SentencePiece model. Delete the token, or move it"
                f" to {new} in {TOKENIZER_CONFIG}"
            )


def _token(value: Any, path: str) -> AddedToken:
    options = {"content": value} if isinstance(value, str) else value
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    if (
        not isinstance(options, dict)
        or not isinstance(options.get("content"), str)
        or not all(isinstance(options.get(flag, False), bool) for flag in flags)
        or type(options.get("id", 0)) is not int
        or not 0 <= options.get("id", 0) < 2**31
        or not options.keys() <= {"content", "id", "special", "__type", *flags}
    ):
        raise UserError(
            f"{path}: an added token must have a content, and may have an id and"
            f" {', '.join(flags)}, true or false, and nothing else; received {quoted(value)}"
        )
    check_text([options["content"]], path)
    known = {flag: options[flag] for flag in flags if flag in options}
    return AddedToken(options["content"], options.get("id"), **known)


def _shown(value: Any) -> str:
    return as_given(json.dumps(value))
