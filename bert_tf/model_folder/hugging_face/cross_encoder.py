"""Reads and writes the score function of a sentence-transformers cross-encoder."""

import os
from collections.abc import Mapping
from typing import Any

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import JsonKeys, Needed, read_checked, write_json
from bert_tf.start import lazy_tensorflow as tf

MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"
# `activation_fn` in SETTINGS_FILE and in config.json's `sentence_transformers`; until version 3,
# `sbert_ce_default_activation_function` in config.json.
FUNCTION = Needed(
    (IDENTITY, SIGMOID, None),
    f"rank knows only this function and {SIGMOID}. Delete the key to load the model; its scores are"
    " then sigmoids",
)
_KIND = "CrossEncoder"
_NO_PROMPT = Needed((None,), "prompts of cross-encoders are not supported. Set it to null")
_KEYS = JsonKeys(
    used={"activation_fn"},
    needed={
        "model_type": Needed((_KIND,)),
        "activation_fn": FUNCTION,
        "default_prompt_name": _NO_PROMPT,
    },
    harmless={"__version__", "prompts", "requirements"},
)
# Values in the file of the Transformer, such as sentence_bert_config.json.
TRANSFORMER_VALUES = {
    "transformer_task": Needed(("sequence-classification",)),
    "module_output_name": Needed(("scores",)),
    "modality_config": Needed(({"text": {"method": "forward", "method_output_name": "logits"}},)),
    "do_lower_case": Needed((False, None)),
}


def is_cross_encoder(folder: str) -> bool:
    """Returns whether a folder has the settings file of a cross-encoder (version 5 and later)."""
    return read_checked(os.path.join(folder, SETTINGS_FILE)).get("model_type") == _KIND


def read_score_function(folder: str, config: Mapping[str, Any] | None, has_classes: bool) -> str:
    """Returns the function, IDENTITY or SIGMOID, that turns a single output into a score.

    The default is SIGMOID in Hugging Face's format, as in the class CrossEncoder. In a checkpoint
    (`config` is None), which was trained to predict numbers, it is IDENTITY.
    """
    path = os.path.join(folder, SETTINGS_FILE)
    own = read_checked(path, _KEYS) if is_cross_encoder(folder) else {}
    config = config or {}
    named = (
        own.get("activation_fn")
        or (config.get("sentence_transformers") or {}).get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
    )
    if has_classes and named == SIGMOID:
        place = path if own.get("activation_fn") else os.path.join(folder, "config.json")
        raise UserError(
            f"{place} names the function {quoted(named)} for the outputs of the model, but it has"
            " several classes, whose probabilities are a softmax. Delete the key to load the model"
        )
    return named or (SIGMOID if config else IDENTITY)


def write_score_function(folder: str, function: str) -> None:
    """Writes the score function, except the identity, into the folder of a checkpoint."""
    # An embedding model's settings use the same file, and take precedence.
    if function != IDENTITY and not tf.io.gfile.exists(os.path.join(folder, MODULES_FILE)):
        content = {"model_type": _KIND, "activation_fn": function}
        write_json(os.path.join(folder, SETTINGS_FILE), content)
