"""Converts between Hugging Face's config.json and bert_config.json with labels.txt."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from bert_tf.errors import UserError, first_of, listed, quoted
from bert_tf.files.model_notes import check_label, is_tag
from bert_tf.files.whole_files import JsonKeys, Needed, read_json
from bert_tf.model.configuration import MULTI_LABEL, BertConfig
from bert_tf.model.family import CamembertConfig, XlmRobertaConfig
from bert_tf.model_folder.hugging_face import albert, bert, distilbert, electra, roberta
from bert_tf.model_folder.hugging_face.vector_settings import FUNCTION

# model_type -> module.
FAMILY: dict[str, Any] = {
    "bert": bert,
    "albert": albert,
    "distilbert": distilbert,
    "electra": electra,
    "roberta": roberta,
    "xlm-roberta": roberta.renamed(XlmRobertaConfig, "XLMRoberta"),
    "camembert": roberta.renamed(CamembertConfig, "Camembert"),
}
# Hugging Face's names of activations -> ours, if they differ.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
}
# Keys of `config.json` that all kinds of models share. Each module adds its own.
_NEEDED = {
    "position_embedding_type": Needed(("absolute",)),
    "is_decoder": Needed((False, None)),
    "is_encoder_decoder": Needed((False, None)),
    "add_cross_attention": Needed((False, None)),
    "pruned_heads": Needed(({}, None)),
    "quantization_config": Needed(
        (None,), "quantized weights are not supported. Choose the model with floating-point weights"
    ),
    "auto_map": Needed(
        (None, {}),
        "code that comes with a model is not run. Choose a different model or, if this one does"
        " not need the code, delete the key",
    ),
    # Cross-encoders of sentence-transformers, up to version 3.
    "sbert_ce_default_activation_function": FUNCTION,
}
_HARMLESS = {
    # The library's version, and the history of the file.
    *("_name_or_path", "_num_labels", "_commit_hash", "transformers_version", "dtype"),
    *("torch_dtype", "torchscript", "finetuning_task", "language", "name", "directionality"),
    # Which outputs are returned, and how much memory and time they take.
    *("output_attentions", "output_hidden_states", "output_past", "return_dict", "use_cache"),
    *("chunk_size_feed_forward", "gradient_checkpointing", "use_bfloat16", "xla_device"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_autoset"),
    *("_attn_implementation_internal", "_experts_implementation_internal"),
    *("base_model_tp_plan", "base_model_pp_plan", "base_model_fsdp_plan"),
    # Training. `label2id` is the inverse of `id2label`, whose length the weights show.
    *("classifier_dropout", "initializer_factor", "label2id", "num_labels", "tf_legacy_loss"),
    # Ids that the vocabulary determines. The model's code only reads RoBERTa's pad_token_id.
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
    # Pipelines, and text generation, which no supported model does.
    *("custom_pipelines", "function_to_apply", "prefix", "task_specific_params"),
    *("cross_attention_hidden_size", "tie_encoder_decoder", "max_length", "min_length"),
    *("do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty"),
    *("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty"),
    *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids"),
    *("num_return_sequences", "output_scores", "return_dict_in_generate"),
    *("forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values"),
    *("exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"),
}
_PROBLEM_TYPES = ("single_label_classification", MULTI_LABEL, "regression")


def read_config(path: str) -> dict[str, Any]:
    config = read_json(path, path, "it must describe the model in its folder")
    if not isinstance(config, dict):
        raise UserError(f"{path} must hold a dictionary; received {quoted(config)}")
    model_type = config.setdefault("model_type", "bert")
    if not isinstance(model_type, str) or model_type not in FAMILY:
        why = ", whose layers normalize their input" if model_type == "xlm-roberta-xl" else ""
        raise UserError(
            f"{path}: model_type must be one of {listed(sorted(FAMILY))}; received"
            f" {quoted(model_type)}{why}"
        )
    _keys(FAMILY[model_type]).check(config, path)
    cross_encoder = config.get("sentence_transformers")  # since version 4
    if cross_encoder is not None:
        key = f"{path}: sentence_transformers"
        if not isinstance(cross_encoder, dict):
            raise UserError(f"{key} must be a dictionary, not {quoted(cross_encoder)}")
        keys = JsonKeys({"version"}, {"activation_fn": FUNCTION})
        keys.check(cross_encoder, key)
    return config


def _keys(module: ModuleType) -> JsonKeys:
    used = {"architectures", "id2label", "model_type", "tie_word_embeddings"}
    used |= {"problem_type", "sentence_transformers", "threshold"}
    used |= module.KEYS if module is distilbert else module.CONFIG.known_keys()
    classes = [f"{name}Tokenizer{end}" for name in module.TOKENIZERS for end in ("", "Fast")]
    tokenizer = Needed(
        (*classes, None),
        f"this kind of model needs one of {listed(classes)}. Choose a different model, or correct"
        " the key if the vocabulary fits one of these",
    )
    needed = {**_NEEDED, "tokenizer_class": tokenizer}
    needed |= module.NEEDED if module is distilbert else {}
    return JsonKeys(used, needed, {*_HARMLESS, *module.HARMLESS_KEYS})


def module_of(config: BertConfig) -> ModuleType:
    return next(module for module in FAMILY.values() if module.CONFIG is type(config))


def to_bert_config(config: Mapping[str, Any], path: str) -> BertConfig:
    """Converts a `config.json` from `read_config`."""
    module = FAMILY[config["model_type"]]
    known = module.to_ours(config, path)
    for name in ("problem_type", "threshold"):  # see the functions of these names
        known.pop(name, None)
    hidden_act = known["hidden_act"]
    try:
        if not isinstance(hidden_act, str):
            raise UserError(f"hidden_act must be a string; it is {quoted(hidden_act)}")
        known["hidden_act"] = _ACTIVATIONS.get(hidden_act.lower(), hidden_act)
        return module.CONFIG.from_dict(known)
    except UserError as error:
        message = str(error)
        if module is distilbert:
            message = distilbert.with_their_keys(message)
        raise UserError(f"{path}: {message}") from error


def problem_type(config: Mapping[str, Any], num_outputs: int, path: str) -> str | None:
    """Returns the `problem_type` of a text classifier: `MULTI_LABEL`, or None."""
    value = config.get("problem_type")
    if value not in (*_PROBLEM_TYPES, None):
        raise UserError(
            f"{path}: problem_type must be one of {listed(_PROBLEM_TYPES)}, or null; it is"
            f" {quoted(value)}. Correct it: probabilities depend on it"
        )
    if value not in (MULTI_LABEL, None) and (num_outputs == 1) != (value == "regression"):
        raise UserError(
            f"{path}: problem_type is {quoted(value)}, but the classifier has {num_outputs}"
            " outputs; a regression must have one, and a single-label classification several."
            " Correct problem_type, or choose a different model"
        )
    return MULTI_LABEL if value == MULTI_LABEL else None


def threshold(config: Mapping[str, Any], path: str) -> float:
    """Returns the probability at which a text gets a class; only this library has the key."""
    value = config.get("threshold", BertConfig.threshold)
    if not isinstance(value, int | float) or not 0 < value < 1:  # True is 1
        raise UserError(
            f"{path}: threshold must be above 0 and below 1; it is {quoted(value)}. Correct it: it"
            " decides which classes a text has"
        )
    return float(value)


def task_of(config: Mapping[str, Any]) -> str:
    """Returns the end of the architecture's name, like "ForTokenClassification"; "" if unknown."""
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else ""
    prefix = FAMILY[config["model_type"]].CLASS_NAME
    return name.removeprefix(prefix) if isinstance(name, str) else ""


def class_names(config: Mapping[str, Any], count: int, path: str) -> list[str] | None:
    """Returns the names of a classifier's classes in the order of the logits; [] for a regression.

    None if unknown: without `id2label`, or with Hugging Face's default names.
    """
    names = config.get("id2label")
    if names is None:
        return [] if config.get("problem_type") == "regression" else None
    keys = [str(i) for i in range(count)]
    if (
        not isinstance(names, dict)
        or names.keys() != set(keys)
        or not all(isinstance(name, str) and name.splitlines() == [name] for name in names.values())
        or len(set(names.values())) < count
    ):
        raise UserError(
            f"{path}: id2label must name each of the classifier's {count} outputs: the keys are"
            f" the numbers from 0 to {count - 1}, and the names are different strings of one line;"
            f" received {quoted(names)}. Correct id2label, or remove it from the file: the classes"
            " then have no names"
        )
    labels = [names[key] for key in keys]
    for label in labels:
        check_label(label, f"{path}: id2label")
    if count == 1 and config.get("problem_type") != MULTI_LABEL:
        return []
    return None if labels == default_names(count) else labels


def default_names(count: int) -> list[str]:
    return [f"LABEL_{i}" for i in range(count)]


def is_tagger(shapes: Mapping[str, Sequence[int]], labels: Sequence[str] | None) -> bool:
    """Returns whether a checkpoint's classifier classifies words; for `labels` see `class_names`.

    A text classifier has the same variables and a pooler, except in ELECTRA. With a pooler, or in
    an ELECTRA, a model is a tagger if its classes are tags.
    """
    if "output_bias" not in shapes or labels == []:
        return False
    is_electra = "electra/embeddings/word_embeddings" in shapes  # never has a pooler
    if "bert/pooler/dense/kernel" not in shapes and not is_electra:
        return True
    return bool(labels) and "O" in labels and all(is_tag(label, "BIES") for label in labels)


def task_to_write(shapes: Mapping[str, Sequence[int]], labels: Sequence[str] | None) -> str:
    """Returns the end of the architecture's name for a checkpoint; arguments as for `is_tagger`."""
    tasks = {
        "ForQuestionAnswering": "cls/squad/output_weights" in shapes,
        "ForTokenClassification": is_tagger(shapes, labels),
        "ForSequenceClassification": "output_bias" in shapes,
        "ForMultipleChoice": shapes.get("output_weights", ())[:1] == (1,),  # one score, no bias
        "ForPreTraining": "cls/seq_relationship/output_weights" in shapes
        or f"{electra.DISCRIMINATOR}dense/kernel" in shapes,
        "ForMaskedLM": not shapes.keys().isdisjoint(
            ("cls/predictions/output_bias", "generator_predictions/output_bias")
        ),
    }
    return next((task for task, is_it in tasks.items() if is_it), "Model")


def to_config(
    bert_config: BertConfig, task: str, labels: Sequence[str] | None, num_outputs: int
) -> dict[str, Any]:
    """Makes a `config.json`; `num_outputs` is 0 for a model without a classifier."""
    labels = labels or []
    if labels and num_outputs != len(labels):
        raise UserError(
            f"labels.txt must name each of the classifier's {num_outputs} outputs; it names"
            f" {len(labels)}: {first_of(labels)}. Correct the file, or remove it: the classes then"
            " have no names"
        )
    module = module_of(bert_config)
    values = bert_config.to_dict()
    hidden_act = values["hidden_act"]
    values["hidden_act"] = {"gelu": "gelu_new", "gelu_erf": "gelu"}.get(hidden_act, hidden_act)
    known = _keys(module).known
    config = {name: x for name, x in module.to_theirs(values).items() if name in known}
    config["architectures"] = [module.CLASS_NAME + task]
    for name in ("problem_type", "threshold"):
        config.pop(name, None)
    if task == "ForSequenceClassification" and bert_config.is_multi_label:
        config["problem_type"] = MULTI_LABEL
        if bert_config.threshold != BertConfig.threshold:
            config["threshold"] = bert_config.threshold
    elif task == "ForSequenceClassification" and num_outputs == 1:
        config["problem_type"] = "regression"
    if num_outputs:
        labels = labels or default_names(num_outputs)
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    return config
