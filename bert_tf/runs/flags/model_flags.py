"""Takes flags that are not given from the folder of --init_checkpoint."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_tf.errors import UserError
from bert_tf.runs.flags.setting_fields import Settings, flags_of, rule_of

if TYPE_CHECKING:
    from bert_tf.model.configuration import BertConfig

CONFIG, VOCABULARY, CASING, LENGTH = OF_MODEL = (
    "bert_config_file",
    "vocab_file",
    "do_lower_case",
    "max_seq_length",
)


def check_model_named(settings: Collection[Settings], values: Mapping[str, Any]) -> None:
    """Raises UserError if no flag can name the model; arguments as for `follow_model`."""
    output_dir = values.get("output_dir") or ""
    needed = _asked(settings, values)[-1]
    may_resume = "://" in output_dir or os.path.isdir(output_dir)
    if needed and not values.get("init_checkpoint") and not may_resume:
        raise _no_model(needed)


def _asked(
    settings: Collection[Settings], values: Mapping[str, Any]
) -> tuple[set[str], list[str], list[str]]:
    """Returns the flags that a folder may decide, the files to look for, and those required."""
    follows = {x.name for one in settings for x in flags_of(type(one)) if rule_of(x).of_model}
    asked = [name for name in (CONFIG, VOCABULARY) if name in follows and not values[name]]
    if any(getattr(one, "needs_vocabulary", False) for one in settings):
        return follows, asked, asked
    if CONFIG not in asked:
        return follows, [], []  # the original pre-trains without a vocabulary
    return follows, asked, [CONFIG]


def _no_model(needed: Collection[str]) -> UserError:
    return UserError(
        "--init_checkpoint=FOLDER must be given, the folder of a model with its configuration and"
        f" vocabulary; or, without such a model, {' and '.join(f'--{name}' for name in needed)}"
    )


def follow_model(
    settings: Collection[Settings], values: Mapping[str, Any], given: Collection[str]
) -> tuple[BertConfig | None, dict[str, Any]]:
    """Returns a model's configuration, and the values of flags that its folder decides.

    The folder is --init_checkpoint's, or without that flag --output_dir's if it has a checkpoint.
    It decides the flags in `OF_MODEL` that are not `given` on the command line and that the
    settings let it decide (`FieldRule.of_model`); casing and length only together with the
    vocabulary. The configuration is None if the program does not take --bert_config_file.
    """
    # Here, because they import TensorFlow, and `check_model_named` need not wait for that.
    from bert_tf.files.checkpoint_directory import CheckpointDirectory
    from bert_tf.model.family import read_config
    from bert_tf.model_folder.reader import ModelFiles

    follows, asked, needed = _asked(settings, values)
    config = read_config(values[CONFIG]) if values.get(CONFIG) else None
    place, flag = values.get("init_checkpoint"), "init_checkpoint"
    if not place and asked and CheckpointDirectory(values.get("output_dir") or "").latest():
        place, flag = values["output_dir"], "output_dir"
    if needed and not place:
        raise _no_model(needed)
    if not asked or not place:
        return config, {}
    files = ModelFiles.of_flag(place, flag)
    if config and not files.is_hugging_face:
        files = ModelFiles.of_flag(place, flag, values[CONFIG])
    found: dict[str, Any] = {}
    if CONFIG in asked:
        config, found[CONFIG] = files.config, files.config_file
    if VOCABULARY in asked and (VOCABULARY in needed or files.vocab_file):
        tokenizer = files.tokenizer()
        decided = {
            VOCABULARY: files.vocab_file,
            CASING: tokenizer.do_lower_case,
            LENGTH: files.usual_length(values.get(LENGTH)),
        }
        told = {*given} - {VOCABULARY}  # an empty --vocab_file= is ignored
        found |= {name: decided[name] for name in (follows & decided.keys()) - told}
    taken = [f"--{name}={found[name]}" for name in OF_MODEL if name in found]
    logging.info("From --%s=%s: %s", flag, place, " ".join(taken))
    return config, found
