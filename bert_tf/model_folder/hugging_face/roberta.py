"""RoBERTa in Hugging Face's format: what differs from `bert.py`."""

from types import SimpleNamespace
from typing import Any

from absl import logging

from bert_tf.model.family import RobertaConfig
from bert_tf.model_folder.hugging_face import bert

CONFIG = RobertaConfig
CLASS_NAME = "Roberta"
TOKENIZERS = ("Roberta", "XLMRoberta", "Camembert")
HARMLESS_KEYS: set[str] = set()
PREFIX = "roberta."
TIED = {
    "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}
_POOLER = "pooler."
to_ours = bert.reader_of(
    CONFIG,
    vocab_size=50265,
    hidden_act="gelu",
    max_position_embeddings=512,
    type_vocab_size=2,
    layer_norm_eps=1e-12,
)
to_theirs = bert.writer_of(bos_token_id=0, eos_token_id=2)


def renamed(config: type[RobertaConfig], class_name: str) -> Any:
    """Returns a copy of this module for a model that is a RoBERTa under different names."""
    return SimpleNamespace(**{**globals(), "CONFIG": config, "CLASS_NAME": class_name})


def drop_unused_pooler(tensors: dict[str, Any], task: str, path: str) -> str:
    """Removes the pooler of a text classifier; returns the task that the tensors' names show.

    RoBERTa's classifier has a separate first layer. Files from older versions of Hugging Face's
    library, such as roberta-large-mnli's, also have a pooler, which no output depends on.
    """
    if "classifier.out_proj.weight" not in tensors:
        return task
    unused = [name for name in tensors if name.startswith(_POOLER)]
    for name in unused:
        del tensors[name]
    if unused:
        logging.info("%s: the pooler is omitted: the classifier has its own first layer", path)
    return "ForSequenceClassification"


def parts(config: RobertaConfig, task: str) -> dict[str, list[bert.Weight]]:
    """Like `bert.parts`; BERT's pooler is the first layer of RoBERTa's text classifier."""
    hidden = config.hidden_size
    known = bert.parts(config, task)
    del known["next-sentence head"]
    known["masked-LM head"] = bert.masked_lm(
        config, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"
    )
    if task == "ForSequenceClassification":
        del known["pooler"]
        known["classifier"] = [
            *bert.dense("bert/pooler/dense", "classifier.dense", hidden, hidden),
            *bert.output("", "classifier.out_proj", -1, hidden),
        ]
    return known
