"""Decides whether a text can have several labels, and the least probability of a predicted label.

Both are in the model's `bert_config.json`: `problem_type` and `threshold`.
"""

import copy
import json
import os

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.storage import first_file
from bert_tf.files.whole_files import read_text
from bert_tf.model.configuration import MULTI_LABEL, BertConfig
from bert_tf.model.family import CONFIG_FILES, read_config
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.model_folder.writer import CONFIG_FILE, write_config
from bert_tf.tasks.classification.settings import ClassifierSettings

# Settings that do not work with several labels, and why.
_ONE_LABEL = {
    "class_weights": "with several labels it is unclear which class's weight counts",
    "temperature_scaling": "with several labels each has its own sigmoid, and --threshold decides",
}


def configured(config: BertConfig, settings: ClassifierSettings, multi_label: bool) -> BertConfig:
    """Returns the configuration of a run's model; with `multi_label` examples have several labels.

    A run that does not train a new head follows the `bert_config.json` beside the checkpoint, even
    if --bert_config_file is the pre-trained model's.
    """
    path = _learned_config(settings)
    learned_several = bool(path) and _has_several_labels(path)
    if path and settings.do_train and learned_several != multi_label:
        has = "several labels for each text" if learned_several else "one label for each text"
        raise UserError(
            f"The model in --output_dir was trained with {has}; to go on,"
            f" {'set' if learned_several else 'leave out'} --multi_label. Or choose another"
            " --output_dir to train into"
        )
    several = multi_label or config.is_multi_label or learned_several
    _check(settings, several, multi_label)
    if not several:
        return config
    source = read_config(path) if path and learned_several else config
    threshold = source.threshold if settings.threshold is None else settings.threshold
    chosen = settings.threshold is not None or settings.find_threshold
    if settings.do_train and learned_several and threshold != BertConfig.threshold and not chosen:
        logging.warning(
            "threshold is %s in %s, found or given for the weights that training continues from."
            " To find it for the new weights, add --find_threshold",
            *(threshold, path),
        )
    config = copy.copy(config)
    config.problem_type, config.threshold = MULTI_LABEL, threshold
    return config


def _check(settings: ClassifierSettings, several: bool, multi_label: bool) -> None:
    for name in ("threshold", "find_threshold"):
        if getattr(settings, name) and not several:
            raise UserError(
                f"--{name} is for texts with several labels (--multi_label): with one label,"
                f" the most likely class is the prediction. Leave --{name} out"
            )
    if several and not multi_label and (settings.do_train or settings.do_eval):
        raise UserError(
            f"problem_type in bert_config.json is {MULTI_LABEL}: a text can have several labels,"
            " but the examples have one each. Set --multi_label with --task_name=table. To train a"
            " model with one label for each text, delete problem_type"
        )
    for name, reason in _ONE_LABEL.items():
        if getattr(settings, name) and several:
            raise UserError(
                f"--{name} is for examples with one label; {reason}. Leave out --{name} or"
                " --multi_label"
            )


def _learned_config(settings: ClassifierSettings) -> str | None:
    prefix = CheckpointDirectory(settings.output_dir).latest()
    if prefix:
        files = ModelFiles(prefix, only_checkpoint=True)
    elif settings.init_checkpoint and not settings.do_train:
        files = ModelFiles.of_flag(settings.init_checkpoint)
    else:
        return None
    # Hugging Face's config.json is in the run's configuration already.
    return None if files.is_hugging_face else first_file(files.home, CONFIG_FILES)


def _has_several_labels(path: str) -> bool:
    """Reads from a `bert_config.json` whether texts have several labels; False if it is damaged."""
    try:
        values = json.loads(read_text(path, path))
    except (UserError, ValueError):
        return False
    return isinstance(values, dict) and values.get("problem_type") == MULTI_LABEL


def keep_threshold(settings: ClassifierSettings, threshold: float) -> None:
    """Writes a threshold that was found without training to --output_dir's `bert_config.json`."""
    path = os.path.join(settings.output_dir, CONFIG_FILE)
    if not CheckpointDirectory(settings.output_dir).latest() or not tf.io.gfile.exists(path):
        logging.warning(
            "The model is not in --output_dir, so the threshold is not kept with it; to predict,"
            " give --threshold=%s",
            threshold,
        )
        return
    config = read_config(path)
    config.threshold = threshold
    write_config(settings.output_dir, config)
    logging.info("Wrote the threshold %.4g to %s", threshold, path)
