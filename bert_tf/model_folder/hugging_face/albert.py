"""ALBERT in Hugging Face's format: what differs from `bert.py`."""

from bert_tf.errors import UserError
from bert_tf.files.object_graphs import ALBERT
from bert_tf.model.configuration import OUTPUT_DROPOUT_PROB
from bert_tf.model.family import AlbertConfig
from bert_tf.model_folder.hugging_face import bert

CONFIG = AlbertConfig
CLASS_NAME = "Albert"
TOKENIZERS = ("Albert",)
# Settings of the original's code that affect neither weights nor outputs.
HARMLESS_KEYS = {
    *("classifier_dropout_prob", "down_scale_factor", "gap_size", "layers_to_keep"),
    *("net_structure_type", "num_memory_blocks"),
}
PREFIX = "albert."
_OTHER_LAYER = """attention.query attention.key attention.value attention.dense
    attention.LayerNorm ffn ffn_output full_layer_layer_norm"""
TIED = {
    "predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
to_ours = bert.reader_of(CONFIG, vocab_size=30000, hidden_act="gelu_new")
to_theirs = bert.writer_of(
    model_type="albert",
    bos_token_id=2,
    eos_token_id=3,
    classifier_dropout_prob=OUTPUT_DROPOUT_PROB,
)


def parts(config: AlbertConfig, task: str) -> dict[str, list[bert.Weight]]:
    hidden, width = config.hidden_size, config.embedding_size
    if width == hidden:
        raise UserError(
            "Hugging Face's ALBERT always projects embeddings to hidden_size, google-research's"
            f" only if embedding_size differs from hidden_size; both are {hidden}, so the model"
            " cannot be converted"
        )
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    if [int(i / (layers / groups)) for i in range(layers)] != config.layer_groups:
        raise UserError(
            f"{layers} layers in {groups} groups: Hugging Face's ALBERT assigns some layers to"
            " other groups than google-research's, so the model cannot be converted"
        )
    if len(config.used_groups) < groups:
        raise UserError(
            f"num_hidden_groups ({groups}) must be at most num_hidden_layers ({layers}): Hugging"
            " Face's format also has weights for groups that no layer uses, google-research's does"
            " not, so the model cannot be converted"
        )
    mapping = "embedding_hidden_mapping_in"
    encoder = bert.embeddings(config)
    encoder += bert.dense(f"bert/encoder/{mapping}", f"encoder.{mapping}", width, hidden)
    for i in range(groups):
        for j in range(config.inner_group_num):
            name = f"bert/encoder/transformer/group_{i}/inner_group_{j}"
            other_name = f"encoder.albert_layer_groups.{i}.albert_layers.{j}"
            encoder += bert.layer(name, ALBERT.layer, other_name, _OTHER_LAYER, config)
    return {
        "encoder": encoder,
        "pooler": bert.dense("bert/pooler/dense", "pooler", hidden, hidden),
        "masked-LM head": bert.masked_lm(
            config, "predictions.dense", "predictions.LayerNorm", "predictions.bias"
        ),
        "next-sentence head": bert.output(
            "cls/seq_relationship/", "sop_classifier.classifier", 2, hidden
        ),
        **bert.fine_tuning_heads(hidden, task),
    }
