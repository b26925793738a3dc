"""Tests of bert_tf/files/object_graphs.py: checkpoints of TensorFlow Model Garden and TF Hub.

The folders beside this file were written by make_fixtures.py.
"""

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import checkpoints, object_graphs
from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, ElectraConfig
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.modeling import BertModel
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel
from tests.support import numpy_bert, old_model_garden
from tests.support.arrays import assert_same_arrays
from tests.support.memory import peak_memory
from tests.support.refusals import refusal

HERE = Path(__file__).parent
CLASSES = 8
SIZES = dict(vocab_size=23, hidden_size=6, num_hidden_layers=2, num_attention_heads=3)
SIZES |= dict(intermediate_size=7, max_position_embeddings=11, type_vocab_size=4)


def _folder(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(HERE / name, folder)
    if name == "albert":  # the checkpoint does not have the number of layers
        albert = {**SIZES, "embedding_size": 5, "hidden_act": "gelu", "num_hidden_groups": 1}
        (folder / "albert_config.json").write_text(json.dumps(albert))
    return folder


def _outputs(name, config, prefix, inputs):
    """Returns the outputs of a model with the weights of a fixture, by the oracle's names."""
    ids = [inputs[f"input_{x}"] for x in ("word_ids", "mask", "type_ids")]

    def loaded(model):
        bert_tf.load_weights(model, prefix)
        return model

    if name.startswith("classifier"):
        return {"output": loaded(ClassificationModel(config, CLASSES))(*ids)}
    if name == "tagger":
        return {"logits": loaded(TaggingModel(config, CLASSES))(*ids)}
    if name == "span_labeler":
        return dict(zip("se", loaded(SquadModel(config))(*ids), strict=True))
    outputs = {}
    if name in ("pretrainer", "hub"):
        positions = inputs["masked_lm_positions"]
        masked_lm, next_sentence = loaded(PretrainingModel(config))(*ids, positions)
        outputs["mlm_logits"] = tf.reshape(masked_lm, [*positions.shape, -1])
        if name == "pretrainer":
            outputs["next_sentence"] = next_sentence
    output = loaded(BertModel(config))(*ids)
    outputs["sequence_output"] = output.sequence_output
    if name != "pretrainer":  # its next-sentence head has the pooler
        outputs["pooled_output"] = output.pooled_output
    return outputs


FIXTURES = sorted(path.parent.name for path in HERE.glob("*/outputs.npz"))


@pytest.mark.parametrize("name", FIXTURES)
def test_outputs_equal_model_garden_s(tmp_path, name):
    folder = _folder(tmp_path, name)
    source = str(folder / "module" if name == "hub" else folder)
    files = ModelFiles(source)
    files.check_model()
    expected = dict(np.load(folder / "outputs.npz"))
    inputs = {x: expected.pop(x) for x in [*expected] if x.startswith(("input_", "masked_lm_"))}
    expected.pop("default", None)  # TF Hub's second name of the pooled output
    if name == "pretrainer":
        del expected["pooled_output"]
    actual = _outputs(name, files.config, source, inputs)
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        assert np.ptp(value) > 0.3
        np.testing.assert_allclose(actual[key], value, rtol=0, atol=1e-5, err_msg=key)
    for size, value in SIZES.items():
        assert getattr(files.config, size) == value
    assert not any("adam" in x or "optimizer" in x for x in files.shapes)


def test_fixtures_are_of_every_kind():
    assert set(FIXTURES) == {
        *("albert", "classifier", "classifier_with_pooler", "encoder", "encoder_factorized"),
        *("encoder_v2", "hub", "pretrainer", "span_labeler", "tagger"),
    }


def test_what_model_garden_converted_is_read_back_to_the_bit():
    weights = CheckpointReader(str(HERE / "converted")).read_weights()
    assert_same_arrays(weights, dict(np.load(HERE / "converted" / "weights.npz")))


HEADS = {"encoder": {}, "classifier": {"output_weights": (5, 6), "output_bias": (5,)}}
HEADS["squad"] = {"cls/squad/output_weights": (2, 6), "cls/squad/output_bias": (2,)}


@functools.cache
def _shapes(kind):
    return {x.path: tuple(x.shape) for x in kind(BertConfig(**SIZES)).variables}


GENERATIONS = old_model_garden.NAMES
OLD = [(x, head) for x in GENERATIONS for head in ("pretraining", "encoder", "classifier")]


# From 2.1 on, a graph does not tell a span head from a classifier of two classes.
@pytest.mark.parametrize(("generation", "head"), [*OLD, ("2.0", "squad")])
def test_old_generations_are_read_to_the_bit(tmp_path, generation, head):
    shapes = _shapes(PretrainingModel)
    if head != "pretraining":
        shapes = {name: x for name, x in shapes.items() if name.startswith("bert/")} | HEADS[head]
    weights = numpy_bert.random_weights(shapes, 3)
    prefix = old_model_garden.write(str(tmp_path / "ckpt"), weights, generation)
    files = ModelFiles(prefix, config_file=None)
    assert_same_arrays(files.read_weights(), weights)
    heads = 1 if generation == "2.0" else 3  # of size 64: no shape tells them in 2.0
    assert files.config.to_dict() == BertConfig(**{**SIZES, "num_attention_heads": heads}).to_dict()


def test_a_model_of_token_dropping_is_read_to_the_bit(tmp_path):
    shapes = _shapes(PretrainingModel)
    shapes = {name: shape for name, shape in shapes.items() if "seq_relationship" not in name}
    weights = numpy_bert.random_weights(shapes, 7)
    writer = old_model_garden.Writer(weights, old_model_garden.TOKEN_DROPPING)
    encoder, masked_lm = writer.encoder(), writer.masked_lm()
    masked_lm.embedding_table = encoder._embedding_layer.embeddings
    checkpoint = tf.train.Checkpoint(encoder=encoder, masked_lm=masked_lm)
    files = ModelFiles(checkpoint.save(str(tmp_path / "ckpt")))
    assert_same_arrays(files.read_weights(), weights)
    assert files.config.num_attention_heads == 3


def test_a_module_of_tf_hub_is_a_model_with_its_vocabulary_and_casing():
    model = bert_tf.load(HERE / "hub" / "module")
    assert "BERT of 2 layers, hidden size 6, cased, 23 tokens; masked" in str(model)
    assert model.encode(["The cat"]).shape == (1, 6)


def _tf1_module(folder, weights, prefix="module/"):
    (folder / "variables").mkdir()
    names = {f"{prefix}{name}": value for name, value in weights.items()}
    first = next(iter(names))
    names[f"{first}/adam_m"] = np.zeros(weights[first[len(prefix) :]].shape, np.float32)
    checkpoints.write(str(folder / "variables" / "variables"), names)
    (folder / "saved_model.pb").touch()
    (folder / "assets").mkdir()
    shutil.copy(HERE / "hub" / "module" / "assets" / "vocab.txt", folder / "assets")
    return ModelFiles(str(folder))


@pytest.mark.parametrize("prefix", ["", "module/"])
def test_a_tf1_module_has_names_with_or_without_its_prefix(tmp_path, prefix):
    weights = dict(np.load(HERE / "converted" / "weights.npz"))
    files = _tf1_module(tmp_path, weights, prefix)
    assert_same_arrays(files.read_weights(), weights)
    expected = BertConfig(**{**SIZES, "num_attention_heads": 1})
    assert files.config.to_dict() == expected.to_dict()
    assert files.vocab_file == str(tmp_path / "assets" / "vocab.txt")


FAMILIES = [
    (AlbertConfig(**SIZES, embedding_size=5, num_hidden_groups=1), "albert_config.json"),
    (ElectraConfig(**{**SIZES, "num_attention_heads": 1}, embedding_size=5), None),
]


@pytest.mark.parametrize(("config", "config_file"), FAMILIES)
def test_a_tf1_module_of_albert_or_electra_is_a_model(tmp_path, config, config_file):
    model = BertModel(config)
    weights = numpy_bert.random_weights({x.path: tuple(x.shape) for x in model.variables}, 9)
    files = _tf1_module(tmp_path, weights)
    if config_file:  # the weights do not tell the number of layers
        (tmp_path / config_file).write_text(json.dumps(config.to_dict()))
    assert_same_arrays(files.read_weights(), weights)
    assert files.config.to_dict() == config.to_dict()
    assert f": {config.NAME} of 2 layers, hidden size 6" in str(bert_tf.load(tmp_path))


KNOWN = (
    "was written by tf.train.Checkpoint or Keras, and must have one encoder of BERT or ALBERT in"
    " the format of TensorFlow Model Garden (tf-models-official 2.4 and later; official/nlp 2.2 and"
    " 2.3, and ALBERT; official/nlp 2.1 (keras_bert); official/bert 2.0); it has "
)


def _weights():
    return numpy_bert.random_weights(_shapes(BertModel), 5)


def _saved(tmp_path, change=lambda encoder: None, **more):
    encoder = old_model_garden.Writer(_weights(), "2.3").encoder()
    change(encoder)
    return tf.train.Checkpoint(model=encoder, **more).save(str(tmp_path / "ckpt"))


def _dense(size):
    layer = tf.Module()
    layer.kernel, layer.bias = tf.Variable(tf.ones([6, size])), tf.Variable(tf.ones([size]))
    return layer


def _lose(encoder):
    del getattr(encoder, "layer_with_weights-5")._output_dense.bias


def _gain(encoder):
    getattr(encoder, "layer_with_weights-4")._gate = _dense(7)


ENCODER = (
    ": the encoder model must have the variables of an encoder of official/nlp 2.2 and 2.3, and"
    " ALBERT; it is a different model, or incomplete. "
)


GATE = "'layer_with_weights-4/_gate/bias', 'layer_with_weights-4/_gate/kernel'"


def test_an_encoder_of_another_kind_is_refused(tmp_path):
    missing = "'bert/encoder/layer_1/output/dense/bias'"
    for change, message in (
        (_lose, f"Missing: {missing}; unexpected: none"),
        (_gain, f"Missing: none; unexpected: {GATE}"),
    ):
        prefix = _saved(tmp_path, change)
        assert refusal(CheckpointReader, prefix) == f"--init_checkpoint={prefix}{ENCODER}{message}"


def _optimizer():
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build([tf.Variable(tf.ones([3, 4]))])
    return tf.train.Checkpoint(optimizer=optimizer)


def _two():
    models = [old_model_garden.Writer(_weights(), x).encoder() for x in ("2.1", "2.3")]
    return tf.train.Checkpoint(generator=models[0], model=models[1])


NO_WEIGHTS = "no weights, like an optimizer's state or a preprocessing model of TF Hub"


def test_a_checkpoint_without_an_encoder_or_with_two_is_refused(tmp_path):
    for checkpoint, message in (
        (tf.train.Checkpoint(head=_dense(3)), "'head/bias', 'head/kernel'"),
        (tf.train.Checkpoint(step=tf.Variable(3)), NO_WEIGHTS),
        (_optimizer(), NO_WEIGHTS),
        (_two(), "2 encoders: 'generator', 'model'"),
    ):
        prefix = checkpoint.save(str(tmp_path / "ckpt"))
        assert refusal(CheckpointReader, prefix) == f"--init_checkpoint={prefix} {KNOWN}{message}"


def test_other_parts_are_left_out_with_a_warning(tmp_path, caplog):
    prefix = _saved(tmp_path, decoder=_dense(3), encoder=_dense(5))
    assert_same_arrays(CheckpointReader(prefix).read_weights(), _weights())
    unused = "'decoder/bias', 'decoder/kernel', 'encoder/bias', 'encoder/kernel'"
    why = "not used, because no known part of a model has these variables"
    assert f"--init_checkpoint={prefix}: {why}: {unused}" in caplog.text


def test_sizes_that_differ_from_the_configuration_are_refused(tmp_path):
    prefix = _saved(tmp_path)
    model = BertModel(BertConfig(**{**SIZES, "intermediate_size": 9}))
    message = refusal(bert_tf.load_weights, model, prefix)
    sizes = "float32 [6, 7] in the checkpoint, float32 [6, 9] in"
    assert f"intermediate/dense/kernel: {sizes}" in message


def _preprocessing(folder):
    model = tf.Module()
    model.vocabulary = tf.saved_model.Asset(str(HERE / "hub" / "module" / "assets" / "vocab.txt"))
    model.do_lower_case = tf.Variable(True, trainable=False)
    tf.saved_model.save(model, str(folder))


def _another(folder):
    tf.saved_model.save(_dense(3), str(folder))


def _half(file):
    def make(folder):
        shutil.copytree(HERE / "hub" / "module", folder, dirs_exist_ok=True)
        (folder / "variables" / f"variables.{file}").unlink()

    return make


DATA, MISSING = "data-00000-of-00001", "; not found: {}/variables/variables."


def test_half_a_module_and_another_module_are_refused(tmp_path):
    for number, (make, message) in enumerate(
        [
            (_preprocessing, KNOWN + NO_WEIGHTS),
            (_another, KNOWN + "'bias', 'kernel'"),
            (_half("index"), MISSING + "index"),
            (_half(DATA), MISSING + "data-00000-of-*"),
        ]
    ):
        folder = tmp_path / f"{number}"
        make(folder)
        told = refusal(bert_tf.load, folder)
        assert message.format(folder) in told and "\n" not in told


def test_an_albert_with_shared_layers_needs_its_configuration(tmp_path):
    shutil.copytree(HERE / "albert", tmp_path / "albert")
    told = refusal(getattr, ModelFiles(str(tmp_path / "albert")), "config")
    assert "has an ALBERT whose layers share their weights" in told


@pytest.mark.slow
def test_reading_takes_the_memory_of_the_weights(tmp_path):
    sizes = {"vocab_size": 50_000, "hidden_size": 256, "num_attention_heads": 4}
    config = BertConfig(**{**SIZES, **sizes})
    shapes = {x.path: tuple(x.shape) for x in BertModel(config).variables}
    prefix = str(tmp_path / "ckpt")
    object_graphs.write(prefix, numpy_bert.random_weights(shapes, 2), 4)
    program = """
import sys
from bert_tf.files.checkpoints import CheckpointReader
CheckpointReader(sys.argv[1]).read_weights()
weights = [CheckpointReader(x).read_weights() for x in sys.argv[2:]]
"""
    small = str(HERE / "encoder")
    size = (tmp_path / f"ckpt.{DATA}").stat().st_size
    assert size > 50e6
    assert peak_memory(program, small, prefix) - peak_memory(program, small) < 1.3 * size
