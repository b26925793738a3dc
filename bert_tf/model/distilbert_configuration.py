"""The configuration of a DistilBERT model (https://arxiv.org/abs/1910.01108)."""

from bert_tf.model.configuration import BertConfig


class DistilBertConfig(BertConfig):
    """Sizes and dropout rates of a DistilBERT: a `BertConfig` whose pooler has ReLU.

    DistilBERT has no pooler. The dense layer of its classifier, `pre_classifier`, stands in the
    pooler's place: it takes the same vector, with ReLU instead of tanh.

    Nor has it token types. Checkpoints have their table all the same, as those of any BERT. In a
    new model it is zeros, and training leaves it as it is. Every token, of a second text too, gets
    the first row: so the weights of a BERT lose nothing that a first text depends on, and a format
    without types takes that row in its position embeddings.

    Sizes that are not given have BERT's defaults.
    """

    NAME = "DistilBERT"
    MODEL_TYPE = "distilbert"
    pooler_activation = "relu"
    has_token_types = False
