"""Tests of benchmarks/take_turns.py and yardstick.py."""

from pathlib import Path

import tensorflow as tf

from benchmarks.take_turns import describe, take_turns
from benchmarks.yardstick import Yardstick, operands
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.matrix_products import forward_products
from bert_tf.tasks.pretraining.training.settings import RecordBatches

MODELS = Path(__file__).resolve().parents[2] / "flags" / "models"
BASE = BertConfig.from_json_file(str(MODELS / "uncased_L-12_H-768_A-12" / "bert_config.json"))


def test_each_has_its_turn_in_each_round():
    calls = []
    runs = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    assert take_turns(runs, 2) == {"a": [3, 5], "b": [4, 6]}
    assert calls == [*"ababab"]
    assert take_turns(runs, 1, warm_up=False) == {"a": [7], "b": [8]}


def test_the_median_and_its_ratio_to_the_first():
    seconds = {"slow": [2.0, 9.0, 4.0], "fast": [1.0, 1.0, 0.5]}
    assert describe(seconds).splitlines() == [
        "slow: 4 s (2 to 9), 1.00 times as fast as the first",
        "fast: 1 s (0.5 to 1), 4.00 times as fast as the first",
    ]
    assert describe(seconds, 36).splitlines()[1] == (
        "fast: 36.00 examples/s (36.00 to 72.00), 4.00 times as fast as the first"
    )


def test_backward_there_are_two_products_of_the_same_size():
    for product in forward_products(BASE, RecordBatches(12, 1, 3, 2)):
        shapes = []
        for a, b, transpose_a, transpose_b in operands(product):
            result = tf.matmul(
                tf.ones(a), tf.ones(b), transpose_a=transpose_a, transpose_b=transpose_b
            )
            inner = a[-2] if transpose_a else a[-1]
            assert product.count * 2 * inner * tf.size(result).numpy() == product.flops
            shapes.append(result.shape.as_list())
        (first, second, _, _) = operands(product)[0]
        assert shapes[1:] == [first, second], product.name


def test_the_yardstick_takes_longer_for_more():
    config = BertConfig.from_dict(
        {**BASE.to_dict(), "hidden_size": 96, "num_attention_heads": 3, "intermediate_size": 160}
    )
    small, large = (Yardstick(config, RecordBatches(64, 1, n, 5)) for n in (1, 48))
    assert large.flops > 30 * small.flops
    assert 0 < small.seconds() < large.seconds()
