"""The ONNX graph of each model of the family, in ONNX Runtime, against the Keras model."""

import types

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from bert_tf.export import onnx_model
from bert_tf.export.exporting import write_onnx
from bert_tf.export.onnx_graph import Int8Graph, OnnxGraph
from bert_tf.export.running import largest_difference, sample_inputs
from bert_tf.export.settings import HEADS
from bert_tf.export.signatures import input_specs, outputs_of
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, DistilBertConfig, ElectraConfig, RobertaConfig
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings
from bert_tf.pretrained.build import INPUTS, new_model
from bert_tf.pretrained.pooling import POOLINGS
from tests.support import numpy_bert

SIZES = dict(hidden_size=12, num_hidden_layers=4, num_attention_heads=3, intermediate_size=20)
SIZES |= dict(max_position_embeddings=16, type_vocab_size=2)
CONFIGS = {
    "bert": BertConfig(50, **SIZES, problem_type="multi_label_classification"),
    "bert_of_one_segment": BertConfig(50, **{**SIZES, "type_vocab_size": 1}, hidden_act="relu"),
    "albert": AlbertConfig(50, **SIZES, embedding_size=8, num_hidden_groups=2, inner_group_num=2),
    "roberta": RobertaConfig(50, **{**SIZES, "type_vocab_size": 1}, hidden_act="gelu"),
    "distilbert": DistilBertConfig(50, **SIZES, hidden_act="gelu_erf"),
    "electra": ElectraConfig(50, **SIZES, embedding_size=8),
}
ALL = [(x, family) for x in HEADS for family in CONFIGS if (x, family) != ("encoder", "bert")]


def built(head, config):
    """Returns the Keras model with a head and random weights, and what a folder says of it."""
    model = new_model("" if head == "encoder" else head, config, 1 if head == "regression" else 3)
    shapes = {variable.path: tuple(variable.shape) for variable in model.variables}
    weights = numpy_bert.random_weights(shapes, seed=3)
    weights = {name: np.float32(value) for name, value in weights.items()}
    for variable in model.variables:
        variable.assign(weights[variable.path])
    poolings = tuple(x for x in POOLINGS if config.has_pooler or x != "pooled")
    vectors = VectorSettings(poolings=poolings, normalize=True, truncate_dim=5 * 12 + 2)
    known = {"config": config, "shapes": shapes, "vectors": vectors, "max_seq_length": 12}
    return model, types.SimpleNamespace(read=weights.get, **known)


def check(path, head, config, quantize=None, bound=1e-5):
    model, folder = built(head, config)
    specs = input_specs(head)
    outputs = outputs_of(head, model, folder)
    inputs = sample_inputs(specs, config.vocab_size, 12, config.type_vocab_size)
    expected = {k: v.numpy() for k, v in outputs(dict(inputs)).items()}
    shapes = {name: value.shape for name, value in expected.items()}
    signature = {k: tf.TensorSpec([None, *shape[1:]], tf.float32) for k, shape in shapes.items()}
    write_onnx(str(path), head, folder, specs, signature, quantize)
    graph = onnx.load(path).graph
    used = {name for node in graph.node for name in node.input}
    assert {constant.name for constant in graph.initializer} <= used  # or ONNX Runtime warns
    session = onnxruntime.InferenceSession(path)
    found = dict(zip(expected, session.run([*expected], inputs), strict=True))
    assert {name: value.shape for name, value in found.items()} == shapes
    assert largest_difference(expected, found) <= bound


@pytest.mark.parametrize("family", CONFIGS)
def test_each_pooling_of_each_family(tmp_path, family):
    check(tmp_path / "model.onnx", "encoder", CONFIGS[family])


@pytest.mark.parametrize(
    "head, family", [("classification", "albert"), ("masked_lm", "roberta"), ("encoder", "bert")]
)
def test_int8_of_each_kind_of_layer(tmp_path, monkeypatch, head, family):
    """Layers of ALBERT share matrices, and the masked language model the table of words."""
    ids = np.random.default_rng(0).integers(2, 50, [64, 12], np.int32)
    texts = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    monkeypatch.setattr(onnx_model, "_random_texts", lambda folder: texts)
    check(tmp_path / "model.onnx", head, CONFIGS[family], "int8", 0.3)


def test_questions_without_choices_and_choices_without_ids(tmp_path):
    path, config = tmp_path / "model.onnx", CONFIGS["bert_of_one_segment"]
    _, folder = built("multiple_choice", config)
    logits = {"logits": tf.TensorSpec([None, None], tf.float32)}
    write_onnx(str(path), "multiple_choice", folder, input_specs("multiple_choice"), logits, None)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)

    def run(*shape):
        return session.run(["logits"], dict.fromkeys(INPUTS, np.zeros(shape, np.int32)))

    for shape in ((2, 0, 5), (0, 3, 5), (2, 3, 1)):
        assert run(*shape)[0].shape == shape[:2]
    with pytest.raises(Exception, match="[Gg]ather"):
        run(2, 3, 0)


def test_a_matrix_that_layers_share_is_quantized_once(monkeypatch):
    graph = Int8Graph({"w": (-1.0, 1.0)})
    seen, kernel, bias = [], np.eye(3, dtype=np.float32), np.zeros(3, np.float32)
    monkeypatch.setattr(np, "round", lambda x: seen.append(x) or np.rint(x))
    for layer in range(4):
        graph.product(f"x{layer}", "w", kernel, "b", bias)
    assert len(seen) == 1 and {"w", "w:scales", "w:zeros", "b"} <= {*graph._constants}


@pytest.mark.parametrize("approximate, joined", [(True, "FastGelu"), (False, "Gelu")])
def test_onnx_runtime_knows_gelu_and_leaves_its_bias_apart(tmp_path, approximate, joined):
    graph = OnnxGraph()
    x = graph.input("x", np.float32, ["batch", "length", 3])
    x = graph.product(x, "w", np.eye(3, dtype=np.float32), "b", np.ones([1, 3], np.float32))
    graph.output("y", graph("Neg", graph.gelu(x, approximate)), np.float32, ["batch", "length", 3])
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(graph.model().SerializeToString(), options)
    (found,) = session.run(["y"], {"x": np.full([1, 1, 3], -0.5, np.float32)})
    expected = -tf.nn.gelu(0.5, approximate)
    np.testing.assert_allclose(found, np.full([1, 1, 3], expected), rtol=1e-6)
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    assert [node.op_type for node in nodes] == ["MatMul", "Add", joined, "Neg"]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_difference_is_no_number_if_an_output_is_none(wrong):
    good, bad = np.ones([2, 2]), np.array([[1.0, wrong], [1.0, 1.0]])
    for names in ("ab", "ba"):
        found = largest_difference({x: good for x in names}, {"a": good, "b": bad})
        assert not found <= np.finfo(float).max


@pytest.mark.slow
@pytest.mark.parametrize("head, family", ALL)
def test_each_head_of_each_family(tmp_path, head, family):
    check(tmp_path / "model.onnx", head, CONFIGS[family])
