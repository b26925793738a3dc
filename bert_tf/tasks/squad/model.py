"""Finding an answer in a text (SQuAD): heads, models, loss, predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`; K is the size of the beam. The joint model
predicts start and end together, and "no answer", as google-research/electra does (original:
finetune/qa/qa_tasks.py, QATask.get_prediction_module).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.model.activations import gelu_erf
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import cross_entropy, example_weights, linear
from bert_tf.model.inputs import get_shape_list, in_range, shaped
from bert_tf.model.layers import Composite, glorot_initializer, head_initializer
from bert_tf.model.saving import Savable, register
from bert_tf.modeling import BertOutput
from bert_tf.tasks.task_model import TaskModel

_SCOPE = "task_specific/squad/"
# The arguments of `JointSquadModel` that are settings.
HEAD_OPTIONS = (
    *("joint_prediction", "beam_size", "answerable_classifier", "answerable_uses_start_logits"),
    "answerable_weight",
)
_HIDDEN = 512  # units of the hidden layers
_MASKED = 1000.0  # subtracted from logits outside the text

Outputs = dict[str, tf.Tensor]


@register
class SpanHead(Savable, keras.layers.Layer):
    """Start and end logits of every position (original: run_squad.create_model)."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(name="squad", dtype=dtype)
        self.config = config

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables; `input_shape` is not used."""
        shape, initial = (2, self.config.hidden_size), head_initializer(self.config.glorot_heads)
        options: dict[str, Any] = {"dtype": "float32", "autocast": False}
        self.output_weights = self.add_weight(shape, initial, name="output_weights", **options)
        self.output_bias = self.add_weight((2,), "zeros", name="output_bias", **options)

    def call(self, sequence_output: tf.Tensor) -> list[tf.Tensor]:
        """Maps float [B, S, H] to start and end logits, each float32 [B, S]."""
        logits = linear(sequence_output, self.output_weights.value, self.output_bias.value)
        return tf.unstack(logits, axis=-1)


@register
class SquadHeads(Savable, Composite):
    """The scope `cls` around `SpanHead`."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(name="cls", dtype=dtype)
        self.squad = SpanHead(config, self.dtype_policy)

    def call(self, sequence_output: tf.Tensor) -> list[tf.Tensor]:
        """Returns the outputs of `SpanHead`."""
        return self.squad(sequence_output)


@register
class SquadModel(TaskModel):
    """BERT with the span head; has the variables of the original's run_squad.

    For the **options see `BertModel`.
    """

    label_names: tuple[str, ...] = ("start_positions", "end_positions")
    task_metrics = ("start_accuracy", "end_accuracy")
    # This gradient rounds less than the gradient of `heads.cross_entropy`.
    span_losses = staticmethod(tf.nn.sparse_softmax_cross_entropy_with_logits)

    def __init__(self, config: BertConfig, **options: Any):
        super().__init__(config, **options)
        # No logit depends on the pooler, so the original's optimizer has no slots for it either.
        self.bert.pooler.trainable = False
        self.cls = SquadHeads(config, self.bert.dtype_policy)
        self.cls.build()

    def head_outputs(self, output: BertOutput, input_mask: Any, **dropout: Any) -> Any:
        """Returns start and end logits, each float32 [B, S]."""
        return self.cls(output.sequence_output)

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `start_positions` and `end_positions`, int32 [B]."""
        batch, seq_length = get_shape_list(features["input_ids"])
        found = {}
        for name in self.label_names:
            positions = shaped(features[name], name, [batch], "one position for each example")
            found[name] = in_range(positions, name, seq_length, "the length of the sequence")
        return found

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean cross entropy of start and end, float32 [], and their accuracies.

        All positions compete, including question and padding, as in the original's compute_loss.
        In a window without the answer, start and end are at [CLS]. Each accuracy is two float32 []:
        the weights of the correct examples and of all.
        """
        weights = example_weights(features)
        total = tf.zeros([], tf.float32)
        sums = {}
        for name, logits in zip(("start", "end"), outputs, strict=True):
            positions = features[f"{name}_positions"]
            losses = self.span_losses(labels=positions, logits=logits)
            loss = tf.reduce_sum(weights * losses)
            total += tf.math.divide_no_nan(loss, normalizers["examples"])
            right = tf.argmax(logits, axis=-1, output_type=tf.int32) == positions
            right = tf.reduce_sum(weights * tf.cast(right, tf.float32))
            sums[f"{name}_accuracy"] = (right, tf.reduce_sum(weights))
        return total / 2.0, sums

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns `unique_ids`, int32 [B], and `start_logits` and `end_logits`, float32 [B, S]."""
        start, end = outputs
        unique_ids = features["unique_ids"]
        return {"unique_ids": unique_ids, "start_logits": start, "end_logits": end}


@register
class KernelAndBias(Savable, keras.layers.Layer):
    """The variables of a dense layer, with tf.layers.dense's initial values; logits are float32."""

    def __init__(self, input_size: int, units: int, name: str, dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self.shape = (input_size, units)

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables; `input_shape` is not used."""
        options: dict[str, Any] = {"dtype": "float32", "autocast": False}
        kernel = glorot_initializer()
        self.kernel = self.add_weight(self.shape, kernel, name="kernel", **options)
        self.bias = self.add_weight(self.shape[1:], "zeros", name="bias", **options)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps float [..., input_size] to float32 [..., units]."""
        return linear(inputs, tf.transpose(self.kernel.value), self.bias.value)


@register
class JointSpanHead(Savable, Composite):
    """The scope `squad` of the head; for the arguments see `JointSquadModel`.

    Layers are numbered in the order in which the original makes them.
    """

    def __init__(
        self,
        config: BertConfig,
        joint_prediction: bool = True,
        answerable_classifier: bool = True,
        answerable_uses_start_logits: bool = True,
        beam_size: int = 20,
        dtype: Any = None,
    ):
        super().__init__(name="squad", dtype=dtype)
        self.beam_size = beam_size
        size = config.hidden_size
        numbers = iter(("", "_1", "_2", "_3"))

        def dense(input_size: int, units: int, name: str = "") -> KernelAndBias:
            name = name or f"dense{next(numbers)}"
            return KernelAndBias(input_size, units, name, self.dtype_policy)

        self.start = dense(size, 1)
        self.qa_hidden: Any = dense(2 * size, _HIDDEN, "qa_hidden") if joint_prediction else None
        self.end = dense(_HIDDEN if joint_prediction else size, 1)
        self.answer_hidden: Any = None
        self.answerable: Any = None
        if answerable_classifier:
            if answerable_uses_start_logits:
                self.answer_hidden = dense(2 * size, _HIDDEN)
            self.answerable = dense(_HIDDEN if answerable_uses_start_logits else size, 1)

    def call(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        start_positions: tf.Tensor | None = None,
        training: bool = False,
    ) -> Outputs:
        """Returns `start_logits` and `end_logits`, float32 [B, S], and more outputs by name.

        `answerable_logit` [B], with a classifier: above 0 if "no answer" is likelier.
        `start_top_index` [B, K], `end_top_index` [B, K, K] and `start_top_log_probs`,
        `end_top_log_probs`: the beam of a joint prediction, outside training; with a beam
        `end_logits` are 0.

        Args:
            hidden: float [B, S, H].
            input_mask, segment_ids: int32 [B, S]; answers lie where both are 1, or at [CLS].
            start_positions: int32 [B], the true starts.
            training: whether to predict the ends for the true starts, not for the K likeliest.
        """
        length = get_shape_list(hidden)[1]
        in_text = tf.cast(input_mask * segment_ids, tf.float32) + tf.one_hot(0, length)
        outside = _MASKED * (in_text - 1.0)  # [B, S]
        start_logits = self.start(hidden)[..., 0] + outside
        outputs = {"start_logits": start_logits}
        if not self.qa_hidden:
            outputs["end_logits"] = self.end(hidden)[..., 0] + outside
        elif training and start_positions is not None:
            starts = tf.gather(hidden, start_positions[:, tf.newaxis], axis=1, batch_dims=1)
            outputs["end_logits"] = self._end_logits(starts, hidden)[:, 0] + outside
        else:
            is_static = isinstance(length, int)
            size = (min if is_static else tf.minimum)(self.beam_size, length)
            scores, places = tf.nn.top_k(tf.nn.log_softmax(start_logits), size)
            starts = tf.gather(hidden, places, axis=1, batch_dims=1)  # [B, K, H]
            end_logits = self._end_logits(starts, hidden) + outside[:, tf.newaxis]
            end_scores, end_places = tf.nn.top_k(tf.nn.log_softmax(end_logits), size)
            outputs["end_logits"] = tf.zeros_like(start_logits)
            outputs |= {"start_top_log_probs": scores, "start_top_index": places}
            outputs |= {"end_top_log_probs": end_scores, "end_top_index": end_places}
        if self.answerable:
            outputs["answerable_logit"] = self._answerable_logit(hidden, start_logits)
        return outputs

    def _end_logits(self, starts: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """Returns the logits of all ends, float32 [B, K, S], for starts, float [B, K, H].

        The original concatenates start and end vectors for each pair. Here each half of the kernel
        multiplies its vectors once: K + S products instead of K * S.
        """
        of_start, of_end = tf.split(self.qa_hidden.kernel.value, 2)  # [H, 512]
        from_start = linear(starts, tf.transpose(of_start), None)
        from_end = linear(hidden, tf.transpose(of_end), self.qa_hidden.bias.value)
        pairs = gelu_erf(from_start[:, :, tf.newaxis] + from_end[:, tf.newaxis])
        return self.end(tf.cast(pairs, hidden.dtype))[..., 0]

    def _answerable_logit(self, hidden: tf.Tensor, start_logits: tf.Tensor) -> tf.Tensor:
        vectors = hidden[:, 0]
        if self.answer_hidden:
            likely = tf.cast(tf.nn.softmax(start_logits), hidden.dtype)
            vectors = tf.concat([vectors, tf.einsum("bs,bsh->bh", likely, hidden)], -1)
            vectors = tf.cast(gelu_erf(self.answer_hidden(vectors)), hidden.dtype)
        return self.answerable(vectors)[:, 0]


@register
class JointHeads(Savable, Composite):
    """The scope `task_specific` around `JointSpanHead`."""

    def __init__(self, config: BertConfig, dtype: Any = None, **options: Any):
        super().__init__(name="task_specific", dtype=dtype)
        self.squad = JointSpanHead(config, **options, dtype=self.dtype_policy)


@register
class JointSquadModel(SquadModel):
    """BERT or ELECTRA with ELECTRA's heads for SQuAD.

    Args:
        joint_prediction: whether the end is predicted for each of the likeliest starts.
        beam_size: the number of likeliest starts, and of ends for each start.
        answerable_classifier: whether a classifier predicts "no answer".
        answerable_uses_start_logits: whether the classifier reads the vectors of likely starts in
            addition to [CLS]'s.
        answerable_weight: weight of the classifier's loss.
        **options: see `BertModel`.
    """

    label_names = ("start_positions", "end_positions", "is_impossible")
    span_losses = staticmethod(lambda labels, logits: cross_entropy(logits, labels))

    def __init__(
        self,
        config: BertConfig,
        joint_prediction: bool = True,
        beam_size: int = 20,
        answerable_classifier: bool = True,
        answerable_uses_start_logits: bool = True,
        answerable_weight: float = 0.5,
        **options: Any,
    ):
        TaskModel.__init__(self, config, **options)  # without BERT's head
        self.bert.pooler.trainable = False
        self.cls = JointHeads(
            config,
            dtype=self.bert.dtype_policy,
            joint_prediction=joint_prediction,
            beam_size=beam_size,
            answerable_classifier=answerable_classifier,
            answerable_uses_start_logits=answerable_uses_start_logits,
        )
        self.cls.build()
        self.answerable_weight = answerable_weight

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
        start_positions: tf.Tensor | None = None,
    ) -> Outputs:
        """Returns the outputs of `JointSpanHead`; for the arguments see there and `SquadModel`."""
        ones, zeros = tf.ones_like(input_ids), tf.zeros_like(input_ids)
        input_mask = ones if input_mask is None else input_mask
        segment_ids = zeros if segment_ids is None else segment_ids
        inputs = input_ids, input_mask, segment_ids
        hidden = self.bert(*inputs, training=training, dropout_seed=dropout_seed).sequence_output
        # Without the true starts, as when Keras infers shapes, the beam's starts are used.
        return self.cls.squad(hidden, input_mask, segment_ids, start_positions, training=training)

    def checked_labels(self, features: Features) -> Outputs:
        """Returns the labels, int32 [B]."""
        batch = get_shape_list(features["input_ids"])[:1]
        value = shaped(features["is_impossible"], "is_impossible", batch, "0 or 1 for each example")
        value = in_range(value, "is_impossible", 2, "1 without an answer")
        return {**super().checked_labels(features), "is_impossible": value}

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns `SquadModel`'s loss, with the classifier's loss added, and its metrics."""
        spans = outputs["start_logits"], outputs["end_logits"]
        loss, sums = super().loss_and_metrics(spans, features, normalizers)
        if "answerable_logit" in outputs:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(
                tf.cast(features["is_impossible"], tf.float32), outputs["answerable_logit"]
            )
            total = tf.reduce_sum(example_weights(features) * losses)
            more = tf.math.divide_no_nan(total, normalizers["examples"])
            loss += self.answerable_weight * more
        return loss, sums

    def predictions(self, outputs: Any, features: Features) -> Outputs:
        """Returns `unique_ids` and the outputs."""
        return {"unique_ids": features["unique_ids"], **outputs}


def head_options(names: Iterable[str]) -> Mapping[str, bool]:
    """Returns the arguments of `JointSquadModel` that fit a checkpoint's variables.

    The result is {} for a checkpoint of a different model.
    """
    found = {name.removeprefix(_SCOPE) for name in names if name.startswith(_SCOPE)}
    if not found:
        return {}
    options = {
        "joint_prediction": "qa_hidden/kernel" in found,
        "answerable_classifier": "dense_2/kernel" in found,
    }
    if options["answerable_classifier"]:
        options["answerable_uses_start_logits"] = "dense_3/kernel" in found
    return options
