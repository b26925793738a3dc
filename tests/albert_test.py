"""The model of ALBERT, against numpy and golden figures of the original."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.files import checkpoints
from bert_tf.model.albert_configuration import AlbertConfig
from bert_tf.model.family import read_config
from bert_tf.model.freezing import parse_frozen_layers
from bert_tf.tasks.pretraining.schema import MLM_SOP
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import numpy_bert
from tests.support.golden import needs_golden
from tests.support.objectives import compute
from tests.support.small_pretraining import difference, weights_of

MODELS = ("model_gelu", "model_relu")
INPUTS = ("input_ids", "input_mask", "segment_ids")
LABELS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels")


def golden(*names):
    return Path(os.environ["BERT_TF_GOLDEN"]).joinpath("albert", *names)


def build(folder, **options):
    config = read_config(str(folder / "albert_config.json"))
    return PretrainingModel(config, MLM_SOP, **options)


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("groups, inner, width", [(2, 1, 6), (3, 2, 8), (7, 1, 6)])
def test_every_output_against_numpy(groups, inner, width, one_hot):
    config = AlbertConfig(
        vocab_size=31,
        embedding_size=width,
        hidden_size=8,
        num_hidden_layers=5,
        num_hidden_groups=groups,
        inner_group_num=inner,
        num_attention_heads=2,
        intermediate_size=14,
        max_position_embeddings=11,
        type_vocab_size=3,
    )
    model = PretrainingModel(config, use_one_hot_embeddings=one_hot)
    weights = weights_of(model)
    assert any("mapping_in" in name for name in weights) == (width != 8)
    values = numpy_bert.random_weights({n: w.shape for n, w in weights.items()}, seed=2)
    for name, value in values.items():
        weights[name].assign(value)
    rng = np.random.default_rng(5)
    features = {
        "input_ids": rng.integers(31, size=(3, 9)),
        "input_mask": np.arange(9) < np.array([[9], [4], [7]]),
        "segment_ids": rng.integers(3, size=(3, 9)),
        "masked_lm_positions": rng.integers(9, size=(3, 2)),
        "masked_lm_ids": rng.integers(31, size=(3, 2)),
        "masked_lm_weights": np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], np.float32),
        "next_sentence_labels": rng.integers(2, size=(3, 1)),
    }
    expected = numpy_bert.NumpyAlbert(config.to_dict(), values).losses(features)
    typed = {
        name: tf.constant(x, tf.float32 if x.dtype == np.float32 else tf.int32)
        for name, x in features.items()
    }
    output = model.bert(*(typed[name] for name in INPUTS))
    assert len(output.all_encoder_layers) == config.num_layer_outputs == 5 * inner
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert difference(getattr(output, name), expected[name]) < 2e-6, name
    for name in ("all_encoder_layers", "attention_probs"):
        assert difference(tf.stack(getattr(output, name)), np.stack(expected[name])) < 2e-6
    loss, _ = compute(model, typed)
    np.testing.assert_allclose(loss, expected["total_loss"], rtol=2e-6)


@pytest.mark.parametrize(
    "layers, groups, used",
    [(2, 3, [0, 1]), (22, 22, [i for i in range(22) if i != 15]), (3, 5, [0, 1, 3])],
)
def test_only_groups_that_layers_have_are_made(layers, groups, used):
    config = AlbertConfig(
        9,
        embedding_size=4,
        hidden_size=8,
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        num_attention_heads=2,
        intermediate_size=10,
        max_position_embeddings=7,
    )
    scopes = [f"bert/encoder/transformer/group_{i}/" for i in used]
    assert config.layer_scopes == scopes and set(config.layer_groups) == set(used)
    weights = weights_of(PretrainingModel(config))
    names = [name for name in weights if "/group_" in name]
    counts = [sum(name.startswith(scope) for name in names) for scope in scopes]
    assert counts == [16] * len(used) and len(names) == sum(counts)
    is_frozen = parse_frozen_layers(str(len(used) - 1), config.layer_scopes)
    assert {name for name in weights if is_frozen(name)} == {
        name for name in names if name.startswith(scopes[-1])
    }


def test_groups_that_no_layer_has_do_not_count_as_parameters():
    few, many = (
        AlbertConfig(
            9,
            embedding_size=4,
            hidden_size=8,
            num_hidden_layers=2,
            num_hidden_groups=groups,
            num_attention_heads=2,
            intermediate_size=10,
        )
        for groups in (2, 1000)
    )
    assert few._num_parameters() == many._num_parameters()


@needs_golden
@pytest.mark.parametrize("name", ["base_v2", "xxlarge_v2"])
def test_the_variables_are_the_originals(name):
    expected = json.loads(golden(f"{name}_variables.json").read_text())
    config = AlbertConfig.from_dict(expected["config"])
    with tf.Graph().as_default():  # no memory is taken
        model = PretrainingModel(config)
        found = {variable.path: list(variable.shape) for variable in model.variables}
    assert found == expected["variables"]


@needs_golden
@pytest.mark.parametrize("name", MODELS)
def test_every_output_is_the_originals(name):
    model = build(golden(name))
    checkpoints.initialize(weights_of(model), str(golden(name, "model.ckpt-0")))
    arrays = dict(np.load(golden(name, "forward.npz")))
    features = {key: tf.constant(arrays[key]) for key in (*INPUTS, *LABELS)}
    bert = model.bert(*(features[key] for key in INPUTS))
    logits, order_logits = model(features)
    loss, sums = compute(model, features)
    order_loss = sums["sentence_order_loss"][0] / sums["sentence_order_loss"][1]
    outputs = {
        "embedding_output": bert.embedding_output,
        "sequence_output": bert.sequence_output,
        "pooled_output": bert.pooled_output,
        "all_encoder_layers": tf.stack(bert.all_encoder_layers),
        "masked_lm_log_probs": tf.nn.log_softmax(logits),
        "sentence_order_log_probs": tf.nn.log_softmax(order_logits),
        "sentence_order_loss": order_loss,
        "masked_lm_loss": loss - order_loss,
        "total_loss": loss,
    }
    for key, output in outputs.items():
        assert difference(output, arrays[key]) < 2e-6, key


@pytest.mark.slow
@needs_golden
@pytest.mark.parametrize("optimizer, num_steps", [("lamb", 12), ("adamw", 8)])
@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_originals(name, optimizer, num_steps):
    folder = golden(name, optimizer)
    arrays = dict(np.load(folder / "train.npz"))
    one_hot = bool(arrays["use_one_hot_embeddings"])
    model = build(golden(name), use_one_hot_embeddings=one_hot)
    names = ("init_lr", "num_train_steps", "num_warmup_steps", "poly_power", "start_warmup_step")
    schedule = optimization.PolynomialSchedule(*(arrays[key].item() for key in names))
    updates = optimization.create_optimizer(
        model.trainable_variables, schedule, optimization.AdamOptions(str(arrays["optimizer"]))
    )
    variables = {**weights_of(model), **updates.checkpoint_variables()}
    checkpoints.restore(variables, str(golden(name, "model.ckpt-0")))

    @tf.function(jit_compile=True, autograph=False)
    def step(features):
        return steps.train_step(model, updates, features, tf.constant([0, 0]))

    for i in range(num_steps):
        metrics = step({key: tf.constant(arrays[key][i]) for key in (*INPUTS, *LABELS)})
        np.testing.assert_allclose(metrics["loss"], arrays["losses"][i], rtol=1e-6)
        np.testing.assert_allclose(metrics["learning_rate"], arrays["learning_rates"][i], rtol=1e-6)
        np.testing.assert_allclose(metrics["gradient_norm"], arrays["gradient_norms"][i], rtol=1e-6)

    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{num_steps}"))
    assert set(variables) == set(reader.get_variable_to_shape_map())
    assert updates.global_step.numpy() == reader.get_tensor("global_step") == num_steps
    for key, variable in variables.items():
        if "key/bias" not in key:  # its gradient is rounding noise, of which Adam makes a step
            assert difference(variable.numpy(), reader.get_tensor(key)) < 2e-5, key
