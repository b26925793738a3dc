"""Derives a configuration from the shapes of a model's weights."""

from absl import logging

from bert_tf.errors import UserError, listed
from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, ElectraConfig

_HEAD_SIZE = 64  # of every BERT and ELECTRA that Google released, and most ALBERTs
_GROUP = "bert/encoder/transformer/group_0/inner_group_0/"


def config_of_weights(checkpoint: CheckpointReader, place: str) -> BertConfig:
    """Returns the configuration of a checkpoint of Model Garden or TF Hub.

    Shapes do not tell the activation and the dropout rates, so Google's are assumed. `place` names
    the checkpoint in messages.
    """
    shapes, sizes = checkpoint.shapes, checkpoint.sizes or {}
    kind: type[BertConfig] = BertConfig
    layer, query, inner = "bert/encoder/layer_0/", "attention/self/query", "intermediate/dense"
    if any(name.startswith(_GROUP) for name in shapes):
        kind = AlbertConfig
        layer, query, inner = _GROUP, "attention_1/self/query", "ffn_1/intermediate/dense"
    elif any(name.startswith("electra/") for name in shapes):
        kind, layer = ElectraConfig, "electra/encoder/layer_0/"
    embeddings = f"{kind.scope}/embeddings"
    dimensions = {
        "vocab_size": (f"{embeddings}/word_embeddings", 0),
        "embedding_size": (f"{embeddings}/word_embeddings", 1),
        "max_position_embeddings": (f"{embeddings}/position_embeddings", 0),
        "type_vocab_size": (f"{embeddings}/token_type_embeddings", 0),
        "hidden_size": (f"{layer}{query}/kernel", 0),
        "intermediate_size": (f"{layer}{inner}/kernel", 1),
    }
    if missing := sorted({name for name, _ in dimensions.values()} - shapes.keys()):
        raise UserError(
            f"{place} must have a BERT, an ALBERT or an ELECTRA; it lacks {listed(missing)}"
        )
    sizes = {key: shapes[name][axis] for key, (name, axis) in dimensions.items()} | sizes
    if kind is not AlbertConfig:
        names = [name for name in shapes if name.startswith(f"{kind.scope}/encoder/layer_")]
        sizes["num_hidden_layers"] = len({name.split("/")[2] for name in names})
    elif "num_hidden_layers" not in sizes:
        raise UserError(
            f"{place} has an ALBERT whose layers share their weights, so the number of layers is"
            " not in it. Write an albert_config.json beside it, or give --bert_config_file"
        )
    else:
        sizes["num_hidden_groups"] = sizes["num_hidden_layers"]
    if kind is BertConfig:
        del sizes["embedding_size"]
    guessed = f"hidden_act is assumed to be {'gelu_erf' if kind is ElectraConfig else 'gelu'}"
    if "num_attention_heads" not in sizes:
        guessed += f", and the size of an attention head {_HEAD_SIZE}"
        sizes["num_attention_heads"] = max(1, sizes["hidden_size"] // _HEAD_SIZE)
    logging.warning(
        "%s has no configuration beside it. The sizes are read from its weights; %s, as in Google's"
        " models. If that is wrong, write a bert_config.json",
        *(place, guessed),
    )
    return kind.from_dict(sizes)
