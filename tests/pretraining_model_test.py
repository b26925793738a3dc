"""Tests of bert_tf.tasks.pretraining.model and bert_tf.steps, golden figures included."""

import os
import pathlib

import keras
import numpy as np
import numpy_bert
import pytest
import tensorflow as tf

from bert_tf import checkpoints, optimization, steps
from bert_tf.modeling import BertConfig
from bert_tf.tasks.pretraining.model import PretrainingModel, PretrainingTask, cross_entropy

GOLDEN = pathlib.Path(__file__).parent / "golden"
MODELS = ("model_gelu", "model_relu")
FEATURES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)
B, S, P = 2, 7, 5
SMALL = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 11,
    "type_vocab_size": 4,
}
SMALL_SHAPES = {
    "bert/embeddings/word_embeddings": [53, 24],
    "bert/embeddings/token_type_embeddings": [4, 24],
    "bert/embeddings/position_embeddings": [11, 24],
    "bert/embeddings/LayerNorm/beta": [24],
    "bert/embeddings/LayerNorm/gamma": [24],
    **{
        f"bert/encoder/layer_{layer}/{name}": shape
        for layer in range(2)
        for name, shape in {
            "attention/self/query/kernel": [24, 24],
            "attention/self/query/bias": [24],
            "attention/self/key/kernel": [24, 24],
            "attention/self/key/bias": [24],
            "attention/self/value/kernel": [24, 24],
            "attention/self/value/bias": [24],
            "attention/output/dense/kernel": [24, 24],
            "attention/output/dense/bias": [24],
            "attention/output/LayerNorm/beta": [24],
            "attention/output/LayerNorm/gamma": [24],
            "intermediate/dense/kernel": [24, 20],
            "intermediate/dense/bias": [20],
            "output/dense/kernel": [20, 24],
            "output/dense/bias": [24],
            "output/LayerNorm/beta": [24],
            "output/LayerNorm/gamma": [24],
        }.items()
    },
    "bert/pooler/dense/kernel": [24, 24],
    "bert/pooler/dense/bias": [24],
    "cls/predictions/transform/dense/kernel": [24, 24],
    "cls/predictions/transform/dense/bias": [24],
    "cls/predictions/transform/LayerNorm/beta": [24],
    "cls/predictions/transform/LayerNorm/gamma": [24],
    "cls/predictions/output_bias": [53],
    "cls/seq_relationship/output_weights": [2, 24],
    "cls/seq_relationship/output_bias": [2],
}


def _difference(actual, expected):
    """Returns the largest difference as a share of the largest expected value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    return np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-30)


def _weights(model):
    return {variable.path: variable.value for variable in model.variables}


def _golden(name, recompute_activations=False):
    """Returns folder, task and model of a golden folder; the weights are those of step 0."""
    folder = GOLDEN / name
    config = BertConfig.from_json_file(str(folder / "bert_config.json"))
    task = PretrainingTask(config, recompute_activations=recompute_activations)
    model = task.build_model()
    checkpoints.initialize(_weights(model), str(folder / "model.ckpt-0"))
    return folder, task, model


def _features(seed=0, batch_size=B):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, S + 1, size=(batch_size, 1))
    weights = rng.choice([0.0, 0.25, 1.0], size=(batch_size, P)).astype(np.float32)
    weights[:, 0] = 0.5
    return {
        "input_ids": rng.integers(0, 53, (batch_size, S), dtype=np.int32),
        "input_mask": (np.arange(S) < lengths).astype(np.int32),
        "segment_ids": rng.integers(0, 4, (batch_size, S), dtype=np.int32),
        "masked_lm_positions": rng.integers(0, S, (batch_size, P), dtype=np.int32),
        "masked_lm_ids": rng.integers(0, 53, (batch_size, P), dtype=np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1), dtype=np.int32),
    }


def _tensors(features):
    return {name: tf.constant(x) for name, x in features.items()}


def _small(seed=0, **changes):
    """Returns the task, the model and the numpy model of the same random weights."""
    config = {**SMALL, **changes}
    task = PretrainingTask(BertConfig.from_dict(config))
    model = task.build_model()
    weights = numpy_bert.random_weights({v.path: v.shape for v in model.variables}, seed)
    for name, variable in _weights(model).items():
        variable.assign(weights[name])
    return task, model, numpy_bert.NumpyBert(config, weights)


def _outputs(task, model, features):
    """Returns what the original's pre-training graph computes, by the original's names."""
    bert = model.bert(features["input_ids"], features["input_mask"], features["segment_ids"])
    normalizers = task.normalizers(features)
    loss, sums = task.loss_and_metrics(model, features, normalizers, False, None)
    masked_lm_logits, next_sentence_logits = model(
        *(features[name] for name in FEATURES[:4]), training=False
    )
    example_loss, log_probs = cross_entropy(masked_lm_logits, features["masked_lm_ids"])
    _, next_log_probs = cross_entropy(next_sentence_logits, features["next_sentence_labels"])
    return {
        "embedding_output": bert.get_embedding_output(),
        "sequence_output": bert.get_sequence_output(),
        "pooled_output": bert.get_pooled_output(),
        "all_encoder_layers": tf.stack(bert.get_all_encoder_layers()),
        "masked_lm_loss": sums["masked_lm_loss"][0] / normalizers["masked_lm"],
        "masked_lm_example_loss": example_loss,
        "masked_lm_log_probs": log_probs,
        "next_sentence_loss": sums["next_sentence_loss"][0] / normalizers["next_sentence"],
        "next_sentence_log_probs": next_log_probs,
        "total_loss": loss,
    }


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_every_output_is_the_originals(name, jit_compile):
    folder, task, model = _golden(name)
    arrays = np.load(folder / "forward.npz")
    features = {key: tf.constant(arrays[key]) for key in FEATURES}
    compute = tf.function(lambda f: _outputs(task, model, f), jit_compile=jit_compile)
    outputs = compute(features)
    assert set(outputs) | set(FEATURES) == set(arrays)
    for key, output in outputs.items():
        assert _difference(output, arrays[key]) < 2e-6, key


@pytest.mark.parametrize("name", MODELS)
def test_the_numpy_model_gives_the_originals_outputs_too(name):
    arrays = dict(np.load(GOLDEN / name / "forward.npz"))
    config = BertConfig.from_json_file(str(GOLDEN / name / "bert_config.json")).to_dict()
    reader = tf.train.load_checkpoint(str(GOLDEN / name / "model.ckpt-0"))
    weights = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    outputs = numpy_bert.NumpyBert(config, weights).losses(arrays)
    for key in set(arrays) - set(FEATURES):
        assert _difference(outputs[key], arrays[key]) < 2e-6, key


@pytest.mark.parametrize(
    "name,accumulation_steps,recompute_activations",
    [
        ("model_gelu", 1, False),
        ("model_relu", 1, False),
        ("model_gelu", 2, False),
        ("model_relu", 5, False),
        ("model_gelu", 1, True),
        ("model_relu", 1, True),
    ],
)
def test_training_is_the_originals(name, accumulation_steps, recompute_activations):
    folder, task, model = _golden(name, recompute_activations)
    arrays = dict(np.load(folder / "train.npz"))
    num_steps = len(arrays["losses"])
    schedule = optimization.linear_schedule(
        float(arrays["init_lr"]), int(arrays["num_train_steps"]), int(arrays["num_warmup_steps"])
    )
    optimizer = optimization.create_optimizer(model.trainable_variables, schedule)
    variables = {**_weights(model), **optimizer.variables}
    checkpoints.restore(variables, str(folder / "model.ckpt-0"))

    @tf.function(jit_compile=True, autograph=False)
    def step(features):
        seed = tf.constant([0, 0])
        return steps.train_step(task, model, optimizer, features, seed, accumulation_steps)

    for i in range(num_steps):
        metrics = step({key: tf.constant(arrays[key][i]) for key in FEATURES})
        np.testing.assert_allclose(metrics["loss"], arrays["losses"][i], rtol=1e-6)
        np.testing.assert_allclose(metrics["learning_rate"], schedule(i), rtol=1e-6)

    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{num_steps}"))
    assert set(variables) == set(reader.get_variable_to_shape_map())
    assert optimizer.global_step.numpy() == reader.get_tensor("global_step") == num_steps
    for key, variable in variables.items():
        if "key/bias" not in key:  # its gradient is rounding noise, of which Adam makes a step
            assert _difference(variable.numpy(), reader.get_tensor(key)) < 2e-5, key


def test_variables_of_a_small_model():
    model = PretrainingModel(BertConfig.from_dict(SMALL))
    assert {v.path: list(v.shape) for v in model.variables} == SMALL_SHAPES
    assert {v.dtype for v in model.variables} == {"float32"}
    assert [v.path for v in model.trainable_variables] == [v.path for v in model.variables]


def test_variables_of_a_bfloat16_model_are_the_same():
    model = PretrainingModel(BertConfig.from_dict(SMALL), dtype="bfloat16")
    assert {v.path: list(v.shape) for v in model.variables} == SMALL_SHAPES
    assert {v.dtype for v in model.variables} == {"float32"}


def test_variables_are_those_of_the_released_checkpoints():
    if not os.environ.get("BERT_TF_GOLDEN"):
        pytest.skip("the environment variable BERT_TF_GOLDEN is not set")
    indices = sorted(
        (pathlib.Path(os.environ["BERT_TF_GOLDEN"]).parent / "released").glob("*/*.index")
    )
    assert len(indices) == 2
    for index in indices:
        config = BertConfig.from_json_file(str(index.parent / "bert_config.json"))
        # A scope in which no value is computed: BERT-Base would take its time.
        with keras.StatelessScope():
            model = PretrainingModel(config)
        prefix = str(index).removesuffix(".index")
        expected = dict(tf.train.list_variables(prefix))
        expected.pop("global_step", None)
        assert {v.path: list(v.shape) for v in model.variables} == expected
        dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
        assert {v.path: v.dtype for v in model.variables} == {
            name: dtypes[name].name for name in expected
        }


def test_initial_values():
    keras.utils.set_random_seed(7)
    model = PretrainingModel(BertConfig.from_dict({**SMALL, "vocab_size": 999}))
    values = {v.path: v.numpy() for v in model.variables}
    by_shape = {}
    for name, value in values.items():
        if name.endswith("gamma"):
            assert (value == 1.0).all(), name
        elif name.endswith(("beta", "bias")):
            assert (value == 0.0).all(), name
        else:
            # Of a normal distribution of deviation 0.02 cut off at 2 deviations.
            assert np.abs(value).max() <= 0.04, name
            if value.size > 400:
                assert np.abs(value).max() > 0.036, name
                assert abs(value.std() - 0.0176) < 0.0015, name
                assert abs(value.mean()) < 0.003, name
            by_shape.setdefault(value.shape, []).append(value)
    assert len(by_shape[(24, 24)]) == 2 * 4 + 2
    for same_shape in by_shape.values():
        assert len({value.tobytes() for value in same_shape}) == len(same_shape)
    keras.utils.set_random_seed(7)
    again = PretrainingModel(BertConfig.from_dict({**SMALL, "vocab_size": 999}))
    for variable in again.variables:
        np.testing.assert_array_equal(variable.numpy(), values[variable.path])
    keras.utils.set_random_seed(8)
    other = PretrainingModel(BertConfig.from_dict({**SMALL, "vocab_size": 999}))
    name = "bert/pooler/dense/kernel"
    assert (_weights(other)[name].numpy() != values[name]).mean() > 0.99


def test_initializer_range_comes_from_the_configuration():
    config = BertConfig.from_dict({**SMALL, "vocab_size": 999, "initializer_range": 0.5})
    for variable in PretrainingModel(config).variables:
        if len(variable.shape) == 2 and np.prod(variable.shape) > 500:
            assert 0.4 < variable.numpy().std() < 0.48, variable.path


@pytest.mark.parametrize("seed", range(3))
def test_outputs_against_numpy(seed):
    task, model, reference = _small(seed)
    features = _features(seed)
    outputs = _outputs(task, model, _tensors(features))
    expected = reference.losses(features)
    for key, output in outputs.items():
        assert _difference(output, expected[key]) < 2e-5, key


def test_activation_of_the_masked_lm_transform_is_the_configurations():
    features = _features(1)
    losses = {}
    for act in ("gelu", "relu", "tanh"):
        task, model, reference = _small(1, hidden_act=act)
        loss = _outputs(task, model, _tensors(features))["masked_lm_loss"].numpy()
        np.testing.assert_allclose(loss, reference.losses(features)["masked_lm_loss"], rtol=1e-5)
        losses[act] = loss
    assert len(set(losses.values())) == 3


@pytest.mark.parametrize("weight", [1.0, 1e-3, 1e-5, 1e-6])
def test_masked_lm_denominator_has_its_1e_5(weight):
    task, model, reference = _small(2)
    features = _features(2)
    features["masked_lm_weights"] = np.zeros((B, P), np.float32)
    features["masked_lm_weights"][1, 3] = weight
    outputs = _outputs(task, model, _tensors(features))
    example_loss = reference.losses(features)["masked_lm_example_loss"][P + 3]
    expected = example_loss * weight / (weight + 1e-5)
    np.testing.assert_allclose(outputs["masked_lm_loss"], expected, rtol=1e-5)


def test_without_any_prediction_the_masked_lm_loss_is_0():
    task, model, _ = _small(3)
    features = _features(3)
    features["masked_lm_weights"] = np.zeros((B, P), np.float32)
    features = _tensors(features)
    with tf.GradientTape() as tape:
        loss, sums = task.loss_and_metrics(
            model, features, task.normalizers(features), training=False, dropout_seed=None
        )
    next_sentence_loss, weight = sums["next_sentence_loss"]
    assert loss.numpy() == next_sentence_loss.numpy() / weight.numpy()
    assert [x.numpy() for x in sums["masked_lm_loss"]] == [0.0, 0.0]
    assert not tape.gradient(loss, model.cls.predictions.output_bias.value).numpy().any()


def test_metrics_against_numpy():
    task, model, reference = _small(4)
    features = _features(4, batch_size=9)
    expected = reference.losses(features)
    # Every other label is what the model says, or accuracy would be 0.
    said = expected["masked_lm_log_probs"].argmax(-1).reshape(9, P)
    features["masked_lm_ids"][::2] = said[::2]
    features["next_sentence_labels"][::2, 0] = expected["next_sentence_log_probs"].argmax(-1)[::2]
    expected = reference.losses(features)
    _, sums = task.loss_and_metrics(
        model, _tensors(features), {"masked_lm": 3.0, "next_sentence": 4.0}, False, None
    )
    weights = features["masked_lm_weights"].reshape(-1)
    right = expected["masked_lm_log_probs"].argmax(-1) == features["masked_lm_ids"].reshape(-1)
    next_labels = features["next_sentence_labels"].reshape(-1)
    next_right = expected["next_sentence_log_probs"].argmax(-1) == next_labels
    for name, (numerator, denominator) in {
        "masked_lm_loss": ((weights * expected["masked_lm_example_loss"]).sum(), weights.sum()),
        "masked_lm_accuracy": ((weights * right).sum(), weights.sum()),
        "next_sentence_loss": (expected["next_sentence_loss"] * 9, 9),
        "next_sentence_accuracy": (next_right.sum(), 9),
    }.items():
        np.testing.assert_allclose(sums[name][0], numerator, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(sums[name][1], denominator, rtol=1e-5, err_msg=name)
    assert 5 <= next_right.sum() < 9 and 25 <= right.sum() < 45


def test_examples_of_weight_0_do_not_count_in_an_evaluation():
    task, model, _ = _small(5)
    features = _features(5, batch_size=4)
    three = {name: tf.constant(x[:3]) for name, x in features.items()}
    three["example_weight"] = tf.ones([3])
    padded = {**_tensors(features), "example_weight": tf.constant([1.0, 1.0, 1.0, 0.0])}
    expected = steps.evaluation_step(task, model, three)
    actual = steps.evaluation_step(task, model, padded)
    assert list(actual) == list(expected)
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, err_msg=name)


def test_a_batch_of_nothing_but_padding_adds_0_to_an_evaluation():
    task, model, _ = _small(6)
    features = {**_tensors(_features(6)), "example_weight": tf.zeros([B])}
    for name, sums in steps.evaluation_step(task, model, features).items():
        assert [x.numpy() for x in sums] == [0.0, 0.0], name


def test_accumulation_leaves_a_variable_without_gradient_as_it_is():
    class FirstTokenTask:
        """A loss that does not reach the pooler nor the heads."""

        def normalizers(self, features):
            return {"rows": tf.cast(tf.shape(features["input_ids"])[0], tf.float32)}

        def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
            first = model.bert(features["input_ids"]).sequence_output[:, 0]
            return tf.reduce_sum(first**4) / normalizers["rows"], {}

    results = []
    for accumulation_steps in (1, 3):
        _, model, reference = _small(7)
        optimizer = optimization.create_optimizer(
            model.trainable_variables, optimization.linear_schedule(0.01, 9, 0)
        )
        features = {"input_ids": tf.constant(_features(7, batch_size=6)["input_ids"])}
        metrics = steps.train_step(
            FirstTokenTask(), model, optimizer, features, tf.constant([0, 0]), accumulation_steps
        )
        results.append((metrics, {n: v.numpy() for n, v in _weights(model).items()}))
    (whole, expected), (parts, actual) = results
    np.testing.assert_allclose(parts["loss"], whole["loss"], rtol=1e-6)
    for name, value in actual.items():
        if "key/bias" not in name:
            assert _difference(value, expected[name]) < 1e-5, name
    initial = reference.weights["bert/pooler/dense/kernel"]
    # Not even decayed: the optimizer passes over it, as the original's does.
    np.testing.assert_array_equal(actual["bert/pooler/dense/kernel"], initial)


def test_accumulation_normalizes_by_the_whole_batch():
    """The parts hold unequal weights, so that a mean of their means would be another number."""
    task, model, reference = _small(8)
    features = _features(8, batch_size=4)
    features["masked_lm_weights"][:2] *= 0.125
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    metrics = steps.train_step(
        task, model, optimizer, _tensors(features), tf.constant([0, 0]), accumulation_steps=2
    )
    expected = reference.losses(features)
    np.testing.assert_allclose(metrics["loss"], expected["total_loss"], rtol=1e-5)
    numerator, denominator = metrics["masked_lm_loss"]
    weight = features["masked_lm_weights"].sum()
    np.testing.assert_allclose(denominator, weight, rtol=1e-6)
    np.testing.assert_allclose(
        numerator / (denominator + 1e-5), expected["masked_lm_loss"], rtol=1e-5
    )


def test_gradient_norm_is_that_before_clipping_and_the_update_that_after():
    task, model, _ = _small(9)
    features = _tensors(_features(9))
    optimizer = optimization.AdamWeightDecayOptimizer(
        model.trainable_variables, lambda step: tf.constant(0.0)
    )
    with tf.GradientTape() as tape:
        loss, _ = task.loss_and_metrics(model, features, task.normalizers(features), True, None)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    norm = np.sqrt(sum(np.sum(tf.convert_to_tensor(g).numpy() ** 2.0) for g in gradients))
    assert norm > 1.5
    metrics = steps.train_step(task, model, optimizer, features, tf.constant([0, 0]))
    np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-5)
    moments = [v.numpy() for n, v in optimizer.variables.items() if n.endswith("adam_m")]
    clipped = np.sqrt(sum(np.sum((m / 0.1) ** 2) for m in moments))
    np.testing.assert_allclose(clipped, 1.0, rtol=1e-5)


def test_dropout_of_a_step_follows_from_seed_and_step():
    changes = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
    task, model, _ = _small(10, num_hidden_layers=1, **changes)
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    features = _tensors(_features(10))

    def loss(seed, step, accumulation_steps=1, jit_compile=False):
        @tf.function(jit_compile=jit_compile, autograph=False)
        def compute():
            return steps.train_step(
                task, model, optimizer, features, tf.constant(seed), accumulation_steps
            )["loss"]

        optimizer.global_step.assign(step)
        return float(compute())

    first = loss([3, 4], 0)
    assert loss([3, 4], 0) == first
    np.testing.assert_allclose(loss([3, 4], 0, jit_compile=True), first, rtol=1e-6)
    every = [first, loss([3, 4], 1), loss([3, 5], 0), loss([4, 4], 0), loss([3, 4], 0, 2)]
    assert len({round(x, 4) for x in every}) == len(every)


def test_losses_of_a_bfloat16_model_are_float32_and_near():
    task, model, reference = _small(11)
    half = PretrainingTask(task.config, dtype="bfloat16")
    half_model = half.build_model()
    for variable in half_model.variables:
        variable.assign(_weights(model)[variable.path])
    features = _features(11)
    outputs = _outputs(half, half_model, _tensors(features))
    expected = reference.losses(features)
    for name in ("total_loss", "masked_lm_log_probs", "next_sentence_log_probs"):
        assert outputs[name].dtype == tf.float32
        assert _difference(outputs[name], expected[name]) < 0.05, name
    features = _tensors(features)
    optimizer = optimization.create_optimizer(half_model.trainable_variables, lambda step: 0.0)
    loss = steps.train_step(half, half_model, optimizer, features, tf.constant([0, 0]))["loss"]
    assert _difference(loss, expected["total_loss"]) < 0.05
    assert {v.dtype for n, v in optimizer.variables.items() if n != "global_step"} == {tf.float32}
