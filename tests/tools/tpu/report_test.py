"""Tests of tools.tpu.report on made-up programs; compile_for_tpu_test.py has real ones."""

import dataclasses
import math

import pytest

from bert_tf.model.configuration import BertConfig
from bert_tf.optimization import AdamOptions
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.training.settings import RecordBatches
from tools.tpu import compiler, report

CONFIG = BertConfig(1000, hidden_size=64, num_hidden_layers=1, num_attention_heads=2)
PHASE = RecordBatches(32, 1, 8, 5)


def make_run(accumulation_steps=1):
    steps = accumulation_steps
    return report.Run(CONFIG, {}, 4, steps, "local_clip_sum", "mlm_nsp", AdamOptions())


EXECUTABLE = compiler.Executable(
    arguments=2 * 2**30, outputs=2**30, aliased=2**30, temporaries=3 * 2**30, code=2**29, flops=5e12
)


def test_report_and_bound():
    run = make_run(2)
    products = [
        report.MatrixProduct("a", ("bf16", "bf16"), 10**12, in_loop=False),
        report.MatrixProduct("b", ("bf16", "f32"), 2 * 10**12, in_loop=True),
    ]
    work = report.Work(products, reduced=4_800_000)
    device = compiler.Chip(flops=100e12, bandwidth=1e12, links=1e9, memory=8.0, clock=2e9)
    lines = report.report(run, PHASE, work, EXECUTABLE, device)
    on_paper = training_flops(CONFIG, PHASE)
    assert lines == [
        "fits: 5.50 of 8.00 GiB a replica (arguments 2.000, temporaries 3.000, code 0.500)",
        f"TFLOP a replica: 5 in matrix products, of which the model's {on_paper / 1e12:.4g}; 5 of"
        " every kind, counting loops once",
        "float32 matrix products: 1 (b)",
        "all-reduces: 4.8 MB; 0 MB in loops",
        # Of 4 replicas each sends 3/4 of the 4.8 MB, twice.
        "a step takes at least 50 ms: 50 for matrix products, 3.22 to read arguments and write"
        " outputs, 7.2 for all-reduces",
        f"at most 640 sequences/s, {on_paper / 5e12:.1%} MFU",
        "the compiler's cycles are not known: the compiled program's text has no estimated_cycles",
    ]
    slow_memory = dataclasses.replace(device, bandwidth=10e9)
    lines = report.report(run, PHASE, work, EXECUTABLE, slow_memory)
    assert lines[4].startswith("a step takes at least 322 ms: 50 for matrix products, 322 to read")
    slow_links = dataclasses.replace(device, links=0.1e9)
    lines = report.report(run, PHASE, work, EXECUTABLE, slow_links)
    assert lines[4].startswith("a step takes at least 72 ms: 50 for matrix products, 3.22 to read")
    assert lines[5] == f"at most 444 sequences/s, {on_paper / 7.2e12:.1%} MFU"


def test_report_of_cycles():
    device = compiler.Chip(flops=100e12, bandwidth=1e12, links=1e9, memory=8.0, clock=2e9)
    lines = "".join(
        f'  %x.{number} = f32[8] fusion(), metadata={{op_name="layer_{number}_1/{name}"}},'
        f' backend_config={{"estimated_cycles":"{count}"}}\n'
        for number, name, count in [
            *((0, "a", 10**7), (1, "a", 10**7), (0, "Softmax", 3 * 10**7), (0, "b", 4 * 10**7)),
            *((1, "c", 10**6), (1, "d", 5 * 10**6), (0, "e", 4 * 10**6)),
        ]
    )
    executable = dataclasses.replace(EXECUTABLE, text=f"ENTRY %main () -> () {{\n{lines}}}\n")
    work = report.Work([], reduced=4_800_000)
    printed = report.report(make_run(), PHASE, work, executable, device)
    on_paper, seconds = training_flops(CONFIG, PHASE), 100e6 / 2e9 + 7.2e-3
    assert printed[6:] == [
        "100 million cycles, as the compiler estimates them: 70.0% the rest, 30.0% softmax and"
        " LayerNorm",
        "  40.0% layer_*/b",
        "  30.0% layer_*/Softmax",
        "  20.0% layer_*/a",
        "  5.0% layer_*/d",
        "  4.0% layer_*/e",
        "by cycles a step takes 57.2 ms: 50 at 2 GHz, 7.2 for all-reduces at the links' speed",
        f"by cycles 559 sequences/s, {on_paper / (100e12 * seconds):.1%} MFU",
    ]


def test_clocks_follow_from_the_peaks():
    """Each multiplier does 2 operations a cycle, and chips have 2 to 32 arrays of 128 x 128."""
    for chip in compiler.CHIPS.values():
        arrays = chip.flops / (2 * chip.clock * 128**2)
        assert arrays == pytest.approx(2 ** round(math.log2(arrays)), rel=0.005)
    assert compiler.CHIPS.keys() == set(compiler.GENERATIONS.values())


# A loop around a call with a product and all-reduces, and a function that nothing calls.
STABLEHLO = """
func.func private @forgotten(%a: tensor<9x9xf32>) -> tensor<9x9xf32> {
  %dot = stablehlo.dot %a, %a : (tensor<9x9xf32>, tensor<9x9xf32>) -> tensor<9x9xf32>
  return %dot : tensor<9x9xf32>
}
func.func private @inner(%p: tensor<2x3x5x7xbf16>) -> tensor<2x3x5x5xbf16> {
  %dot = stablehlo.dot_general %p, %p, batching_dims = [0, 1] x [0, 1],
    contracting_dims = [3] x [3]
    : (tensor<2x3x5x7xbf16>, tensor<2x3x5x7xbf16>) -> tensor<2x3x5x5xbf16>
    loc("bert/layer_0/MatMul")
  return %dot : tensor<2x3x5x5xbf16>
}
func.func @main(%a: tensor<4x6xf32>, %b: tensor<6x2xf32>, %q: tensor<2x3x5x7xbf16>)
    -> tensor<4x2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %loop = stablehlo.while(%i = %zero) : tensor<i32>
  cond {
    %less = stablehlo.compare LT, %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  } do {
    %s = "stablehlo.all_reduce"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        stablehlo.return %x : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %c = func.call @inner(%q) : (tensor<2x3x5x7xbf16>) -> tensor<2x3x5x5xbf16>
    stablehlo.return %i : tensor<i32>
  }
  %t = "stablehlo.all_reduce"(%q) ({
    ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
      stablehlo.return %x : tensor<bf16>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<2x3x5x7xbf16>) -> tensor<2x3x5x7xbf16>
  %dot = stablehlo.dot %a, %b : (tensor<4x6xf32>, tensor<6x2xf32>) -> tensor<4x2xf32> loc("last")
  return %dot : tensor<4x2xf32>
}
"""
CONVOLUTION = """
func.func @main(%a: tensor<1x8x8x2xf32>, %b: tensor<3x3x2x4xf32>) -> tensor<1x6x6x4xf32> {
  %c = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x2xf32>, tensor<3x3x2x4xf32>) -> tensor<1x6x6x4xf32>
  return %c : tensor<1x6x6x4xf32>
}
"""


def test_matrix_products_and_all_reduces():
    pytest.importorskip("jax")
    name, flops = "bert/layer_0/MatMul", 2 * (2 * 3 * 5 * 5) * 7
    assert report.read_program(STABLEHLO).products == [
        report.MatrixProduct(name, ("bf16", "bf16"), flops, in_loop=True),
        report.MatrixProduct("last", ("f32", "f32"), 2 * (4 * 2) * 6, in_loop=False),
    ]
    with pytest.raises(ValueError, match="only `dot` is counted as a matrix product, not %"):
        report.read_program(CONVOLUTION)
    pytest.importorskip("jax")
    work = report.read_program(STABLEHLO)
    assert (work.reduced, work.reduced_in_loops) == (2 * 3 * 5 * 7 * 2, 4 * 6 * 4)
