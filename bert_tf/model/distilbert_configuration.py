"""The configuration of a DistilBERT model (https://arxiv.org/abs/1910.01108)."""

from bert_tf.model.configuration import BertConfig


class DistilBertConfig(BertConfig):
    """Sizes and dropout rates of a DistilBERT: a `BertConfig` whose pooler has ReLU.

    DistilBERT has no pooler. The dense layer of its classifier, `pre_classifier`, stands in the
    pooler's place: it takes the same vector, with ReLU instead of tanh. Nor has it token types:
    their embeddings are zeros. Sizes that are not given have BERT's defaults.
    """

    NAME = "DistilBERT"
    MODEL_TYPE = "distilbert"
    pooler_activation = "relu"
