"""What an exported model that takes text computes: its signatures, of strings.

Dimension letters and dtypes: see `bert_tf/export/signatures.py`; here also K, tokens for a mask.
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
_TOP_K = 5  # tokens for a mask, as many as `fill_mask` gives


def text_signatures(
    head: str, outputs: Outputs, text_inputs: TextInputs, vocab: Sequence[str]
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Returns functions by the names of their signatures.

    serving_default: of `texts`, string [N]. For answers of `questions` and `contexts`, both [N];
        for multiple choice of `contexts`, [N], and `choices`, [N, C]. The outputs are the head's
        with B = N, and for tagging and answers `tokens`, string [N, S]. The masked language model
        gives, best first, `tokens`, string [N, P, K], and `probabilities`, where "" and 0 fill up.
    pairs: of `texts` and `second_texts`, both [N]: encoder, classification and regression.
    tokenize: the same inputs as the default; `input_ids`, `input_mask`, `segment_ids`.
    tokenize_pairs: the same for `pairs`.

    Args:
        head: one of `signatures.HEADS`.
        outputs: of `signatures.outputs_of`.
        text_inputs: makes ids of text.
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
