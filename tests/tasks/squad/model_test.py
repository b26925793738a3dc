"""Tests of the heads for SQuAD, BERT's and ELECTRA's: names, outputs and loss against numpy."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import export_model, load
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.squad import answers
from bert_tf.tasks.squad.examples import questions_in, squad_data
from bert_tf.tasks.squad.features import SquadEncoder, make_inputs
from bert_tf.tasks.squad.model import JointSquadModel, SquadModel, head_options
from bert_tf.tasks.squad.task import SquadTask
from tests.support import model_folders
from tests.support.golden import needs_golden
from tests.support.numpy_bert import log_softmax
from tests.support.objectives import compute, predict, set_random_weights
from tests.support.small_pretraining import SMALL
from tests.support.squad_files import question, settings_of_lengths

BATCH, LENGTH = 3, 7


CONFIG = {**SMALL, "num_hidden_layers": 1}


def features():
    rng = np.random.RandomState(1)
    tokens = np.arange(LENGTH) < [[7], [5], [3]]
    values = {
        "unique_ids": 1000000000 + np.arange(BATCH),
        "input_ids": rng.randint(0, SMALL["vocab_size"], (BATCH, LENGTH)) * tokens,
        "input_mask": tokens,
        "segment_ids": tokens & (np.arange(LENGTH) > 1),
        "start_positions": [4, 0, 2],
        "end_positions": [6, 0, 2],
        "is_impossible": [0, 1, 0],
    }
    return {name: tf.constant(np.int32(value)) for name, value in values.items()}


def logits_by_numpy(model, batch):
    """Returns the start and end logits of the hidden states."""
    output = model.bert(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    weights, bias = model.cls.squad.output_weights.numpy(), model.cls.squad.output_bias.numpy()
    return np.moveaxis(output.sequence_output.numpy() @ weights.T + bias, -1, 0)


def test_predictions_and_loss():
    model, batch = SquadModel(BertConfig.from_dict(CONFIG)), features()
    set_random_weights(model)
    found = predict(model, batch)
    assert list(found) == ["unique_ids", "start_logits", "end_logits"]
    np.testing.assert_array_equal(found["unique_ids"], batch["unique_ids"])
    loss, sums = compute(model, batch)
    losses = []
    for logits, name in zip(logits_by_numpy(model, batch), ("start", "end"), strict=True):
        assert found[f"{name}_logits"].dtype == tf.float32
        np.testing.assert_allclose(found[f"{name}_logits"], logits, rtol=1e-4, atol=1e-5)
        positions = batch[f"{name}_positions"].numpy()
        log_probs = log_softmax(logits.astype(np.float64))  # all positions compete, also padding
        losses.append(-log_probs[np.arange(BATCH), positions])
        right = logits.argmax(axis=1) == positions
        assert sums[f"{name}_accuracy"] == (right.sum(), BATCH)
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-5)


OPTIONS = [(True, True, True), (True, True, False), (True, False, True), (False, True, True)]
OPTIONS += [(False, True, False), (False, False, True)]


def gelu(x):
    return tf.nn.gelu(tf.constant(x, tf.float64)).numpy()


class Numpy:
    """The head in numpy, as the original writes it: a concatenation for each pair."""

    def __init__(self, model, batch):
        self.weights = {
            v.path.removeprefix("task_specific/squad/"): v.numpy().astype(np.float64)
            for v in model.cls.variables
        }
        inputs = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
        self.hidden = model.bert(*inputs).sequence_output.numpy().astype(np.float64)
        text = batch["input_mask"].numpy() * batch["segment_ids"].numpy()
        text[:, 0] += 1
        self.outside = 1000.0 * (text - 1.0)

    def dense(self, name, x):
        return x @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]

    def start(self):
        return self.dense("dense", self.hidden)[..., 0] + self.outside

    def end(self, row, start=None):
        if "qa_hidden/kernel" not in self.weights:
            return self.dense("dense_1", self.hidden[row])[..., 0] + self.outside[row]
        vectors = np.tile(self.hidden[row, start], (LENGTH, 1))
        pairs = np.concatenate([vectors, self.hidden[row]], -1)
        hidden = gelu(self.dense("qa_hidden", pairs))
        return self.dense("dense_1", hidden)[..., 0] + self.outside[row]

    def answerable(self):
        vectors = self.hidden[:, 0]
        if "dense_3/kernel" not in self.weights:
            return self.dense("dense_2", vectors)[:, 0]
        likely = np.exp(log_softmax(self.start()))
        vectors = np.concatenate([vectors, np.einsum("bs,bsh->bh", likely, self.hidden)], -1)
        return self.dense("dense_3", gelu(self.dense("dense_2", vectors)))[:, 0]


def make(joint, classifier, uses_start):
    model = JointSquadModel(BertConfig.from_dict(CONFIG), joint, 3, classifier, uses_start, 0.7)
    set_random_weights(model)
    return model


@pytest.mark.parametrize(("joint", "classifier", "uses_start"), OPTIONS)
def test_outputs_and_loss_against_numpy(joint, classifier, uses_start):
    model, batch = make(joint, classifier, uses_start), features()
    head, is_impossible = Numpy(model, batch), batch["is_impossible"].numpy()
    wanted = {"joint_prediction": joint, "answerable_classifier": classifier}
    if classifier:
        wanted["answerable_uses_start_logits"] = uses_start
    assert head_options(v.path for v in model.variables) == wanted
    made = settings_of_lengths(**SquadTask.defaults([v.path for v in model.variables]))
    assert {name: getattr(made, name) for name in wanted} == wanted
    starts, ends = (batch[f"{name}_positions"].numpy() for name in ("start", "end"))
    # In training the end is predicted for the true start.
    outputs = model(batch, training=True, dropout_seed=tf.constant([0, 0]))
    np.testing.assert_allclose(outputs["start_logits"], head.start(), rtol=1e-5, atol=1e-4)
    end_logits = np.stack([head.end(row, starts[row]) for row in range(3)])
    np.testing.assert_allclose(outputs["end_logits"], end_logits, rtol=1e-5, atol=1e-4)
    losses = -log_softmax(head.start())[range(3), starts] - log_softmax(end_logits)[range(3), ends]
    expected = losses.mean() / 2
    if classifier:
        logits = head.answerable()
        np.testing.assert_allclose(outputs["answerable_logit"], logits, rtol=1e-4, atol=1e-5)
        expected += 0.7 * np.mean(np.log1p(np.exp(logits)) - is_impossible * logits)
    else:
        assert "answerable_logit" not in outputs
    loss, sums = model.loss_and_metrics(outputs, batch, model.normalizers(batch))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    assert set(sums) == {"start_accuracy", "end_accuracy"}


def test_the_beam_against_numpy():
    model, batch = make(True, True, True), features()
    head = Numpy(model, batch)
    outputs = model.predictions(model(batch), batch)
    scores = log_softmax(head.start())
    assert not outputs["end_logits"].numpy().any()
    for row in range(3):
        likely = np.argsort(-scores[row], kind="stable")[:3]
        np.testing.assert_array_equal(outputs["start_top_index"][row], likely)
        np.testing.assert_allclose(outputs["start_top_log_probs"][row], scores[row][likely], 1e-4)
        for i, start in enumerate(likely):
            of_ends = log_softmax(head.end(row, start)[np.newaxis])[0]
            ends = np.argsort(-of_ends, kind="stable")[:3]
            found = outputs["end_top_log_probs"][row, i]
            np.testing.assert_allclose(found, of_ends[ends], rtol=1e-4, atol=1e-4)
            if of_ends[ends[-1]] > -900:  # outside the text, logits of 1000 less round alike
                np.testing.assert_array_equal(outputs["end_top_index"][row, i], ends)

    # A short sequence has a shorter beam.
    outputs = JointSquadModel(BertConfig.from_dict(CONFIG), beam_size=20)(batch)
    assert outputs["end_top_index"].shape == (3, LENGTH, LENGTH)


@needs_golden
@pytest.mark.parametrize("case", ["squad", "squad_separate", "squadv1"])
def test_names_and_shapes_are_the_originals(case):
    folder = pathlib.Path(os.environ["BERT_TF_GOLDEN"], "electra", "tasks", case)
    described = json.loads((folder / "hparams.json").read_text())
    given = described["hparams"]
    names = ("joint_prediction", "beam_size", "answerable_classifier")
    options = {name: given[name] for name in names if name in given}
    options["answerable_uses_start_logits"] = given.get("answerable_uses_start_logits", True)
    config = BertConfig.from_dict({**SMALL, "hidden_size": 32, "num_attention_heads": 4})
    found = {v.path: list(v.shape) for v in JointSquadModel(config, **options).cls.variables}
    wanted = {n.replace("squadv1", "squad"): shape for n, shape in described["head"].items()}
    assert found == wanted


def test_a_loaded_model_answers_as_the_program(tmp_path):
    made = JointSquadModel(BertConfig.from_dict(model_folders.CONFIG), beam_size=4)
    set_random_weights(made, 3)
    weights = {v.path: v.numpy() for v in made.variables}
    model = load(model_folders.write_model(tmp_path / "m", weights))
    assert model.heads == ("squad",)
    context = "the cat sat on a mat , the dog ran in paris ."
    options = {"max_seq_length": 16, "doc_stride": 3}
    settings = settings_of_lengths(16, 3, 4, max_answer_length=30, version_2_with_negative=True)
    paragraphs = [{"context": context, "qas": [question("q", "who sat")]}]
    asked = questions_in({"data": [{"paragraphs": paragraphs}]}, "")
    data = squad_data(asked, "", False, True)
    encoder = SquadEncoder(data, model.tokenizer, settings, is_training=False)
    write_records(str(tmp_path / "x.tf_record"), data.examples, encoder)
    ids, _ = model.tokenizer.encode(["who sat"])
    made = make_inputs(ids.tolist(), encoder.contexts[0], 16, 3, model.tokenizer.layout)
    rows = [row for _, row in made]
    names = ("input_ids", "input_mask", "segment_ids")
    outputs = model.model({name: np.array([row[name] for row in rows]) for name in names})
    logits = (
        answers.window_logits({name: x.numpy()[i] for name, x in outputs.items()})
        for i in range(len(rows))
    )
    wanted = answers.predict_answers(
        data, encoder.contexts, encoder.windows, logits, settings, model.tokenizer
    )
    odds = wanted.null_odds["q"]
    found = model.answer("who sat", context, **options)
    assert found.text == wanted.best_answers["q"]
    assert found.log_odds == pytest.approx(-odds, abs=1e-5)
    for threshold in (odds - 1e-3, odds + 1e-3):
        chosen = model.answer("who sat", context, null_score_diff_threshold=threshold, **options)
        assert chosen.text == (found.text if threshold > odds else "")
    made = {"max_query_length": 4, "verbose": 0, **options}  # with the heads that the folder has
    assert model.evaluate([("who sat", context)], [found.text], **made)["exact_match"] == 100
    with pytest.raises(UserError, match='needs separate end logits; .* Use method="run_squad"'):
        model.answer("who sat", context, method="transformers", max_seq_length=16, doc_stride=3)
    with pytest.raises(UserError, match="has ELECTRA's heads for questions, which cannot be exp"):
        export_model(model, tmp_path / "exported", format="saved_model")
