"""Tests of bert_tf.model.inputs: ways to call models, what they refuse, and ranges under XLA."""

import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked
from bert_tf.errors import UserError
from bert_tf.model.inputs import finite, get_shape_list, in_range, shaped
from bert_tf.model.layers import dtype_policy
from bert_tf.modeling import AlbertConfig, BertConfig, BertModel
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.tagging.model import TaggingModel
from tests.support.refusals import refusal
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


WRONG = [
    ({"attention_masks": np.ones((B, S))}, "has no input 'attention_masks'; its inputs are 'inpu"),
    ({"segments": np.ones((B, S))}, "has no input 'segments'"),
    (
        {"attention_mask": np.ones((B, S)), "input_mask": np.ones((B, S))},
        ": both name one input",
    ),
    ({"token_type_ids": np.full((B, S), T)}, "from 0 to 1 (type_vocab_size); received 2 at"),
    ({"segment_ids": np.full((B, S), -1)}, "received -1 at position [0, 0]"),
    (
        {"input_mask": np.full((B, S), 2)},
        "_mask must be from 0 to 1 (0 for padding); received 2 at",
    ),
    ({"input_mask": np.ones((1, S))}, "the shape of input_ids, [3, 7]; received [1, 7]"),
    ({"segment_ids": np.zeros((S, B))}, "the shape of input_ids, [3, 7]; received [7, 3]"),
    ({"segment_ids": np.zeros(S)}, "the shape of input_ids, [3, 7]; received [7]"),
    ({"input_mask": np.full((B, S), "a")}, "input_mask must be numbers, not string"),
    ({"input_mask": tf.sparse.eye(B, S)}, "input_mask must be a tensor of numbers: "),
]


@every_model
def test_inputs_that_would_give_wrong_answers_are_refused(name):
    for features, message in WRONG:
        told = refusal(make(name), {"input_ids": inputs()[0], **features})
        assert message in told and ("SparseTensor" in told) == message.endswith(": ")


@pytest.mark.parametrize("one_hot", [False, True])
def test_ids_out_of_range_are_refused_in_every_look_up(one_hot):
    for wrong in (53.0, -2.0, 1.5):
        ids = inputs()[0] * 1.0
        ids[2, 3] = wrong
        for name in ("bert", "classification"):
            model = make(name, use_one_hot_embeddings=one_hot)
            assert re.search(
                rf"from 0 to 52 .* received {wrong} at .*\[2, 3\]", refusal(model, ids)
            )


def test_positions_have_a_range():
    """Of packed rows, of masks, and of choices, which have three axes; layers check it too."""
    ids, mask, _ = inputs()
    zeros = {"position_ids": np.zeros((B, S)), "cls_positions": np.zeros((B, 2))}
    assert make("bert")(ids, mask, **zeros).pooled_output.shape == (2 * B, 24)
    for name, value in zeros.items():
        packed = {**zeros, name: value.copy()}
        packed[name][1, 1] = S
        told = refusal(make("bert"), ids, mask, **packed)
        assert re.search(rf"{name} must be from 0 to 6 .* at position \[1, 1\]", told)
    assert "'position_ids'" in refusal(make("classification"), {"input_ids": ids, **packed})
    config = BertConfig.from_dict(CONFIG)
    told = refusal(PretrainingModel(config), ids, masked_lm_positions=[[0, 7], [0, 0], [0, 0]])
    assert re.search(r"masked_lm_positions .* received 7 at position \[0, 1\]", told)
    choices = np.stack([ids] * 4, 1)
    choices[1, 2, 0] = 99
    told = refusal(MultipleChoiceModel(config), choices)
    assert "received 99 at position [1, 2, 0]" in told
    told = refusal(make("bert").embeddings, tf.ones([1, 2], tf.int32), tf.constant([[0, 5]]))
    assert "token_type_ids must be from 0 to 1" in told


def test_arguments_that_no_call_takes_are_refused():
    ids, mask, _ = inputs()
    model = make("classification")
    assert re.search("takes 'input_ids', .*; not 'labels'", refusal(model, ids, labels=ids))
    assert "received 'input_mask' twice" in refusal(model, [ids, mask], attention_mask=mask)
    assert "must have 'input_ids'" in refusal(make("bert"), input_mask=mask)
    assert "tokenize texts first" in refusal(model, ["a text", "another"])
    told = refusal(model, [[1, 2], [3, 4]], kind=ValueError)
    assert re.search("rank 2, not 1 .* so pass a batch as an array", told)
    told = refusal(ClassificationModel, CONFIG, 3)
    assert re.search("config must be a BertConfig; .*from_dict makes one", told)


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
    told = refusal(model, {**right, "token_type_ids": tf.zeros([1, S], tf.int32)})
    assert "the shape of input_ids" in told


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


def test_a_dtype_is_what_keras_takes():
    policies = {name: keras.DTypePolicy(name) for name in ("float32", "mixed_bfloat16")}
    for dtype in ("float32", policies["float32"], np.float32, None):
        assert dtype_policy(dtype).name == "float32"
    for dtype in ("bfloat16", "mixed_bfloat16", policies["mixed_bfloat16"], tf.bfloat16):
        assert dtype_policy(dtype).name == "mixed_bfloat16"


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


def test_other_dtypes_are_refused():
    for dtype in ("float16", "mixed_float16", "float64", "int8", "best", 7):
        for build in (make, lambda name, dtype: dtype_policy(dtype)):
            told = refusal(build, "classification", dtype=dtype)
            assert "dtype must be float32, or bfloat16 or mixed_bfloat16" in told
    keras.config.set_dtype_policy("mixed_float16")
    try:
        told = refusal(MODELS["bert"], BertConfig.from_dict(CONFIG))
        assert "'mixed_float16' (keras.config.dtype_policy())" in told
    finally:
        keras.config.set_dtype_policy("float32")


def check(numbers, below=3, counted=None):
    return in_range(tf.convert_to_tensor(numbers), "ids", below, "vocab_size", counted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float16", "float64"])
def test_numbers_in_range_are_returned_as_int32(dtype):
    found = check(np.array([[0, 1], [2, 0]], dtype), below=300 if dtype == "uint8" else 3)
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, [[0, 1], [2, 0]])


@pytest.mark.parametrize(
    "numbers, message",
    [
        ([0, 2, 3], r"ids must be from 0 to 2 \(vocab_size\); received 3 at position \[2\]"),
        ([[0, 1], [-1, 9]], r"received -1 at position \[1, 0\]"),
        ([[[0, 1]], [[2, 2**32 + 1]]], r"received 4294967297 at position \[1, 0, 1\]"),
        ([0.0, 0.5], r"received 0.5 at position \[1\]"),
        ([1.0, np.nan], r"received nan at position \[1\]"),
        (np.array([255], np.uint8), r"received 255 at position \[0\]"),
    ],
)
def test_the_first_wrong_number_is_told_with_its_position(numbers, message):
    with pytest.raises(UserError, match=message):
        check(numbers)
    graph = tf.function(check, autograph=False)
    text = refusal(graph, tf.convert_to_tensor(numbers), kind=tf.errors.InvalidArgumentError)
    assert "ids must be from 0 to" in text and "vocab_size" in text and "at position" in text


def test_numbers_that_do_not_count_may_be_any():
    counted = tf.constant([True, False])
    np.testing.assert_array_equal(check([1, -100], counted=counted), [1, -100])
    with pytest.raises(UserError, match=r"received -100 at position \[0\]"):
        check([-100, 1], counted=counted)


def test_a_graph_takes_batches_of_any_size_and_none():
    spec = tf.TensorSpec([None, None], tf.int32)
    graph = tf.function(check, input_signature=[spec], autograph=False)
    for numbers in (np.zeros([0, 4]), [[2, 1, 0]], np.zeros([3, 0])):
        np.testing.assert_array_equal(graph(tf.constant(numbers, tf.int32)), numbers)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[7\] \[at position\] \[1 0\]"):
        graph(tf.constant([[2], [7]]))


def test_checked_inputs_and_steps_compiled_by_xla_have_no_assertions():
    def trusting(numbers):
        with inputs_were_checked():
            return finite(shaped(check(numbers), "ids", [None, 2], "pairs"), "ids")

    for function, expected in ((trusting, False), (check, True)):
        graph = tf.function(function, autograph=False)
        operations = graph.get_concrete_function(tf.TensorSpec([None, 2], tf.int32)).graph
        assert any(x.type == "Assert" for x in operations.get_operations()) is expected
    compiled = tf.function(check, jit_compile=True, autograph=False)
    np.testing.assert_array_equal(compiled(tf.constant([[9, -1]])), [[9, -1]])


def test_numbers_that_are_not_finite_are_refused():
    np.testing.assert_array_equal(finite(tf.constant([1, 2]), "scores"), np.float32([1, 2]))
    with pytest.raises(UserError, match=r"scores must be finite; received inf at position \[1\]"):
        finite(tf.constant([0.0, np.inf]), "scores")
    with pytest.raises(UserError, match=r"received inf at position \[0\]"):  # in float32
        finite(tf.constant([3e39], tf.float64), "scores")


def test_an_axis_of_size_1_too_many_is_removed():
    column = tf.constant([[4], [5]])
    np.testing.assert_array_equal(shaped(column, "labels", [2], "a number each"), [4, 5])
    for wrong in (tf.zeros([2, 2]), tf.zeros([3]), tf.zeros([]), tf.zeros([2, 1, 1])):
        told = refusal(shaped, wrong, "labels", [2], "a number each")
        assert told.startswith("labels must have a number each, [2]; ")
        assert f" {wrong.shape.as_list()}" in told

    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None, 3])], autograph=False)
    def rows(labels, logits):
        return shaped(labels, "labels", [tf.shape(logits)[0]], "a number each")

    np.testing.assert_array_equal(rows(tf.ones([2]), tf.ones([2, 3])), [1.0, 1.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels must have a number each"):
        rows(tf.ones([1]), tf.ones([2, 3]))


def test_get_shape_list():
    assert get_shape_list(tf.zeros([3, 5]), expected_rank=[2, 3]) == [3, 5]
    with pytest.raises(ValueError, match="hidden must have rank 2 or 4, not 3"):
        get_shape_list(tf.zeros([1, 2, 3]), [2, 4], name="hidden")

    @tf.function(input_signature=[tf.TensorSpec([None, 5])])
    def second_half(x):
        batch_size, width = get_shape_list(x)
        assert isinstance(batch_size, tf.Tensor) and width == 5
        return batch_size

    assert second_half(tf.zeros([3, 5])).numpy() == 3
