"""The configuration of a DistilBERT model (https://arxiv.org/abs/1910.01108)."""

from bert_tf.model.configuration import BertConfig


class DistilBertConfig(BertConfig):
    """Sizes and dropout rates of a DistilBERT: a `BertConfig` whose pooler has ReLU.

    DistilBERT has no pooler. The dense layer of its classifier, `pre_classifier`, is stored as the
    pooler: it takes the same vector, with ReLU instead of tanh.

    It has no token types either. Checkpoints keep the table for compatibility with BERT: zeros in a
    new model, never trained. Every token uses row 0, also in a second text, so weights taken from a
    BERT give the same outputs for single texts. Formats without token types get row 0 added to the
    position embeddings.
    """

    NAME = "DistilBERT"
    MODEL_TYPE = "distilbert"
    pooler_activation = "relu"
    has_token_types = False
