"""Folders like a released model's, of a model whose sizes all differ, with every head."""

import functools
import json
from pathlib import Path

import numpy as np

from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert

VOCAB = """[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s sat ran on a mat , . paris is in france
    un ##aff ##able ' b ( )""".split()
CONFIG = {
    "vocab_size": len(VOCAB),
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
HEADS = {
    "classifier": {"output_weights": (3, 12), "output_bias": (3,)},
    "regressor": {"output_weights": (1, 12), "output_bias": (1,)},
    "tagger": {"output_weights": (5, 12), "output_bias": (5,)},
    "squad": {"cls/squad/output_weights": (2, 12), "cls/squad/output_bias": (2,)},
}


@functools.cache
def _pretrained_shapes() -> dict[str, tuple[int, ...]]:
    model = PretrainingModel(BertConfig.from_dict(CONFIG))
    return {variable.path: tuple(variable.shape) for variable in model.variables}


def random_weights(*heads: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns weights of a pre-trained model and of some of `HEADS`, by name, float32."""
    shapes = dict(_pretrained_shapes())
    for head in heads:
        shapes |= HEADS[head]
    return numpy_bert.random_weights(shapes, seed)


def write_model(
    folder: Path, weights: dict[str, np.ndarray], labels: list[str] | None = None
) -> str:
    """Writes a folder with a model and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints.write(str(folder / "bert_model.ckpt"), weights)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    if labels is not None:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    return str(folder)
