"""Checks that a vocabulary is the one that a checkpoint was trained with."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from bert_tf.errors import UserError, quoted
from bert_tf.files import checkpoints, storage, weight_files
from bert_tf.files.paths import real_path
from bert_tf.text.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.tokenizer_settings import DO_LOWER_CASE
from bert_tf.text.tokenizers import VOCABULARY_FILES, WORD_PIECES, VocabularySource, vocabulary_name

_PADDING = ("<pad>", "[PAD]")
UNUSED_TOKEN = re.compile(r"\[unused\d+\]")  # a reserved line, free for new words


def check_model_vocabulary(
    vocab: dict[str, int],
    vocab_file: str,
    checkpoint: str,
    flag: str = "init_checkpoint",
    hugging_face: bool = False,
) -> None:
    """Checks that tokens have the ids that they had when the checkpoint was trained.

    The vocabulary in the checkpoint's folder, if there is one, must be of the same kind and have
    the same tokens and settings. A `vocab.txt` may replace [unusedN] lines and add lines.
    """
    source, folder = VocabularySource(vocab_file, hugging_face), checkpoints.folder_of(checkpoint)
    name = source.kind
    same_kind = [other for other in VOCABULARY_FILES if vocabulary_name(other) == name]
    own = storage.first_file(folder, [TOKENIZER_FILE])
    if own and real_path(vocab_file) == real_path(own):
        return
    model_file = storage.first_file(folder, same_kind)
    if model_file is None and (other_kind := storage.first_file(folder, VOCABULARY_FILES)):
        raise UserError(
            f"--vocab_file={vocab_file} must be the vocabulary of --{flag}, {other_kind}, but is a"
            f" different kind of vocabulary. Give --vocab_file={other_kind}"
        )
    if model_file is None or real_path(vocab_file) == real_path(model_file):
        return
    model = VocabularySource(model_file, weight_files.is_hugging_face(folder))
    expected = model.vocab
    token = first_difference(vocab, expected)
    if token is None:
        return _check_settings(source, model, flag)
    number = expected[token]
    if name != WORD_PIECES:
        raise UserError(
            f"--vocab_file={vocab_file} must have the pieces of {model_file}, the"
            f" vocabulary of --{flag}: {quoted(token)} has the id {number} there, but"
            f" {vocab.get(token, 'none')} in --vocab_file. Give --vocab_file={model_file}"
        )
    now = f"in line {vocab[token] + 1}" if token in vocab else "missing"
    raise UserError(
        f"--vocab_file={vocab_file} must have every token in the same line as the"
        f" vocabulary of --{flag}: {quoted(token)} is in line {number + 1} of"
        f" {model_file}, but {now} in --vocab_file. Give --vocab_file={model_file}; you may"
        " replace its [unused...] lines with your own words, or add words at its end"
    )


def _check_settings(source: VocabularySource, model: VocabularySource, flag: str) -> None:
    ours, theirs = (_settings(x) for x in (source, model))
    for one, other in ((ours, theirs), (theirs, ours)):
        if one["strip_accents"] is None and other["strip_accents"] is not None:
            one["strip_accents"] = one[DO_LOWER_CASE]  # the meaning of None
    for name, value in theirs.items():
        if name == DO_LOWER_CASE and None in (value, ours[name]):
            continue  # not recorded
        if ours[name] != value:
            raise UserError(
                f"--vocab_file={source.path} must have the tokenizer of --{flag}: {name} is"
                f" {json.dumps(value)} beside {model.path}, but {json.dumps(ours[name])} beside"
                f" --vocab_file. Give --vocab_file={model.path}, or correct the files of the"
                " tokenizer in the folder that is wrong"
            )


def _settings(source: VocabularySource) -> dict[str, Any]:
    """Returns the settings in a canonical form, for comparison."""
    settings = source.settings.with_ids(source.vocab, source.path)
    values = dataclasses.asdict(settings)
    casing = values.pop("recorded_casing")
    added = sorted(values.pop("added_tokens"), key=lambda token: token["content"])
    return {
        "tokenizer_class": settings.tokenizer_class,  # first: other settings follow from it
        DO_LOWER_CASE: casing,
        **values,
        "max_input_chars_per_word": settings.longest_word,
        "added_tokens": added,
    }


def first_difference(vocab: Mapping[str, int], expected: Mapping[str, int]) -> str | None:
    """Returns a token whose id in `vocab` is not the expected one, ignoring [unusedN]."""
    for token, number in expected.items():
        if vocab.get(token) != number and not UNUSED_TOKEN.fullmatch(token):
            return token
    return None


def vocabulary_digest(vocab: Mapping[str, int]) -> str:
    """Returns a digest of a vocabulary's ids; it does not depend on the kind of file."""
    text = json.dumps(sorted(vocab.items()))  # keep this form: manifests store its digest
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def check_padding(
    vocab: Mapping[str, int], pad_token_id: int | None, place: str, config_place: str
) -> None:
    """Raises UserError if the padding token's id is not `pad_token_id`, which gets no position."""
    for token in _PADDING:
        if pad_token_id is not None and vocab.get(token, pad_token_id) != pad_token_id:
            raise UserError(
                f"{place} must be the vocabulary that the model was trained with: {token} has the"
                f" id {vocab[token]}, but pad_token_id of {config_place} is {pad_token_id}, and the"
                " token of that id would have no position. Correct whichever is wrong"
            )
