"""ELECTRA's two models of many sizes, against numpy.

Rows of padding alone, one layer, one row, and a generator with other embeddings are among them.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.family import ElectraConfig
from bert_tf.tasks.pretraining.training.dynamic_masking import ElectraMasking
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from tests.support.numpy_bert import NumpyBert, gelu_erf, layer_norm
from tests.support.objectives import set_random_weights
from tests.support.small_pretraining import SMALL, difference

LENGTH, LIMIT, VOCAB = 17, 4, SMALL["vocab_size"]


def sizes(hidden, heads, layers, width):
    names = "hidden_size num_attention_heads num_hidden_layers embedding_size".split()
    own = dict(zip(names, (hidden, heads, layers, width), strict=True))
    return {**SMALL, **own, "max_position_embeddings": 20}


CASES = {
    "one row, a generator of one head and all layers": (sizes(30, 3, 2, 8), {}, [17]),
    "one layer, two heads as wide as the embeddings": (
        *(sizes(256, 4, 1, 128), {"generator_hidden_size": 0.5}, [5, 0]),
    ),
    "half the layers, as wide as the model": (
        *(sizes(64, 2, 2, 10), {"generator_hidden_size": 1.0, "generator_layers": 0.5}, [9, 4, 17]),
    ),
    "wider, of its own embeddings": (
        sizes(24, 2, 2, None),
        {
            **{"generator_hidden_size": 3.0, "untied_generator_embeddings": True},
            **{"temperature": 0.7, "gen_weight": 3.0},
        },
        [0, 12],
    ),
    "tied, never right": (
        *(sizes(24, 4, 2, 7), {"untied_generator": False, "disallow_correct": True}, [2, 17]),
    ),
    "uniform": (sizes(24, 4, 2, 7), {"uniform_generator": True, "disc_weight": 7.0}, [6, 11]),
}


class GivenNoise(ElectraPretrainingModel):
    """Samples with the noise of a case."""

    noise = None

    def uniform_noise(self, shape, seed):
        return tf.constant(self.noise)


def hidden_of(weights, config, scope, tables, features):
    """Returns a model's last layer; `tables` is the scope of its embeddings."""
    names = {name: f"bert/{name.removeprefix(f'{scope}/')}" for name in weights}
    values = config.to_dict()
    if scope == "generator":
        values["num_attention_heads"] = max(1, config.hidden_size // 64)
    model = NumpyBert(values, {names[name]: weights[name] for name in weights})
    ids, mask, segments = features
    x = weights[f"{tables}/embeddings/word_embeddings"][ids]
    x = x + weights[f"{tables}/embeddings/token_type_embeddings"][segments]
    x = x + weights[f"{tables}/embeddings/position_embeddings"][: ids.shape[1]]
    norm = (weights[f"{tables}/embeddings/LayerNorm/{name}"] for name in ("gamma", "beta"))
    x = layer_norm(x, *norm)
    if config.hidden_size != x.shape[-1]:
        x = model.dense(x, "bert/embeddings_project")
    return model.encode(x, mask)["sequence_output"]


def logits_of_numpy(model, weights, features, places):
    """Returns the generator's logits, float64 [B, P, V]."""
    if model.generator is None:
        return np.zeros((*places.shape, VOCAB))
    untied = "generator/embeddings/word_embeddings" in weights
    tables = "generator" if untied else "electra"
    is_tied = model.generator is model.bert
    scope = "electra" if is_tied else "generator"
    hidden = hidden_of(weights, model.generator.config, scope, tables, features)
    hidden = np.take_along_axis(hidden, places[..., np.newaxis], 1)
    head = "generator_predictions"
    hidden = gelu_erf(hidden @ weights[f"{head}/dense/kernel"] + weights[f"{head}/dense/bias"])
    hidden = layer_norm(hidden, *(weights[f"{head}/LayerNorm/{x}"] for x in ("gamma", "beta")))
    table = weights[f"{tables}/embeddings/word_embeddings"]
    return hidden @ table.T + weights[f"{head}/output_bias"]


def with_samples(ids, sampled, places):
    """Returns ids with the floor of the mean of the samples at each place but the first."""
    found = ids.copy()
    for row, own_places in enumerate(places):
        for place in set(own_places.tolist()) - {0}:
            found[row, place] = sampled[row, own_places == place].sum() // np.sum(
                own_places == place
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_both_models_are_numpy_s(case):
    config, options, lengths = CASES[case]
    model = GivenNoise(ElectraConfig.from_dict(config), **options)
    weights = {k: np.float64(v) for k, v in set_random_weights(model, seed=4).items()}
    rng = np.random.default_rng(5)
    mask = (np.arange(LENGTH) < np.array(lengths)[:, np.newaxis]).astype(np.int32)
    ids = rng.integers(5, VOCAB, mask.shape).astype(np.int32) * mask
    segments = rng.integers(0, 2, mask.shape).astype(np.int32) * mask
    drawn = rng.integers(1, np.maximum(lengths, 2)[:, np.newaxis], (len(lengths), LIMIT))
    noise = rng.random(drawn.shape).astype(np.float32)
    names = ("input_ids", "input_mask", "segment_ids")
    given = dict(zip(names, map(tf.constant, (ids, mask, segments)), strict=True))
    positions = tf.constant(drawn.astype(np.int32))
    features = ElectraMasking(4, (4, 2, 3), LIMIT, 0.25).mask(given, positions, noise)
    GivenNoise.noise = rng.random((*drawn.shape, VOCAB)).astype(np.float32)
    outputs = model(features)
    masked, places, right_ids, counted = (
        features[name].numpy()
        for name in ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    )

    logits = logits_of_numpy(model, weights, (masked, mask, segments), places)
    assert difference(tf.reshape(outputs.masked_lm_logits, logits.shape), logits) < 1e-4
    scores = logits / options.get("temperature", 1.0)
    if "disallow_correct" in options:
        scores = scores - 1000.0 * np.eye(VOCAB)[right_ids]
    scores = scores - np.log(-np.log(np.float64(GivenNoise.noise) + 1e-9) + 1e-9)
    np.testing.assert_array_equal(outputs.sampled_ids, scores.argmax(-1))
    fake = with_samples(ids, scores.argmax(-1), places)
    np.testing.assert_array_equal(outputs.fake_input_ids, fake)
    np.testing.assert_array_equal(outputs.labels, fake != ids)
    hidden = hidden_of(weights, model.bert.config, "electra", "electra", (fake, mask, segments))
    for name, act in (("dense", gelu_erf), ("dense_1", lambda x: x)):
        scope = f"discriminator_predictions/{name}"
        hidden = act(hidden @ weights[f"{scope}/kernel"] + weights[f"{scope}/bias"])
    found = hidden[..., 0]
    assert difference(outputs.logits, found) < 1e-4

    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -(np.take_along_axis(log_probs, right_ids[..., np.newaxis], -1)[..., 0] * counted).sum()
    loss *= options.get("gen_weight", 1.0) / (counted.sum() + 1e-6)
    by_token = (np.logaddexp(0.0, found) - (fake != ids) * found) * mask
    loss += options.get("disc_weight", 50.0) * by_token.sum() / (mask.sum() + 1e-6)
    features["example_weight"] = tf.ones(len(lengths))
    total, _ = model.loss_and_metrics(outputs, features, model.normalizers(features))
    assert difference(total, loss) < 1e-5
