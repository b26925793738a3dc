"""The model of RoBERTa, against numpy and against Hugging Face's figures."""

import json
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.model.family import RobertaConfig, config_from_dict
from bert_tf.model_folder.hugging_face.conversion import ConvertedModel
from bert_tf.modeling import BertModel
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel, check_objective
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel
from tests.support import numpy_bert
from tests.support.golden import needs_golden
from tests.support.objectives import compute, set_random_weights
from tests.support.refusals import refuses
from tests.support.small_pretraining import difference

SIZES = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 14, "hidden_act": "gelu", "max_position_embeddings": 13}
SIZES |= {"layer_norm_eps": 1e-3, "pad_token_id": 2}


def random_model(**options):
    """Returns a model with random weights, and the same in numpy."""
    config = RobertaConfig(**SIZES)
    model = PretrainingModel(config, **options)
    return model, numpy_bert.NumpyRoberta(config.to_dict(), set_random_weights(model, seed=2))


@pytest.fixture(scope="module")
def model():
    return random_model()


def batch():
    """Returns ids with padding on the right, on the left and within; one row is full."""
    rng = np.random.default_rng(5)
    ids = rng.integers(3, 31, size=(4, 10))
    ids[0, 7:] = ids[1, :4] = ids[2, 3:5] = SIZES["pad_token_id"]
    return ids.astype(np.int32), (ids != SIZES["pad_token_id"]).astype(np.int32)


@pytest.mark.parametrize("one_hot", [False, True])
def test_every_output_against_numpy(one_hot):
    model, reference = random_model(use_one_hot_embeddings=one_hot)
    ids, mask = batch()
    expected = reference.forward(ids, mask, np.zeros_like(ids))
    output = model.bert(ids, mask)
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert difference(getattr(output, name), expected[name]) < 2e-6, name
    positions = np.tile(np.arange(10, dtype=np.int32), (4, 1))
    logits, none = model(ids, mask, None, positions)
    assert none is None
    logits = tf.reshape(logits, [4, 10, 31])
    assert difference(logits, reference.masked_lm_logits(expected["sequence_output"])) < 2e-6


def test_padding_at_the_end_may_have_any_id_and_packed_rows_are_as_if_alone(model):
    """Records have 0 there; it moves no token."""
    bert = model[0].bert
    ids, mask = batch()
    same = np.where(np.arange(10) >= 7, 0, ids[:1])
    outputs = [bert(x, mask[:1]).sequence_output[:, :7] for x in (ids[:1], same)]
    np.testing.assert_array_equal(*outputs)
    alone = [bert(ids[3:, :6]).sequence_output, bert(ids[3:, 6:]).sequence_output]
    packed = bert(
        *(ids[3:], np.repeat(np.int32([[1, 2]]), [6, 4], axis=1)),
        position_ids=np.int32([[*range(6), *range(4)]]),
        cls_positions=np.int32([[0, 6]]),
    )
    assert difference(packed.sequence_output, tf.concat(alone, 1)) < 2e-6


def test_the_longest_sequence(model):
    """Two rows of the table and the one of padding are no positions."""
    config = RobertaConfig(**SIZES)
    assert config.longest_sequence == 10
    config.check_seq_length(10)
    message = r"length 11 .* most max_position_embeddings - 3 \(10\)"
    refuses(message, config.check_seq_length, 11)
    message = r"length \(11\) must be at most .* - 3 \(10\)"
    refuses(message, model[0].bert, np.zeros([1, 11], np.int32))
    again = BertModel.from_config(model[0].bert.get_config())
    assert type(again.config) is RobertaConfig
    assert again.embeddings.layer_norm.epsilon == 1e-3


def test_gradients_of_positions_are_dense(model):
    """As for BERT: clipping would count the rows of a sparse one apart."""
    bert = model[0].bert
    ids, mask = batch()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(bert(ids, mask).pooled_output)
    gradient = tape.gradient(loss, bert.embeddings.position_embeddings.value)
    assert isinstance(gradient, tf.Tensor) and gradient.shape == [13, 12]


def test_the_configuration_is_read_and_written():
    config = config_from_dict({**SIZES, "model_type": "roberta"})
    assert type(config) is RobertaConfig
    assert config.to_dict() == {**config.to_dict(), **SIZES, "model_type": "roberta"}
    again = config_from_dict(json.loads(config.to_json_string()))
    assert again.to_dict() == config.to_dict()
    default = RobertaConfig(50265)
    assert (default.max_position_embeddings, default.type_vocab_size) == (514, 1)
    assert (default.layer_norm_eps, default.pad_token_id) == (1e-5, 1)
    assert (default.hidden_act, default.longest_sequence) == ("gelu_erf", 512)


def test_values_out_of_range():
    for values, message in (
        ({"layer_norm_eps": 0}, "layer_norm_eps must be above 0 and at most 1, not 0"),
        ({"layer_norm_eps": "a"}, "layer_norm_eps must be above 0 and at most 1, not 'a'"),
        ({"pad_token_id": -1}, "pad_token_id must be a whole number .* 0 and 2147483647, not -1"),
        ({"pad_token_id": None}, "pad_token_id must be a whole number .* 2147483647, not None"),
        ({"pad_token_id": 12}, r"max_position_embeddings \(13\) must be above pad_token_id \+ 1"),
        ({"hidden_size": 0, "pad_token_id": 1.5}, "hidden_size must be .*; pad_token_id must be"),
    ):
        refuses(message, RobertaConfig, **{**SIZES, **values})


def test_keras_trains_it_without_pairs(model):
    config = model[0].bert.config
    check_objective(config, "mlm")
    rule = "^--objective=mlm_sop needs a model with a head for pairs of .* Set --objective=mlm$"
    refuses(rule, check_objective, config, "mlm_sop")
    features = {
        "input_ids": tf.constant(batch()[0]),
        "masked_lm_positions": tf.constant([[1, 2]] * 4),
        "masked_lm_ids": tf.constant([[5, 6]] * 4),
        "masked_lm_weights": tf.ones([4, 2]),
    }
    trained = PretrainingModel(config)
    trained.set_weights(model[0].get_weights())
    loss, metrics = compute(trained, features)
    assert set(metrics) == {"masked_lm_loss", "masked_lm_accuracy"} and loss > 0
    trained.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    found = trained.evaluate(features, batch_size=4, verbose=0, return_dict=True)
    means = {name: total / weight for name, (total, weight) in metrics.items()}
    assert found == pytest.approx({"loss": loss.numpy(), **means}, rel=1e-5)
    labels = (features.pop("masked_lm_ids"), features.pop("masked_lm_weights"))
    losses = trained.fit(features, labels, batch_size=4, epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[0]
    with pytest.raises(UserError, match="PretrainingModel must have 'masked_lm_ids', 'masked_lm_w"):
        trained.test_on_batch(features)


def golden(name):
    return Path(os.environ["BERT_TF_GOLDEN"]) / "roberta" / name


HEADS = {
    "masked_lm": lambda config, _: PretrainingModel(config),
    "sequence_classification": ClassificationModel,
    "token_classification": TaggingModel,
    "question_answering": lambda config, _: SquadModel(config),
}


@needs_golden
@pytest.mark.parametrize("name", HEADS)
def test_every_output_is_hugging_faces(name):
    found = ConvertedModel(str(golden(name)))
    weights, config = found.weights, found.config
    model = HEADS[name](config, len(weights.get("output_bias", [])))
    for variable in model.variables:
        if variable.path in weights or not variable.path.startswith("bert/pooler/"):
            variable.assign(weights[variable.path])
    arrays = dict(np.load(golden(name) / "forward.npz"))
    mask = arrays["attention_mask"].astype(np.int32)
    features = {"input_ids": arrays["input_ids"].astype(np.int32), "input_mask": mask}
    output = model.bert(*features.values())
    found = {"hidden_states": tf.stack([output.embedding_output, *output.all_encoder_layers], 2)}
    arrays["hidden_states"] = np.moveaxis(arrays["hidden_states"], 0, 2)
    if name == "masked_lm":
        positions = np.tile(np.arange(mask.shape[1], dtype=np.int32), (len(mask), 1))
        logits, _ = model(*features.values(), None, positions)
        found["logits"] = tf.reshape(logits, arrays["logits"].shape)
    elif name == "question_answering":
        found["start_logits"], found["end_logits"] = model(features)
    else:
        found["logits"] = model(features)
    assert set(found) == set(arrays) - {"input_ids", "attention_mask"}
    for key, value in found.items():
        per_token = value.shape[1] == mask.shape[1]
        here, expected = (
            np.asarray(x)[mask > 0] if per_token else np.asarray(x) for x in (value, arrays[key])
        )
        assert difference(here, expected) < 1e-5, key


@needs_golden
def test_masks_are_filled_as_in_hugging_faces_pipeline(tmp_path):
    shutil.copytree(golden("masked_lm"), tmp_path / "model")
    model = bert_tf.load(str(tmp_path / "model"))
    rows = [json.loads(line) for line in (golden("masked_lm") / "answers.jsonl").open()]
    for found, row in zip(model.fill_mask([row["text"] for row in rows]), rows, strict=True):
        assert [[(filling.token_id, filling.token) for filling in mask] for mask in found] == [
            [(answer["token"], answer["token_str"]) for answer in mask] for mask in row["masks"]
        ]
        np.testing.assert_allclose(
            [filling.probability for mask in found for filling in mask],
            [answer["score"] for mask in row["masks"] for answer in mask],
            rtol=1e-4,
        )
