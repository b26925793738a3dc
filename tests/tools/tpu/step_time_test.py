"""Tests of tools.tpu.step_time: its estimates beside the compiler's figures."""

import dataclasses
from pathlib import Path

import pytest

from bert_tf.model.family import read_config
from bert_tf.tasks.matrix_products import distillation_products, training_flops, training_products
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM
from bert_tf.tasks.pretraining.training.settings import RecordBatches
from tests.support.shapes import variables_without_values
from tools.tpu import compiler, step_time

MODELS = Path(__file__).resolve().parents[3] / "flags" / "models"


def config_of(model, **changes):
    kind = "albert" if model.startswith("albert") else "bert"
    return dataclasses.replace(read_config(str(MODELS / model / f"{kind}_config.json")), **changes)


# Printed by tools.compile_for_tpu with libtpu 0.0.42.1; docs/measurements/tpu.md lists them.
@pytest.mark.parametrize(
    "chip, model, vocabulary, length, examples, predictions, parts, replicas, millions, megabytes",
    [
        ("TPU v6 lite", "uncased_L-12_H-768_A-12", 30522, 128, 32, 20, 1, 8, 21.77, 440),
        ("TPU v6 lite", "uncased_L-12_H-768_A-12", 30522, 512, 32, 77, 1, 8, 120.9, 440),
        ("TPU v5 lite", "uncased_L-12_H-768_A-12", 30522, 128, 32, 20, 1, 8, 43.49, 440),
        ("TPU v5 lite", "uncased_L-12_H-768_A-12", 30522, 512, 32, 77, 1, 8, 222.2, 440),
        ("TPU v6 lite", "uncased_L-2_H-768_A-12", 30522, 512, 32, 77, 1, 1, 28.33, None),
        ("TPU v6 lite", "uncased_L-2_H-768_A-12", 1024, 512, 32, 77, 1, 1, 20.9, None),
        ("TPU v5 lite", "uncased_L-2_H-768_A-12", 1024, 512, 32, 77, 1, 1, 35.8, None),
        ("TPU v6 lite", "uncased_L-2_H-768_A-12", 1024, 128, 128, 20, 1, 1, 14.6, None),
        ("TPU v5 lite", "uncased_L-2_H-768_A-12", 1024, 128, 128, 20, 1, 1, 26.8, None),
        ("TPU v6 lite", "uncased_L-2_H-768_A-12", 30522, 128, 4, 20, 4, 64, 7.623, 156.9),
        ("TPU v6 lite", "uncased_L-24_H-1024_A-16", 30522, 128, 4, 20, 4, 64, 47.61, 1345),
        ("TPU v3", "uncased_L-2_H-768_A-12", 30522, 128, 32, 20, 1, 8, 23.08, 156.9),
        ("TPU v5", "uncased_L-2_H-768_A-12", 30522, 512, 4, 77, 1, 4, 5.461, 156.9),
        ("TPU v5 lite", "uncased_L-2_H-768_A-12", 30522, 512, 8, 77, 1, 1, 14.59, None),
    ],
)
def test_estimates_are_within_15_percent_of_the_compiler(
    chip, model, vocabulary, length, examples, predictions, parts, replicas, millions, megabytes
):
    config = config_of(model, vocab_size=vocabulary)
    phase = RecordBatches(length, 1, examples * replicas, predictions)
    chip = compiler.CHIPS[chip].divided(2 if chip == "TPU v3" else 1)
    products = training_products(config, phase)
    found = step_time.estimate_step(config, products, chip, replicas, parts)
    seconds = millions * 1e6 / chip.clock
    assert found.computing == pytest.approx(seconds, rel=0.15)
    if megabytes:
        assert found.reduced / 1e6 == pytest.approx(megabytes, rel=0.01)
        seconds += chip.all_reduce_seconds(megabytes * 1e6, replicas)
    assert found.seconds() == pytest.approx(seconds, rel=0.15) and not found.compiled
    known = step_time.estimate_step(config, products, chip, replicas, parts, millions * 1e6)
    assert known.computing == millions * 1e6 / chip.clock and known.compiled
    assert known.fixed / known.computing == pytest.approx(found.fixed / found.computing)


def test_an_estimate_by_hand():
    """A model of one layer, of whose terms none is small; one tensor is large."""
    config = config_of("uncased_L-2_H-128_A-2", num_hidden_layers=1, vocab_size=5000)
    products = training_products(config, RecordBatches(32, 1, 3600, 5))
    chip = compiler.Chip(flops=1e14, bandwidth=7e11, links=4e7, memory=1.0, clock=2e9)
    replicas, parts, tokens = 3, 2, 1200 * 32  # of a replica
    far = tokens * 512 - step_time._NEAR * parts
    numbers = tokens * (4 * 256 + 2 * 640) + 2 * 1200 * 2 * 32 * (32 + 64)
    numbers += 1200 * (5 * 256 + 256 + 130)
    weights = 128 * (5000 + 512 + 2) + 4 * 128**2 + 2 * 128 * 512 + 2 * 128**2 + 2 * 128
    fixed = step_time._WEIGHT * parts + step_time._UPDATE + step_time._REDUCED
    fixed *= (weights + 128 * 5000) / 7e11
    traffic = step_time._NUMBER * numbers + step_time._FAR_NUMBER * 2 * far
    traffic += step_time._LOGIT * 1200 * 5 * 5128
    lookups = step_time._LOOKUP * 2 * 2 * tokens * 5000 * 128 / 1e14
    at_the_peak = training_flops(config, RecordBatches(32, 1, 1200, 5)) / 1e14
    found = step_time.estimate_step(config, products, chip, replicas, parts)
    exposed = step_time._EXPOSED * at_the_peak
    assert found.fixed == pytest.approx(fixed)
    assert found.computing == pytest.approx(fixed + traffic / 7e11 + lookups + exposed)
    assert found.reducing == pytest.approx(2 * 4 * weights * 2 / 3 / 4e7)
    slow = dataclasses.replace(chip, flops=1e11)  # whose products hide the traffic
    found = step_time.estimate_step(config, products, slow, replicas, parts)
    assert found.computing == pytest.approx(1000 * (lookups + at_the_peak))


@pytest.mark.parametrize(
    "model, objective",
    [
        *(("uncased_L-4_H-256_A-4", "mlm_nsp"), ("albert_base_v2", "mlm_sop")),
        *(("electra_small", ELECTRA), ("roberta_base", MLM)),
    ],
)
def test_the_weights_are_the_model_s(model, objective):
    from bert_tf.tasks.pretraining.training.electra import pretraining_model

    config = config_of(model)
    options = {"use_one_hot_embeddings": True, "dtype": "bfloat16", "recompute_activations": False}
    with variables_without_values():
        built = pretraining_model(config, objective, {}, **options)
        count = sum(variable.shape.num_elements() for variable in built.trainable_variables)
    products = training_products(config, RecordBatches(128, 1, 8, 20), objective=objective)
    assert step_time.count_weights(config, products) == pytest.approx(count, rel=0.01)


def test_a_teacher_is_not_trained():
    student, teacher = config_of("uncased_L-6_H-768_A-12"), config_of("uncased_L-12_H-768_A-12")
    phase = RecordBatches(128, 1, 8, 20)
    products = distillation_products(student, phase, teacher, True)
    alone = training_products(student, phase, objective=MLM)
    assert step_time.count_weights(student, products) == step_time.count_weights(student, alone)
    chip = compiler.CHIPS["TPU v5 lite"]
    both, one = (step_time.estimate_step(student, x, chip, 1) for x in (products, alone))
    assert 1.4 < (both.computing - both.fixed) / (one.computing - one.fixed) < 1.8
