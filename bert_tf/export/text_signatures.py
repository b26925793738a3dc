"""The signatures of an exported model that takes text.

Dimension letters and dtypes: see `bert_tf/export/signatures.py`. In addition, K is the number of
tokens for each mask.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_tf.export.settings import ENCODER
from bert_tf.export.signatures import DEFAULT_SIGNATURE
from bert_tf.export.text_inputs import TextInputs
from bert_tf.files.model_input import PAIRS as READS_PAIRS
from bert_tf.files.model_input import TEXTS as READS_TEXTS
from bert_tf.pretrained.build import INPUTS, Outputs, Tensors
from bert_tf.tasks.squad.settings import AnswerSettings

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
    """Returns name of a signature -> function.

    serving_default: takes `texts`, string [N]; for squad `questions` and `contexts`, both [N]; for
        multiple choice `contexts`, [N], and `choices`, [N, C]. The outputs are the head's with
        B = N, plus `tokens`, string [N, S], for tagging and squad. The masked language model
        instead returns `tokens`, string [N, P, K], and `probabilities`, float32 [N, P, K], best
        first, padded with "" and 0.
    pairs: takes `texts` and `second_texts`, both [N]; for encoder, and for classification and
        regression unless `reads` is "texts". If it is "pairs", serving_default is the same.
    tokenize: same inputs as serving_default; returns `input_ids`, `input_mask`, `segment_ids`.
    tokenize_pairs: same inputs as pairs; returns the same as tokenize.

    Args:
        outputs: from `signatures.outputs_of(head, ...)`.
        vocab: the tokens, by id.
        reads: see `ModelInput`.
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
        # The vocabulary may be smaller than the model's.
        probabilities = tf.nn.softmax(found["logits"])[..., : len(vocab)]
        probabilities, ids = tf.math.top_k(probabilities, min(_TOP_K, len(vocab)))  # [N, P, K]
        weights = features["masked_lm_weights"][..., tf.newaxis]
        return {
            "tokens": tf.where(weights > 0, tf.gather(tokens_of, ids), ""),
            "probabilities": probabilities * weights,
        }

    def inputs(features: Tensors) -> dict[str, tf.Tensor]:
        return {name: features[name] for name in INPUTS}

    def traced(
        outputs_of: Callable, features_of: Callable, names: Sequence[str]
    ) -> tf.types.experimental.ConcreteFunction:
        """Returns `outputs_of` as a function of texts, which `features_of` takes by name."""
        specs = {name: tf.TensorSpec([None], tf.string, name) for name in names}
        if "choices" in specs:
            specs["choices"] = tf.TensorSpec([None, None], tf.string, "choices")

        def of_texts(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
            # A signature does not check ranks.
            checked = {name: tf.ensure_shape(x, specs[name].shape) for name, x in texts.items()}
            return outputs_of(features_of(**checked))

        return tf.function(of_texts, autograph=False).get_concrete_function(**specs)

    texts = {
        "squad": (of_questions, ("questions", "contexts")),
        "multiple_choice": (of_choices, ("contexts", "choices")),
        "masked_lm": (text_inputs.masked, ("texts",)),
    }.get(head, (text_inputs, ("texts",)))
    is_classifier = head in ("classification", "regression")
    pairs = text_inputs, ("texts", "second_texts")
    if is_classifier and reads == READS_PAIRS:
        texts = pairs
    found = {DEFAULT_SIGNATURE: traced(answers, *texts), TOKENIZE: traced(inputs, *texts)}
    if head == ENCODER or (is_classifier and reads != READS_TEXTS):
        found |= {PAIRS: traced(answers, *pairs), f"{TOKENIZE}_{PAIRS}": traced(inputs, *pairs)}
    return found
