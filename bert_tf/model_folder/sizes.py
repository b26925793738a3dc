"""The configuration of a model that has no file with it: what the shapes of its weights tell."""

import os

from absl import logging

from bert_tf.errors import UserError, listed
from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.files.weight_files import SAVED_MODEL
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, ElectraConfig
from bert_tf.start import lazy_tensorflow as tf

_HEAD_SIZE = 64  # of every BERT, ALBERT and ELECTRA that Google released
_LAYER, _GROUP = "{}/encoder/layer_{}/", "bert/encoder/transformer/group_0/inner_group_0/"


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
    is_electra = any(name.startswith("electra/") for name in shapes)
    scope = "electra" if is_electra else "bert"
    layer, attention, inner = _LAYER.format(scope, 0), "attention", ""
    if is_albert:
        layer, attention, inner = _GROUP, "attention_1", "ffn_1/"
    dimensions = {
        "vocab_size": (f"{scope}/embeddings/word_embeddings", 0),
        "embedding_size": (f"{scope}/embeddings/word_embeddings", 1),
        "max_position_embeddings": (f"{scope}/embeddings/position_embeddings", 0),
        "type_vocab_size": (f"{scope}/embeddings/token_type_embeddings", 0),
        "hidden_size": (f"{layer}{attention}/self/query/kernel", 0),
        "intermediate_size": (f"{layer}{inner}intermediate/dense/kernel", 1),
    }
    if missing := sorted({name for name, _ in dimensions.values()} - shapes.keys()):
        raise UserError(
            f"{place} must have a BERT, an ALBERT or an ELECTRA; it lacks {listed(missing)}"
        )
    sizes = {key: shapes[name][axis] for key, (name, axis) in dimensions.items()}
    numbers = range(len(shapes))
    layers = structure.num_layers if structure else None
    if not structure and not is_albert:
        last = "output/dense/kernel"
        layers = next(i for i in numbers if _LAYER.format(scope, i) + last not in shapes)
    if layers is None:
        raise UserError(
            f"{place} has an ALBERT whose layers share their weights, so the number of layers is"
            " not in it. Write an albert_config.json beside it, or give --bert_config_file"
        )
    heads = structure.num_heads if structure else None
    guessed = f"hidden_act is taken to be {'gelu_erf' if is_electra else 'gelu'}"
    if heads is None:
        guessed += f", and the attention heads to have {_HEAD_SIZE} numbers each"
    logging.warning(
        "%s has no configuration beside it. The sizes are read from its weights; %s, as in Google's"
        " models. If that is wrong, write a bert_config.json",
        *(place, guessed),
    )
    heads = heads or max(1, sizes["hidden_size"] // _HEAD_SIZE)
    kind: type[BertConfig] = ElectraConfig if is_electra else BertConfig
    if is_albert:
        kind, sizes["num_hidden_groups"] = AlbertConfig, layers
    elif not is_electra:
        del sizes["embedding_size"]
    return kind.from_dict({**sizes, "num_hidden_layers": layers, "num_attention_heads": heads})
