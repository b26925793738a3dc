"""The configuration of a model that has no file with it: what the shapes of its weights tell."""

import os

from absl import logging

from bert_tf.errors import UserError, listed
from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.files.weight_files import SAVED_MODEL
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig
from bert_tf.start import lazy_tensorflow as tf

_HEAD_SIZE = 64  # of every BERT and ALBERT that Google released
_LAYER, _GROUP = "bert/encoder/layer_{}/", "bert/encoder/transformer/group_0/inner_group_0/"


def module_of(folder: str) -> str | None:
    """Returns the module of TF Hub whose variables are in a folder; None if it is no module's."""
    parent, name = os.path.split(folder.rstrip("/"))
    is_module = name == "variables" and tf.io.gfile.exists(os.path.join(parent, SAVED_MODEL))
    return parent if is_module else None


def has_sizes(checkpoint: CheckpointReader) -> bool:
    """Returns whether a checkpoint comes from where no `bert_config.json` stands beside it."""
    return bool(checkpoint.structure or module_of(os.path.dirname(checkpoint.prefix)))


def config_of_weights(checkpoint: CheckpointReader, place: str) -> BertConfig:
    """Returns the configuration of a checkpoint of Model Garden or TF Hub, which `place` names.

    The activation and the dropout rates, which no shape tells, are those of Google's models.
    """
    shapes, structure = checkpoint.shapes, checkpoint.structure
    is_albert = any(name.startswith(_GROUP) for name in shapes)
    layer, (attention, inner) = (
        (_GROUP, ("attention_1", "ffn_1/")) if is_albert else (_LAYER.format(0), ("attention", ""))
    )
    dimensions = {
        "vocab_size": ("bert/embeddings/word_embeddings", 0),
        "embedding_size": ("bert/embeddings/word_embeddings", 1),
        "max_position_embeddings": ("bert/embeddings/position_embeddings", 0),
        "type_vocab_size": ("bert/embeddings/token_type_embeddings", 0),
        "hidden_size": (f"{layer}{attention}/self/query/kernel", 0),
        "intermediate_size": (f"{layer}{inner}intermediate/dense/kernel", 1),
    }
    if missing := sorted(name for name, _ in dimensions.values() if name not in shapes):
        raise UserError(f"{place} must have a BERT or an ALBERT; it lacks {listed(missing)}")
    sizes = {key: shapes[name][axis] for key, (name, axis) in dimensions.items()}
    numbers = range(len(shapes))
    layers = structure.num_layers if structure else None
    if not structure and not is_albert:
        layers = next(i for i in numbers if f"{_LAYER.format(i)}output/dense/kernel" not in shapes)
    if layers is None:
        raise UserError(
            f"{place} has an ALBERT whose layers share their weights, so the number of layers is"
            " not in it. Write an albert_config.json beside it, or give --bert_config_file"
        )
    heads = structure.num_heads if structure else None
    guessed = "hidden_act is taken to be gelu"
    if heads is None:
        guessed += f", and the attention heads to have {_HEAD_SIZE} numbers each"
    logging.warning(
        "%s has no configuration beside it. The sizes are read from its weights; %s, as in Google's"
        " models. If that is wrong, write a bert_config.json",
        *(place, guessed),
    )
    heads = heads or max(1, sizes["hidden_size"] // _HEAD_SIZE)
    kind: type[BertConfig] = AlbertConfig if is_albert else BertConfig
    if is_albert:
        sizes["num_hidden_groups"] = layers
    else:
        del sizes["embedding_size"]
    return kind.from_dict({**sizes, "num_hidden_layers": layers, "num_attention_heads": heads})
