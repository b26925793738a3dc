"""Tests of bert_tf/files/object_graphs.py: what Model Garden's models restore.

The graphs are compared with those that tf-models-official wrote (see make_fixtures.py): restoring
walks along the attributes of its objects, and each must be in the checkpoint.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.files.object_graphs import GRAPH
from tests.model_garden.object_graphs_test import SIZES
from tests.support.arrays import assert_same_arrays
from tests.support.refusals import refusal
from tools.convert_checkpoint import convert

HERE = Path(__file__).parent


class _Graph:
    def __init__(self, prefix):
        reader = tf.train.load_checkpoint(str(prefix))
        nodes = TrackableObjectGraph.FromString(reader.get_tensor(GRAPH)).nodes
        self.children = [{x.local_name: x.node_id for x in node.children} for node in nodes]
        keys = [[x.checkpoint_key for x in node.attributes] for node in nodes]
        self.values = [[reader.get_tensor(key) for key in found] for found in keys]

    def at(self, path):
        node = 0
        for name in path.split("/"):
            node = self.children[node][name]
        return node


def _restored(theirs: _Graph, ours: _Graph, skipped: str) -> dict[int, int]:
    """Returns our node of each of theirs that is reached; each must be there, with its values."""
    found, todo = {0: 0}, [(0, "")]
    while todo:
        node, path = todo.pop()
        for name, child in theirs.children[node].items():
            if re.fullmatch(skipped, f"{path}/{name}"):
                continue
            assert name in ours.children[found[node]], f"{path}/{name}"
            same = ours.children[found[node]][name]
            assert found.setdefault(child, same) == same, f"{path}/{name}"
            for x, y in zip(theirs.values[child], ours.values[same], strict=True):
                np.testing.assert_array_equal(x, y, err_msg=f"{path}/{name}")
            todo.append((child, f"{path}/{name}"))
    return found


def _convert(name, tmp_path):
    (tmp_path / "bert_config.json").write_text(json.dumps(SIZES))
    config = str(tmp_path / "bert_config.json")
    convert(str(HERE / name), str(tmp_path / "converted"), "model_garden", config)
    return tmp_path / "converted" / "bert_model.ckpt"


# What a run of the trainer adds; and, in an encoder alone, the root's name for it.
@pytest.mark.parametrize(
    ("name", "skipped"),
    [
        ("encoder_v2", "/_"),
        ("classifier", "/(optimizer|global_step)"),
        ("pretrainer", "/(optimizer|global_step)"),
    ],
)
def test_each_object_of_model_garden_s_models_is_restored(name, skipped, tmp_path):
    prefix = _convert(name, tmp_path)
    theirs, ours = _Graph(HERE / name / "ckpt-1"), _Graph(prefix)
    if name == "pretrainer":  # its head's pooler takes the place of the encoder's
        for part in "kernel", "bias":
            trained = theirs.at(f"next_sentence.pooler_dense/{part}")
            theirs.values[theirs.at(f"encoder/_pooler_layer/{part}")] = theirs.values[trained]
    found = _restored(theirs, ours, skipped)
    with_values = {i for i, values in enumerate(ours.values) if values}
    assert with_values == {y for x, y in found.items() if theirs.values[x]}  # nothing is left over
    assert len(with_values) > 30


def test_a_functional_encoder_is_restored(tmp_path):
    theirs, ours = _Graph(HERE / "encoder" / "ckpt-1"), _Graph(_convert("encoder", tmp_path))
    theirs.children[0]["encoder"] = theirs.children[0].pop("model")
    found = _restored(theirs, ours, "/_")
    with_values = {i for i, values in enumerate(ours.values) if values}
    assert with_values == {found[i] for i in found if theirs.values[i]}


@pytest.mark.parametrize("name", ["encoder", "classifier", "tagger", "pretrainer"])
def test_the_weights_come_back_to_the_bit(name, tmp_path):
    prefix = _convert(name, tmp_path)
    expected = CheckpointReader(str(HERE / name)).read_weights()
    assert_same_arrays(CheckpointReader(str(prefix)).read_weights(), expected)
    convert(str(prefix), str(tmp_path / "tf1"), "checkpoint")
    found = CheckpointReader(str(tmp_path / "tf1")).read_weights()
    assert_same_arrays(found, expected)


def test_other_models_are_refused(tmp_path):
    albert = "bert/encoder/transformer/group_0/inner_group_0/LayerNorm/beta"
    for name, more, message in (
        ("span_labeler", {}, "'cls/squad/output_bias', 'cls/squad/output_weights'"),
        ("albert", {"embedding_size": 5, "num_hidden_groups": 1}, f"'{albert}',"),
    ):
        config = tmp_path / "config.json"
        config.write_text(json.dumps({**SIZES, **more}))
        to = str(tmp_path / "to")
        told = refusal(convert, str(HERE / name), to, "model_garden", str(config))
        start = "a checkpoint for TensorFlow Model Garden must have only the weights"
        assert told.startswith(start) and f"there are also {message}" in told
        assert not (tmp_path / "to").exists()
