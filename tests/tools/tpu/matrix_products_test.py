"""Tests of tools/tpu/matrix_products.py."""

from pathlib import Path

import pytest

from bert_tf.model.configuration import BertConfig
from bert_tf.model.roberta_configuration import RobertaConfig
from bert_tf.tasks.pretraining.training.phases import RecordBatches
from tools.tpu import matrix_products

MODELS = Path(__file__).resolve().parents[3] / "flags" / "models"
BASE = BertConfig.from_json_file(str(MODELS / "uncased_L-12_H-768_A-12" / "bert_config.json"))
LARGE = BertConfig.from_json_file(str(MODELS / "uncased_L-24_H-1024_A-16" / "bert_config.json"))


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


@pytest.mark.parametrize("config", [BASE, LARGE], ids=["base", "large"])
@pytest.mark.parametrize("length, predictions", [(128, 20), (512, 77)])
def test_operations(config, length, predictions):
    phase = RecordBatches(length, 7, 5, predictions)
    forward = products(config, length, predictions)
    assert matrix_products.training_flops(config, phase) == 5 * 3 * forward
    again = matrix_products.training_flops(config, phase, True) - 5 * 3 * forward
    # The encoder once more: all but the heads.
    assert 0.8 * forward < again / 5 < forward


def test_roberta_has_no_products_of_pairs():
    phase = RecordBatches(12, 1, 3, 2)
    found = matrix_products.forward_products(RobertaConfig(50), phase)
    assert found == matrix_products.forward_products(RobertaConfig(50), phase, "mlm")


def test_operations_are_about_those_that_a_compiler_counts():
    # 2,303.6 GFLOP: XLA's own count for a step of BERT-Base with 32 sequences, compiled for v5e.
    step = matrix_products.training_flops(BASE, RecordBatches(128, 1, 32, 20))
    assert step == pytest.approx(2303.6e9, rel=0.05)
