"""The signatures of an exported model that takes text.

Dimension letters and dtypes: see `bert_tf/export/signatures.py`. In addition, K is the number of
tokens for each mask.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_tf.export.signatures import (
    DEFAULT_SIGNATURE,
    ENCODER,
    INPUTS,
    POSITIONS,
    Outputs,
    Tensors,
)
from bert_tf.export.text_inputs import TextInputs
from bert_tf.tasks.squad.settings import AnswerSettings

TOKENIZE = "tokenize"
PAIRS = "pairs"
_TOP_K = 5  # tokens for a mask; `fill_mask` has the same default


def text_signatures(
    head: str, outputs: Outputs, text_inputs: TextInputs, vocab: Sequence[str]
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Returns name of a signature -> function.

    serving_default: takes `texts`, string [N]; for squad `questions` and `contexts`, both [N]; for
        multiple choice `contexts`, [N], and `choices`, [N, C]. The outputs are the head's with
        B = N, plus `tokens`, string [N, S], for tagging and squad. The masked language model
        instead returns `tokens`, string [N, P, K], and `probabilities`, float32 [N, P, K], best
        first, padded with "" and 0.
    pairs: takes `texts` and `second_texts`, both [N]; for encoder, classification and regression.
    tokenize: same inputs as serving_default; returns `input_ids`, `input_mask`, `segment_ids`.
    tokenize_pairs: same inputs as pairs; returns the same as tokenize.

    Args:
        head: one of `signatures.HEADS`.
        outputs: from `signatures.outputs_of`.
        text_inputs: makes ids from text.
        vocab: the tokens, by id.
    """
    tokens_of = tf.constant(list(vocab))

    def of_choices(contexts: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        texts = tf.repeat(contexts, tf.shape(choices)[1])
        return {
            name: tf.reshape(value, tf.concat([tf.shape(choices), tf.shape(value)[1:]], 0))
            for name, value in text_inputs(texts, tf.reshape(choices, [-1])).items()
        }

    def of_questions(questions: tf.Tensor, contexts: tf.Tensor) -> dict[str, tf.Tensor]:
        longest = AnswerSettings().max_query_length
        return text_inputs.question_and_context(questions, contexts, longest)

    def answers(features: Tensors) -> dict[str, tf.Tensor]:
        if head != "masked_lm":
            found = outputs({name: features[name] for name in INPUTS})
            if head in ("tagging", "squad"):
                found["tokens"] = tf.gather(tokens_of, features["input_ids"])
            return found
        logits = outputs({name: features[name] for name in (*INPUTS, POSITIONS)})["logits"]
        # The vocabulary may be smaller than the model's.
        logits = tf.nn.softmax(logits)[..., : len(vocab)]
        probabilities, ids = tf.math.top_k(logits, min(_TOP_K, len(vocab)))  # [N, P, K]
        weights = features["masked_lm_weights"][..., tf.newaxis]
        return {
            "tokens": tf.where(weights > 0, tf.gather(tokens_of, ids), ""),
            "probabilities": probabilities * weights,
        }

    def text(*names: str) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec([None], tf.string, name) for name in names}

    found = {}

    def add(name: str, tokenize: str, inputs_of: Callable, specs: dict[str, tf.TensorSpec]) -> None:
        def inputs(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
            features = inputs_of(**texts)
            return {name: features[name] for name in INPUTS}

        for key, function in (
            (name, lambda **texts: answers(inputs_of(**texts))),
            (tokenize, inputs),
        ):
            traceable = tf.function(function, autograph=False)
            found[key] = traceable.get_concrete_function(**specs)

    if head == "squad":
        add(DEFAULT_SIGNATURE, TOKENIZE, of_questions, text("questions", "contexts"))
    elif head == "multiple_choice":
        specs = {**text("contexts"), "choices": tf.TensorSpec([None, None], tf.string, "choices")}
        add(DEFAULT_SIGNATURE, TOKENIZE, of_choices, specs)
    else:
        masked = head == "masked_lm"
        one = text_inputs.masked if masked else text_inputs
        add(DEFAULT_SIGNATURE, TOKENIZE, lambda texts: one(texts), text("texts"))
    if head in (ENCODER, "classification", "regression"):

        def of_pairs(texts: tf.Tensor, second_texts: tf.Tensor) -> dict[str, tf.Tensor]:
            return text_inputs(texts, second_texts)

        add(PAIRS, f"{TOKENIZE}_{PAIRS}", of_pairs, text("texts", "second_texts"))
    return found
