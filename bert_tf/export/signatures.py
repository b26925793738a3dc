"""The inputs and outputs of an exported model, for each head, by name.

Dimension letters and dtypes: see `bert_tf/modeling.py`. C is the number of classes or choices, P
the number of masks in a text, and K the number of tokens for each mask.

Without checks in the graph, runtimes would accept wrong inputs: they repeat a mask of size 1, count
negative ids from the end of a table, and give an unknown segment an embedding of zeros.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.export.settings import ENCODER
from bert_tf.export.text_inputs import TextInputs
from bert_tf.files.model_notes import PAIRS as READS_PAIRS
from bert_tf.files.model_notes import TEXTS as READS_TEXTS
from bert_tf.model.configuration import BertConfig
from bert_tf.pretrained.build import INPUTS, POSITIONS, Outputs, Tensors, head_outputs
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.pooling import text_vectors
from bert_tf.tasks.squad.settings import AnswerSettings

DEFAULT_SIGNATURE = "serving_default"
ENCODED = "sequence_output", "pooled_output"


def input_specs(
    head: str, batch_size: int | None = None, seq_length: int | None = None
) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a head, each int32.

    `input_ids`, `input_mask` (1 for tokens, 0 for padding) and `segment_ids` (1 for the second
    text) are [B, S], for multiple choice [B, C, S]. The masked language model also takes
    `masked_lm_positions`, [B, P]: the positions of the masks, 0 for [CLS].

    `batch_size` and `seq_length` are B and S if they are fixed. With a fixed S, P is 1 and C is 4.
    """
    shape = [batch_size, seq_length]
    if head == "multiple_choice":
        shape = [batch_size, None if seq_length is None else 4, seq_length]
    specs = {name: tf.TensorSpec(shape, tf.int32, name) for name in INPUTS}
    if head == "masked_lm":
        masks = None if seq_length is None else 1
        specs[POSITIONS] = tf.TensorSpec([batch_size, masks], tf.int32, POSITIONS)
    return specs


def outputs_of(
    head: str, model: keras.Model, folder: ModelFolder, with_encoded: bool = False
) -> Outputs:
    """Returns the function that computes a head's outputs by name, each float32.

    encoder: `sequence_output` [B, S, H], the last layer; `vectors` [B, size], as the folder's
        `encode` returns them, but not if `encode` leaves out the tokens of a prompt;
        `pooled_output` [B, H], if the model has a pooler.
    masked_lm: `logits` [B, P, V].
    classification, multiple_choice: `logits` and `probabilities` [B, C].
    regression: `values` [B].
    tagging: `logits` and `probabilities` [B, S, C].
    squad: `start_logits` and `end_logits` [B, S].

    `model` has the head, and was read from `folder`. `with_encoded` adds the encoder's
    `sequence_output` and `pooled_output` to every head.
    """
    compute, settings = head_outputs(head, model), folder.vectors

    def encoder(features: Tensors) -> dict[str, tf.Tensor]:
        output = model(*(features[name] for name in INPUTS))
        found = {"sequence_output": output.sequence_output}
        if settings.include_prompt or not settings.prompt:  # the graph keeps prompt tokens
            vectors = text_vectors(output, features["input_mask"], settings.poolings)
            if settings.normalize:
                vectors /= tf.norm(vectors, axis=-1, keepdims=True)
            found["vectors"] = vectors[:, : settings.truncate_dim]
        if "bert/pooler/dense/kernel" in folder.shapes:
            found["pooled_output"] = output.pooled_output
        return {name: tf.cast(value, tf.float32) for name, value in found.items()}

    def classes(features: Tensors) -> dict[str, tf.Tensor]:
        logits = compute(features)["logits"]
        is_multi_label = head == "classification" and folder.config.is_multi_label
        probabilities = tf.sigmoid(logits) if is_multi_label else tf.nn.softmax(logits)
        return {"logits": logits, "probabilities": probabilities}

    def regression(features: Tensors) -> dict[str, tf.Tensor]:
        return {"values": compute(features)["logits"][:, 0]}

    special = {ENCODER: encoder, "regression": regression, "masked_lm": compute, "squad": compute}
    own = special.get(head, classes)
    if head == ENCODER or not with_encoded:
        return own

    def both(features: Tensors) -> dict[str, tf.Tensor]:
        length = tf.shape(features["input_ids"])[-1]
        rows = (tf.reshape(features[name], [-1, length]) for name in INPUTS)
        output = model.bert(*rows)
        found = {**own(features), "sequence_output": output.sequence_output}
        if "bert/pooler/dense/kernel" in folder.shapes:
            found["pooled_output"] = output.pooled_output
        return found

    return both


_OF_IDS = "the shape of input_ids"


def asserted(
    features: Tensors, specs: Mapping[str, tf.TensorSpec], config: BertConfig
) -> dict[str, tf.Tensor]:
    """Checks the inputs of a head in a SavedModel, with messages."""
    # A signature does not check ranks.
    features = {name: tf.ensure_shape(x, specs[name].shape) for name, x in features.items()}
    shape, checks = tf.shape(features["input_ids"]), []
    for name in INPUTS[1:]:
        own = tf.shape(features[name])
        message = f"{name} must have {_OF_IDS}; received", own, "and", shape
        checks.append(tf.debugging.Assert(tf.reduce_all(own == shape), [*message]))
    if POSITIONS in features:
        rows = tf.shape(features[POSITIONS])[0]
        message = f"{POSITIONS} must have as many rows as input_ids; received", rows, shape[0]
        checks.append(tf.debugging.Assert(rows == shape[0], [*message]))
    for name, limit in _limits(features, config).items():
        values = features[name]
        lowest, highest = tf.reduce_min(values), tf.reduce_max(values)
        right = (tf.size(values) == 0) | ((lowest >= 0) & (highest < limit))
        message = f"{name} must be from 0 to", limit - 1, "; received", lowest, "to", highest
        checks.append(tf.debugging.Assert(right, [*message]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in features.items()}


def looked_up(
    features: Tensors, specs: Mapping[str, tf.TensorSpec], config: BertConfig
) -> dict[str, tf.Tensor]:
    """Checks the inputs of a head in LiteRT, which cannot assert."""
    # The inputs are stacked and sliced, which fails if their shapes or ranks differ. Each number is
    # looked up in a list of the valid numbers.
    found = dict(features)
    stacked = tf.stack([features[name] for name in INPUTS])
    axes = len(specs["input_ids"].shape)
    for i, name in enumerate(INPUTS):
        found[name] = tf.squeeze(tf.slice(stacked, [i] + axes * [0], [1] + axes * [-1]), 0)
    if POSITIONS in features:
        together = [found["input_ids"][:, :1], features[POSITIONS]]
        found[POSITIONS] = tf.concat(together, 1)[:, 1:]
    for name, limit in _limits(found, config).items():
        found[name] = tf.gather(tf.range(limit), found[name])
    return found


def _limits(features: Tensors, config: BertConfig) -> dict[str, int | tf.Tensor]:
    limits: dict[str, int | tf.Tensor] = {"input_ids": config.vocab_size, "input_mask": 2}
    if config.has_token_types:
        limits["segment_ids"] = config.type_vocab_size
    if POSITIONS in features:
        limits[POSITIONS] = tf.shape(features["input_ids"])[-1]
    return limits


TOKENIZE = "tokenize"
PAIRS = "pairs"
_TOP_K = 5  # tokens for a mask; `fill_mask` has the same default


def text_signatures(
    head: str,
    outputs: Outputs,
    text_inputs: TextInputs,
    vocab: Sequence[str],
    reads: str | None = None,
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Returns the signatures by name.

    serving_default: takes `texts`, string [N]; for squad `questions` and `contexts`, both [N]; for
        multiple choice `contexts`, [N], and `choices`, [N, C]. The outputs are the head's with B =
        N, plus `tokens`, string [N, S], for tagging and squad. The masked language model instead
        returns `tokens`, string [N, P, K], and `probabilities`, float32 [N, P, K], best first,
        padded with "" and 0.
    pairs: takes `texts` and `second_texts`, both [N]; for encoder, and for classification and
        regression unless `reads` (see `ModelInput`) is "texts". If `reads` is "pairs",
        serving_default is the same.
    tokenize, tokenize_pairs: take the same texts; return `input_ids`, `input_mask`, `segment_ids`.
    """
    tokens_of = tf.constant(list(vocab))

    def of_choices(contexts: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        texts = tf.repeat(contexts, tf.shape(choices)[1])
        return {
            name: tf.reshape(value, tf.concat([tf.shape(choices), tf.shape(value)[1:]], 0))
            for name, value in text_inputs(texts, tf.reshape(choices, [-1])).items()
        }

    of_questions = functools.partial(
        text_inputs.question_and_context, max_query_length=AnswerSettings().max_query_length
    )

    def answers(features: Tensors) -> dict[str, tf.Tensor]:
        found = outputs(features)
        if head in ("tagging", "squad"):
            found["tokens"] = tf.gather(tokens_of, features["input_ids"])
        if head != "masked_lm":
            return found
        # The tokenizer's vocabulary may be smaller than the model's.
        probabilities = tf.nn.softmax(found["logits"])[..., : len(vocab)]
        probabilities, ids = tf.math.top_k(probabilities, min(_TOP_K, len(vocab)))  # [N, P, K]
        weights = features["masked_lm_weights"][..., tf.newaxis]
        return {
            "tokens": tf.where(weights > 0, tf.gather(tokens_of, ids), ""),
            "probabilities": probabilities * weights,
        }

    def inputs(features: Tensors) -> dict[str, tf.Tensor]:
        return {name: features[name] for name in INPUTS}

    texts = {
        "squad": (of_questions, ("questions", "contexts")),
        "multiple_choice": (of_choices, ("contexts", "choices")),
        "masked_lm": (text_inputs.masked, ("texts",)),
    }.get(head, (text_inputs, ("texts",)))
    is_classifier = head in ("classification", "regression")
    pairs = text_inputs, ("texts", "second_texts")
    if is_classifier and reads == READS_PAIRS:
        texts = pairs
    found = {DEFAULT_SIGNATURE: _traced(answers, *texts), TOKENIZE: _traced(inputs, *texts)}
    if head == ENCODER or (is_classifier and reads != READS_TEXTS):
        found |= {PAIRS: _traced(answers, *pairs), f"{TOKENIZE}_{PAIRS}": _traced(inputs, *pairs)}
    return found


def _traced(
    outputs_of: Callable, features_of: Callable, names: Sequence[str]
) -> tf.types.experimental.ConcreteFunction:
    """Traces a function of texts by name that calls `features_of`, then `outputs_of`."""
    specs = {name: tf.TensorSpec([None], tf.string, name) for name in names}
    if "choices" in specs:
        specs["choices"] = tf.TensorSpec([None, None], tf.string, "choices")

    def of_texts(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
        # A signature does not check ranks.
        checked = {name: tf.ensure_shape(x, specs[name].shape) for name, x in texts.items()}
        return outputs_of(features_of(**checked))

    return tf.function(of_texts, autograph=False).get_concrete_function(**specs)
