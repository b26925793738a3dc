"""A small model with each head, and what the programs compute with it."""

import functools
import json
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from bert_tf.pretrained.build import build_model
from bert_tf.pretrained.folder import ModelFolder, read_folder
from bert_tf.tasks.extraction.model import FeaturesModel
from tests.support.model_folders import CONFIG, HEADS, random_weights, write_model

LABELS = {
    "classification": ["no", "maybe", "yes"],
    "regression": [],
    "tagging": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
}
_WEIGHTS = {"classification": "classifier", "regression": "regressor"}
_WEIGHTS |= {"tagging": "tagger", "squad": "squad"}


def write_head(folder: Path, head: str, num_layers: int = 2) -> str:
    """Writes a folder with a model that has a head (see `export.signatures.HEADS`)."""
    names = [_WEIGHTS[head]] if head in _WEIGHTS else []
    weights = random_weights(*names, seed=7)
    if head == "multiple_choice":
        weights["output_weights"] = np.random.default_rng(8).normal(size=[1, 12]).astype("float32")
    if head != "masked_lm":
        kept = {name for key in names for name in HEADS[key]} | {"output_weights"}
        weights = {k: v for k, v in weights.items() if k.startswith("bert/") or k in kept}
    layers = tuple(f"bert/encoder/layer_{i}/" for i in range(num_layers, 2))
    weights = {k: v for k, v in weights.items() if not k.startswith(layers)}
    path = write_model(folder, weights, LABELS.get(head))
    config = CONFIG | {"num_hidden_layers": num_layers}
    if head == "encoder":  # the other form, for which converters have other operations
        config["hidden_act"] = "gelu_erf"
    (folder / "bert_config.json").write_text(json.dumps(config))
    return path


@functools.cache
def _model(head: str, path: str) -> keras.Model:
    return build_model("" if head == "encoder" else head, read_folder(path))


def program_outputs(head: str, folder: ModelFolder, inputs) -> dict[str, np.ndarray]:
    """Returns what programs compute for a head, by the names of an exported model's outputs."""
    model = _model(head, folder.path)
    features = {name: tf.constant(value) for name, value in inputs.items()}
    batch = tf.zeros([len(inputs["input_ids"])], tf.int32)
    config = folder.config
    if head == "encoder":
        names = ("token_vectors", "mean_vector", "pooled_vector")
        found = FeaturesModel(config, outputs=names).predictions(model(features), features)
        outputs = {
            "sequence_output": found["token_vectors"][:, :, 0],
            "vectors": found["mean_vector"][:, 0],
            "pooled_output": found["pooled_vector"],
        }
    elif head == "masked_lm":
        outputs = {"logits": tf.reshape(model(features)[0], [len(batch), -1, config.vocab_size])}
    elif head == "squad":
        found = model.predictions(model(features), {**features, "unique_ids": batch})
        outputs = {name: found[name] for name in ("start_logits", "end_logits")}
    elif head == "tagging":
        logits = model(features)
        outputs = {"logits": logits, "probabilities": tf.nn.softmax(logits)}
    else:
        logits = model(features)
        found = model.predictions(logits, {**features, "label_ids": batch})["outputs"]
        outputs = {"probabilities": found, "logits": logits}
        if head == "regression":
            outputs = {"values": found}
    return {name: np.asarray(value) for name, value in outputs.items()}
