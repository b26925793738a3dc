"""An exported model refuses wrong ids, and answers the next request."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from bert_tf.export import formats, onnx_model, running
from bert_tf.export.id_checks import asserted, looked_up
from bert_tf.export.onnx_graph import OnnxGraph
from bert_tf.export.settings import FORMATS, LITERT, ONNX, SAVED_MODEL
from bert_tf.export.signatures import DEFAULT_SIGNATURE, input_specs
from bert_tf.model.distilbert_configuration import DistilBertConfig
from bert_tf.modeling import BertConfig

CONFIG = BertConfig(vocab_size=50, type_vocab_size=2, max_position_embeddings=20)


class Checked:
    """A model that gives back its inputs after the checks, exported in a format."""

    def __init__(self, folder, kind, head="classification", config=CONFIG):
        specs, check = input_specs(head), looked_up if kind == LITERT else asserted
        path = str(folder / formats.FILES[kind])

        def outputs(features):
            return {f"{k}_out": x + 0 for k, x in check(features, specs, config).items()}

        function = tf.function(lambda **inputs: outputs(inputs), autograph=False)
        signatures = {DEFAULT_SIGNATURE: function.get_concrete_function(**specs)}
        if kind == ONNX:
            graph = OnnxGraph()
            shapes = {name: ["batch", axis] for name, axis in zip(specs, "SSSP", strict=False)}
            given = {name: graph.input(name, np.int32, shape) for name, shape in shapes.items()}
            for name, tensor in onnx_model.checked(graph, given, config).items():
                graph.output(f"{name}_out", tensor, np.int32, shapes[name])
            Path(path).write_bytes(graph.model().SerializeToString())
        elif kind == LITERT:
            formats.write_litert(path, tf.Module(), signatures, None)
        else:
            formats.write_saved_model(str(folder), tf.Module(), signatures)
        self._run = running.open_exported(str(folder), kind, DEFAULT_SIGNATURE)

    def __call__(self, ids, mask=None, segments=None, positions=None):
        ids = np.array(ids, np.int32)
        mask = np.ones_like(ids) if mask is None else np.array(mask, np.int32)
        segments = 0 * ids if segments is None else np.array(segments, np.int32)
        inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
        if positions is not None:
            inputs["masked_lm_positions"] = np.array(positions, np.int32)
        found = self._run(inputs)
        for name, value in inputs.items():
            np.testing.assert_array_equal(found[f"{name}_out"], value)


@pytest.fixture(scope="module", params=FORMATS)
def kind(request):
    if request.param == ONNX:
        onnxruntime.set_default_logger_severity(4)  # errors are raised, too
    return request.param


@pytest.fixture(scope="module")
def checked(kind, tmp_path_factory):
    return Checked(tmp_path_factory.mktemp(kind), kind)


OF_IDS = "{} must have the shape of input_ids"
RANGE = "{} must be from 0 to {}"


@pytest.mark.parametrize(
    "inputs, message",
    [
        # A size of 1 is not repeated, whichever input has it.
        (dict(ids=[[2, 3, 4]], mask=[[1]]), OF_IDS.format("input_mask")),
        (dict(ids=[[2, 3], [4, 5]], mask=[[1, 1]]), OF_IDS.format("input_mask")),
        (dict(ids=[[2, 3], [4, 5]], segments=[[0], [1]]), OF_IDS.format("segment_ids")),
        (dict(ids=[[2], [3]], mask=[[1, 1]]), OF_IDS.format("input_mask")),
        # Numbers out of range: the bounds themselves, and far from them.
        (dict(ids=[[2, -1]]), RANGE.format("input_ids", "49 ; received -1 to 2")),
        (dict(ids=[[2, 50]]), RANGE.format("input_ids", "49 ; received 2 to 50")),
        (dict(ids=[[-(2**31), 0]]), RANGE.format("input_ids", 49)),
        (dict(ids=[[2, 3]], segments=[[0, 7]]), RANGE.format("segment_ids", 1)),
        (dict(ids=[[2, 3]], segments=[[-1, 0]]), RANGE.format("segment_ids", 1)),
        (dict(ids=[[2, 3]], segments=[[0, 2]]), RANGE.format("segment_ids", 1)),
        (dict(ids=[[2, 3]], mask=[[1, 2]]), RANGE.format("input_mask", 1)),
        (dict(ids=[[2, 3]], mask=[[-1, 1]]), RANGE.format("input_mask", 1)),
    ],
)
def test_wrong_inputs_are_refused(kind, checked, inputs, message):
    checked([[2, 3, 4], [5, 49, 0]], [[1, 1, 1], [1, 1, 0]], [[0, 0, 1], [0, 1, 0]])
    with pytest.raises(Exception) as info:
        checked(**inputs)
    text = str(info.value).replace("[", "").replace("]", "")
    if kind == LITERT:
        message = "HaveSameShapes" if "shape" in message else "gather index out of bounds"
    elif kind == ONNX and "shape" in message:
        message = "input_mask_and_segment_ids_must_have_the_shape_of_input_ids"
    elif kind == ONNX:
        message = f"{message.split()[0]}_out_of_range"
    assert message in text
    checked([[0, 1]], [[1, 0]], [[1, 1]])  # the next request is not harmed


@pytest.mark.parametrize(
    "inputs", [dict(ids=[2, 3]), dict(ids=[[[2, 3]]]), dict(ids=[[2, 3]], mask=[1, 1])]
)
def test_inputs_of_another_rank_are_refused(kind, checked, inputs):
    with pytest.raises(Exception, match="Shape of tensor|Invalid rank|HaveSameShapes|input_dims"):
        checked(**inputs)


def test_positions_of_masks(kind, tmp_path):
    checked = Checked(tmp_path, kind, "masked_lm")
    checked([[2, 3, 4], [5, 6, 0]], positions=[[0, 2], [1, 0]])
    for positions in ([[0, 3], [1, 0]], [[0, -1], [1, 0]], [[0, 2]], [[0]] * 3):
        with pytest.raises(Exception) as info:
            checked([[2, 3, 4], [5, 6, 0]], positions=positions)
        assert "masked_lm_positions" in str(info.value) or kind == LITERT
    checked([[2]], positions=[[0, 0]])


def test_choices_and_a_model_without_segments(tmp_path):
    config = DistilBertConfig(vocab_size=50, type_vocab_size=2)
    checked = Checked(tmp_path, SAVED_MODEL, "multiple_choice", config)
    ids = np.ones([2, 3, 4])
    checked(ids, segments=ids * 5)  # ignored by the model
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_mask must have the shape"):
        checked(ids, mask=np.ones([2, 1, 4]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Shape of tensor .* not compatible"):
        checked(ids[0])
