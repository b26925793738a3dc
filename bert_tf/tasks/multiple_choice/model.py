"""Multiple choice (paper, section 4.4): a score for each choice; model, loss, predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`; C is the number of choices of a question.
"""

from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.model.configuration import OUTPUT_DROPOUT_PROB, BertConfig
from bert_tf.model.heads import cross_entropy, example_weights
from bert_tf.model.inputs import get_shape_list, in_range, shaped
from bert_tf.model.saving import register
from bert_tf.modeling import BertOutput
from bert_tf.tasks.task_model import TaskModel


@register
class MultipleChoiceModel(TaskModel):
    """BERT with a weight vector, whose product with a choice's [CLS] output is the choice's score.

    Args:
        output_dropout_prob: dropout before the head, a constant in the original.
        **options: see `BertModel`.
    """

    label_names = ("label_ids",)
    task_metrics = ("accuracy",)
    input_rank = 3

    def __init__(
        self, config: BertConfig, output_dropout_prob: float = OUTPUT_DROPOUT_PROB, **options: Any
    ):
        super().__init__(config, **options)
        # No bias: adding the same number to all choices would not change their softmax.
        self.head = self.output_layer(1, output_dropout_prob, use_bias=False)

    def head_outputs(self, output: BertOutput, input_mask: Any, **dropout: Any) -> tf.Tensor:
        """Returns the logit of each choice, float32 [B*C]; `call` returns [B, C]."""
        return self.head(output.pooled_output, **dropout)[:, 0]

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `label_ids`, the index of the right choice, int32 [B]."""
        batch, num_choices, _ = get_shape_list(features["input_ids"])
        meaning = "one choice (an index, not one-hot) for each example"
        labels = shaped(features["label_ids"], "label_ids", [batch], meaning)
        counted = example_weights(features) > 0.0
        labels = in_range(labels, "label_ids", num_choices, "the number of choices", counted)
        return {"label_ids": labels}

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean cross entropy and `accuracy`: the weights of right questions and of all.

        Each number is float32 [].
        """
        weights, label_ids = example_weights(features), features["label_ids"]
        loss = tf.reduce_sum(weights * cross_entropy(outputs, label_ids))
        right = tf.cast(tf.argmax(outputs, axis=-1, output_type=tf.int32) == label_ids, tf.float32)
        sums = {"accuracy": (tf.reduce_sum(weights * right), tf.reduce_sum(weights))}
        return tf.math.divide_no_nan(loss, normalizers["examples"]), sums

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns the prediction and the loss of each question.

        `outputs`: probabilities of the choices, float32 [B, C]. `label_ids`: the records' labels,
        int32 [B]. `per_example_loss`: float32 [B].
        """
        return {
            "outputs": tf.nn.softmax(outputs),
            "label_ids": features["label_ids"],
            "per_example_loss": cross_entropy(outputs, features["label_ids"]),
        }
