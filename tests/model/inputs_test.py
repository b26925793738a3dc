"""Tests of bert_tf.model.inputs: the ways to call the models, and what they refuse."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.model.layers import dtype_policy
from bert_tf.modeling import AlbertConfig, BertConfig, BertModel
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.tagging.model import TaggingModel
from tests.support.small_pretraining import SMALL

B, S, T = 3, 7, 2
CONFIG = {**SMALL, "num_hidden_layers": 1, "type_vocab_size": T}
MODELS = {
    "bert": BertModel,
    "classification": lambda config, **options: ClassificationModel(config, 3, **options),
    "tagging": lambda config, **options: TaggingModel(config, 3, **options),
    "extraction": FeaturesModel,
}
every_model = pytest.mark.parametrize("name", MODELS)


@functools.cache
def make(name, **options):
    return MODELS[name](BertConfig.from_dict(CONFIG), **options)


def inputs():
    """Returns ids, a mask with padding and segments, as NumPy makes them."""
    rng = np.random.default_rng(0)
    mask = (np.arange(S) < np.array([[7], [5], [4]])).astype(int)
    return rng.integers(1, 53, (B, S)), mask, rng.integers(0, T, (B, S))


def outputs(model, *args, **kwargs):
    return [x.numpy() for x in tf.nest.flatten(model(*args, **kwargs))]


@every_model
def test_all_ways_to_call_a_model_give_the_same(name):
    model, (ids, mask, segments) = make(name), inputs()
    expected = outputs(model, ids, mask, segments)
    named = [
        {"input_ids": ids, "input_mask": mask, "segment_ids": segments},
        {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments},
        {"input_word_ids": ids, "input_mask": mask, "input_type_ids": segments},
        {"token_ids": ids, "padding_mask": mask, "segment_ids": segments * 1.0},
        {"segment_ids": segments, "input_ids": ids.astype(np.uint16), "input_mask": mask == 1},
    ]
    for features in named:
        for found in (outputs(model, features), outputs(model, **features)):
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    for given in ([ids, mask, segments], (ids, mask, segments)):
        np.testing.assert_array_equal(outputs(model, given)[-1], expected[-1])
    mixed = outputs(model, {"input_ids": ids, "token_type_ids": segments}, attention_mask=mask)
    np.testing.assert_array_equal(mixed[-1], expected[-1])
    unmasked = outputs(model, ids, None, segments)
    assert np.abs(unmasked[-1] - expected[-1]).max() > 1e-6


@every_model
@pytest.mark.parametrize(
    "features, message",
    [
        (
            {"attention_masks": np.ones((B, S))},
            "has no input 'attention_masks'; its inputs are 'inpu",
        ),
        ({"segments": np.ones((B, S))}, "has no input 'segments'"),
        ({"attention_mask": np.ones((B, S)), "input_mask": np.ones((B, S))}, "is another name of"),
        ({"token_type_ids": np.full((B, S), T)}, r"from 0 to 1 \(type_vocab_size\); received 2 at"),
        ({"segment_ids": np.full((B, S), -1)}, r"received -1 at position \[0, 0\]"),
        ({"input_mask": np.full((B, S), 2)}, r"input_mask must be from 0 to 1 .* received 2 at"),
        ({"input_mask": np.ones((1, S))}, r"the shape of input_ids, \[3, 7\]; received \[1, 7\]"),
        ({"segment_ids": np.zeros((S, B))}, r"the shape of input_ids, \[3, 7\]; received \[7, 3\]"),
        ({"segment_ids": np.zeros(S)}, r"the shape of input_ids, \[3, 7\]; received \[7\]"),
        ({"input_mask": np.full((B, S), "a")}, "input_mask must be numbers, not string"),
        (
            {"input_mask": tf.sparse.eye(B, S)},
            "input_mask must be a tensor of numbers: (?s:.*)SparseTensor",
        ),
    ],
)
def test_inputs_that_would_give_wrong_answers_are_refused(name, features, message):
    ids, _, _ = inputs()
    with pytest.raises(UserError, match=message):
        make(name)({"input_ids": ids, **features})


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("wrong", [53.0, -2.0, 1.5])
def test_ids_out_of_range_are_refused_in_every_look_up(one_hot, wrong):
    ids = inputs()[0] * 1.0
    ids[2, 3] = wrong
    for name in ("bert", "classification"):
        with pytest.raises(UserError, match=rf"from 0 to 52 .* received {wrong} at .*\[2, 3\]"):
            make(name, use_one_hot_embeddings=one_hot)(ids)


@pytest.mark.parametrize("name", ["position_ids", "cls_positions"])
def test_positions_of_packed_rows_have_a_range(name):
    ids, mask, _ = inputs()
    packed = {"position_ids": np.zeros((B, S)), "cls_positions": np.zeros((B, 2))}
    assert make("bert")(ids, mask, **packed).pooled_output.shape == (2 * B, 24)
    packed[name][1, 1] = S
    with pytest.raises(UserError, match=rf"{name} must be from 0 to 6 .* at position \[1, 1\]"):
        make("bert")(ids, mask, **packed)
    with pytest.raises(UserError, match="'position_ids'"):
        make("classification")({"input_ids": ids, **packed})


def test_masked_positions_have_a_range_and_choices_a_position_of_three_axes():
    config = BertConfig.from_dict(CONFIG)
    with pytest.raises(UserError, match=r"masked_lm_positions .* received 7 at position \[0, 1\]"):
        PretrainingModel(config)(inputs()[0], masked_lm_positions=[[0, 7], [0, 0], [0, 0]])
    ids = np.stack([inputs()[0]] * 4, 1)
    ids[1, 2, 0] = 99
    with pytest.raises(UserError, match=r"received 99 at position \[1, 2, 0\]"):
        MultipleChoiceModel(config)(ids)


def test_the_layers_check_the_ids_too():
    embeddings = make("bert").embeddings
    with pytest.raises(UserError, match="token_type_ids must be from 0 to 1"):
        embeddings(tf.ones([1, 2], tf.int32), tf.constant([[0, 5]]))


def test_arguments_that_no_call_takes_are_refused():
    ids, mask, _ = inputs()
    model = make("classification")
    with pytest.raises(UserError, match="takes 'input_ids', .*; not 'labels'"):
        model(ids, labels=ids)
    with pytest.raises(UserError, match="received 'input_mask' twice"):
        model([ids, mask], attention_mask=mask)
    with pytest.raises(UserError, match="must have 'input_ids'"):
        make("bert")(input_mask=mask)
    with pytest.raises(UserError, match="tokenize texts first"):
        model(["a text", "another"])
    with pytest.raises(ValueError, match="rank 2, not 1 .* so pass a batch as an array"):
        model([[1, 2], [3, 4]])


def test_graphs_of_a_functional_model_check_ranges():
    bert = make("bert")
    names = ("input_ids", "token_type_ids")
    given = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    model = tf.function(keras.Model(given, bert(given).pooled_output), autograph=False)
    ids, _, segments = inputs()
    right = {"input_ids": tf.constant(ids, tf.int32), "token_type_ids": tf.constant(segments)}
    expected = bert(ids, token_type_ids=segments).pooled_output
    np.testing.assert_allclose(model(right), expected, rtol=1e-5, atol=1e-6)
    message = r"token_type_ids must be from 0 to\] \[1\] \[\(type_vocab_size\); received\] \[2\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model({**right, "token_type_ids": tf.fill([B, S], 2)})
    with pytest.raises(UserError, match="the shape of input_ids"):
        model({**right, "token_type_ids": tf.zeros([1, S], tf.int32)})


# --- shapes, layers, dtypes -----------------------------------------------------------------------


def test_compute_output_shape():
    bert, classifier = make("bert"), make("classification")
    shapes = bert.compute_output_shape((None, S))
    assert shapes.sequence_output == (None, S, 24) and shapes.pooled_output == (None, 24)
    for given in ((4, S), {"input_ids": (4, S), "attention_mask": (4, S)}, [(4, S), (4, S)]):
        assert classifier.compute_output_shape(given) == (4, 3)
    assert classifier.compute_output_shape(input_ids_shape=(4, S)) == (4, 3)
    assert make("tagging").compute_output_shape((None, None)) == (None, None, 3)
    assert bert.encoder.compute_output_shape((2, S, 24))[0] == ((2, S, 24),)
    assert bert.embeddings.compute_output_shape((2, S)) == (2, S, 24)
    config = BertConfig.from_dict(CONFIG)
    found = PretrainingModel(config).compute_output_shape([(2, S), (2, S), (2, S), (2, 5)])
    assert found == ((10, 53), (2, 2))


def test_the_layers_of_an_encoder():
    config = {**CONFIG, "num_hidden_layers": 3}
    bert = BertModel(BertConfig.from_dict(config))
    assert [layer.name for layer in bert.encoder.layers] == ["layer_0", "layer_1", "layer_2"]
    for layer in bert.encoder.layers[:2]:
        layer.trainable = False
    left = {v.path.split("/")[2] for v in bert.encoder.trainable_variables}
    assert left == {"layer_2"}
    albert = BertModel(AlbertConfig.from_dict({**config, "embedding_size": 6}))
    assert len(albert.encoder.layers) == 3 and len(set(map(id, albert.encoder.layers))) == 1


@pytest.mark.parametrize(
    "dtype, policy",
    [
        ("float32", "float32"),
        ("bfloat16", "mixed_bfloat16"),
        ("mixed_bfloat16", "mixed_bfloat16"),
        (keras.DTypePolicy("float32"), "float32"),
        (keras.DTypePolicy("mixed_bfloat16"), "mixed_bfloat16"),
        (tf.bfloat16, "mixed_bfloat16"),
        (np.float32, "float32"),
        (None, "float32"),
    ],
)
def test_a_dtype_is_what_keras_takes(dtype, policy):
    assert dtype_policy(dtype).name == policy


@every_model
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_model_without_a_dtype_has_the_global_policy(name, policy):
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = MODELS[name](BertConfig.from_dict(CONFIG))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    again = type(model).from_config(model.get_config())
    for made in (model, again):
        bert = getattr(made, "bert", made)
        assert {made.dtype_policy.name, bert.dtype_policy.name} == {policy}
        assert bert.encoder.layers[0].dtype_policy.name == policy
        assert {v.dtype for v in made.variables} == {"float32"}


@pytest.mark.parametrize("dtype", ["float16", "mixed_float16", "float64", "int8", "best", 7])
def test_other_dtypes_are_refused(dtype):
    for build in (make, lambda name, dtype: dtype_policy(dtype)):
        with pytest.raises(UserError, match="dtype must be float32, or bfloat16 or mixed_bfloat16"):
            build("classification", dtype=dtype)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with pytest.raises(UserError, match=r"'mixed_float16' \(keras.config.dtype_policy\(\)\)"):
            MODELS["bert"](BertConfig.from_dict(CONFIG))
    finally:
        keras.config.set_dtype_policy("float32")


def test_a_configuration_that_is_a_dictionary_is_refused():
    with pytest.raises(UserError, match="config must be a BertConfig; .*from_dict makes one"):
        ClassificationModel(CONFIG, 3)
