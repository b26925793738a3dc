"""One name for a model: what the folder of --init_checkpoint says where no flag does."""

from collections.abc import Collection, Mapping
from typing import Any

from absl import logging

from bert_tf.errors import UserError
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import read_config
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.runs.flags.setting_fields import Settings, flags_of, rule_of

CONFIG, VOCABULARY, CASING, LENGTH = OF_MODEL = (
    "bert_config_file",
    "vocab_file",
    "do_lower_case",
    "max_seq_length",
)


def follow_model(
    settings: Collection[Settings], values: Mapping[str, Any], given: Collection[str]
) -> tuple[BertConfig | None, dict[str, Any]]:
    """Returns a model's configuration, and the values of flags that its folder decides.

    The folder is --init_checkpoint's, or without that flag --output_dir's if it has a checkpoint.
    It decides the flags in `OF_MODEL` that are not given and that the settings let it decide
    (`FieldRule.of_model`); casing and length only together with the vocabulary.

    Args:
        settings: the program's, as the flags say.
        values: the values of all flags, by name.
        given: names of the flags on the command line.

    Returns:
        None for the configuration if the program takes no --bert_config_file.
    """
    follows = {x.name for one in settings for x in flags_of(type(one)) if rule_of(x).of_model}
    asked = [name for name in (CONFIG, VOCABULARY) if name in follows and not values[name]]
    needed = [CONFIG]
    if any(getattr(one, "needs_vocabulary", False) for one in settings):
        needed.append(VOCABULARY)
    elif CONFIG not in asked:
        asked = []  # the original pre-trains without a vocabulary
    config = read_config(values[CONFIG]) if values.get(CONFIG) else None
    place, flag = values.get("init_checkpoint"), "init_checkpoint"
    if not place and asked and CheckpointDirectory(values.get("output_dir") or "").latest():
        place, flag = values["output_dir"], "output_dir"
    missing = [f"--{name}" for name in asked if name in needed]
    if missing and not place:
        raise UserError(
            "--init_checkpoint=FOLDER must be given, the folder of a model with its configuration"
            f" and vocabulary; or, without such a model, {' and '.join(missing)}"
        )
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
        told = {*given} - {VOCABULARY}  # --vocab_file= with no value tells nothing
        found |= {name: decided[name] for name in (follows & decided.keys()) - told}
    taken = [f"--{name}={found[name]}" for name in OF_MODEL if name in found]
    logging.info("From --%s=%s: %s", flag, place, " ".join(taken))
    return config, found
