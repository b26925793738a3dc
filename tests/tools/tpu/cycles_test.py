"""Tests of tools.tpu.cycles on a kept text; compile_for_tpu_test.py has what libtpu writes.

compiled_step.txt is from libtpu 0.0.42.1: the step of compile_for_tpu_test.py's model in 4 parts,
on 4 devices of a v5e. It was shortened: some of the instructions that have cycles and those that
name no computation are missing, as are layouts, most operands, and most of backend_config.
"""

import re
from pathlib import Path

import pytest

from tests.support.refusals import refuses
from tools.tpu import cycles

TEXT = (Path(__file__).parent / "compiled_step.txt").read_text()
LOOP = "wide.wide.region_1.58_spmd.clone.sunk"


def cycles_in(text):
    return sum(map(int, re.findall(r'estimated_cycles":"(\d+)"', text)))


def in_loop(text):
    """Returns the cycles of one round of the text's only loop."""
    (body,) = re.findall(r" while\(.*body=%([\w.-]+)", text)
    return cycles_in(re.search(rf"^%{re.escape(body)} .*?^\}}", text, re.MULTILINE | re.DOTALL)[0])


def test_kinds_add_up_and_the_loop_counts_for_each_round():
    found = cycles.read_instructions(TEXT)
    kinds = cycles.sum_by("kind", found)
    assert kinds == {
        "the rest": 63978,
        "matrix products": 60592,
        "softmax and LayerNorm": 59632,
        "random bits": 53041,
        "look-ups": 24588,
        "copies and transposes": 14013,
        "optimizer": 5482,
    }
    assert set(kinds) == set(cycles.KINDS) and in_loop(TEXT) > cycles_in(TEXT) / 2
    total = sum(kinds.values())
    assert total == cycles_in(TEXT) + 3 * in_loop(TEXT)
    longer = cycles.read_instructions(TEXT.replace(" constant(4)", " constant(16)"))
    assert sum(x.cycles for x in longer) == total + 12 * in_loop(TEXT)
    assert sum(cycles.sum_by("name", found).values()) == total


def test_what_is_left_out():
    inner, count = re.subn(
        r"( convolution\(.*)", r'\1, backend_config={"estimated_cycles":"99"}', TEXT
    )
    assert count > 5 and cycles_in(inner) > cycles_in(TEXT)
    assert cycles.read_instructions(inner) == cycles.read_instructions(TEXT)
    # The cycles of the SparseCores, as on TPU7x, which compute all-reduces.
    body = '  ROOT %sum = f32[] add(%a, %b), backend_config={"estimated_cycles":"1485"}'
    text = f"""%region.84 (a: f32[], b: f32[]) -> f32[] {{\n{body}\n}}"""
    refuses("region.84 has cycles", cycles.read_instructions, f"{TEXT}\n{text}", kind=ValueError)
    found = cycles.read_instructions(f'{TEXT}\n{text}, execution_thread="sparsecore"\n')
    assert found == cycles.read_instructions(TEXT)


@pytest.mark.parametrize(
    "change, message",
    [
        ((r'"estimated_cycles"', '"cycles"'), "has no estimated_cycles"),
        (("direction=LT", "direction=GT"), "condition wide.wide.region_55.59_spmd.clone does not"),
        ((" constant(4)", " parameter(1)"), "does not compare with one constant"),
        ((" while(", " wait("), f"{LOOP} has cycles, but is neither a loop's body nor a fusion"),
    ],
)
def test_a_text_of_another_form_is_refused(change, message):
    refuses(re.escape(message), cycles.read_instructions, TEXT.replace(*change), kind=ValueError)


LAYER = "bert_1/encoder_1/layer_11_1"


def test_kinds_and_names():
    for op_name, kind, name in (
        (
            f"jit(step)/shard_map/tensorflow/{LAYER}/output_1/dense_1/MatMul",
            *("matrix products", "bert/encoder/layer_*/output/dense/MatMul"),
        ),
        (
            f"tensorflow/gradient_tape/{LAYER}/output_1/dense_1/MatMul/MatMul_1",
            *("matrix products", "gradient of bert/encoder/layer_*/output/dense/MatMul"),
        ),
        # A product with what follows it is a product.
        (
            f"{LAYER}/attention_1/output_1/LayerNorm_1/mul",
            *("matrix products", "bert/encoder/layer_*/attention/output/LayerNorm/mul"),
        ),
        (
            f"{LAYER}/output_1/StatelessRandomUniformFullIntV2_1/xor.155",
            *("random bits", "bert/encoder/layer_*/output/StatelessRandomUniformFullIntV2"),
        ),
        (
            "bert_1/embeddings_1/random_bits_2/GreaterEqual",
            *("random bits", "bert/embeddings/random_bits/GreaterEqual"),
        ),
        ("generator/embeddings_1/MatMul_1", "look-ups", "generator/embeddings/MatMul"),
        ("optimizer_1/sub_49", "optimizer", "optimizer/sub"),
        ("LogSoftmax_1", "softmax and LayerNorm", "LogSoftmax"),
        ("self_1/transpose_2", "copies and transposes", "self/transpose"),
        ("", "the rest", "unnamed"),
    ):
        assert cycles.readable(op_name) == name
        assert cycles.kind_of("fusion", name, kind in ("matrix products", "look-ups")) == kind
    # A copy is a copy, of whatever.
    name = cycles.readable("while/StatefulPartitionedCall/layer_0/GreaterEqual;while/MatMul")
    assert name == "layer_*/GreaterEqual"
    assert cycles.kind_of("copy", name, False) == "copies and transposes"
