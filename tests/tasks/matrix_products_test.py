"""Tests of bert_tf/tasks/matrix_products.py."""

from pathlib import Path

import pytest

from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import RobertaConfig, read_config
from bert_tf.tasks import matrix_products
from bert_tf.tasks.pretraining.training.settings import RecordBatches

MODELS = Path(__file__).resolve().parents[2] / "flags" / "models"
BASE = BertConfig.from_json_file(str(MODELS / "uncased_L-12_H-768_A-12" / "bert_config.json"))


def products(config: BertConfig, length: int, predictions: int) -> int:
    """Returns the operations of the forward pass of a sequence, counted product by product."""
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads
    head = hidden // heads
    shapes = []
    for _ in range(config.num_hidden_layers):
        shapes += [(length, hidden, hidden)] * 3
        shapes += [(length, head, length), (length, length, head)] * heads
        shapes += [(length, hidden, hidden), (length, hidden, inner), (length, inner, hidden)]
    shapes += [(1, hidden, hidden), (1, hidden, 2)]
    shapes += [(predictions, hidden, hidden), (predictions, hidden, config.vocab_size)]
    return sum(2 * m * k * n for m, k, n in shapes)


@pytest.mark.parametrize("length, predictions", [(128, 20), (512, 77)])
def test_operations(length, predictions):
    phase = RecordBatches(length, 7, 5, predictions)
    forward = products(BASE, length, predictions)
    assert matrix_products.training_flops(BASE, phase) == 5 * 3 * forward
    again = matrix_products.training_flops(BASE, phase, True) - 5 * 3 * forward
    # The encoder once more: all but the heads.
    assert 0.8 * forward < again / 5 < forward
    found = matrix_products.forward_products(RobertaConfig(50), phase)  # which has no pairs
    assert found == matrix_products.forward_products(RobertaConfig(50), phase, "mlm")


@pytest.mark.parametrize(
    "electra, generator, discriminator",
    [
        ({}, (64, 12, 1), True),
        ({"generator_hidden_size": 0.5, "generator_layers": 0.25}, (128, 3, 2), True),
        ({"untied_generator": False}, (256, 12, 4), True),
        ({"uniform_generator": True}, None, True),
        ({"electra_objective": False}, (256, 12, 4), False),
    ],
    ids=str,
)
def test_electra_has_the_products_of_both_models(electra, generator, discriminator):
    config = read_config(str(MODELS / "electra_small" / "bert_config.json"))
    width, vocab, tokens, places = 128, config.vocab_size, 5 * 128, 5 * 19

    def encoder(hidden, layers, heads, inner):
        attention = 2 * 128 * heads * (hidden // heads)
        each = 4 * hidden * hidden + 2 * hidden * inner + attention
        return tokens * (layers * each + (width * hidden if hidden != width else 0))

    expected = 0
    if generator:
        hidden, layers, heads = generator
        expected = encoder(hidden, layers, heads, 4 * hidden) + places * width * (hidden + vocab)
    if discriminator:
        expected += encoder(256, 12, 4, 1024) + tokens * 256 * 257
    phase = RecordBatches(128, 7, 5, 19)
    found = matrix_products.training_flops(config, phase, False, "electra", electra)
    assert found == 3 * 2 * expected


def test_operations_are_about_those_that_a_compiler_counts():
    # 2,303.6 GFLOP: XLA's own count for a step of BERT-Base with 32 sequences, compiled for v5e.
    step = matrix_products.training_flops(BASE, RecordBatches(128, 1, 32, 20))
    assert step == pytest.approx(2303.6e9, rel=0.05)
