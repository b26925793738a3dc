"""Tests of tools.tpu.stablehlo on short programs; compile_for_tpu_test.py has real ones."""

import pytest

from tools.tpu import stablehlo

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


def test_matrix_products_have_types_operations_and_loops():
    pytest.importorskip("jax")
    name, flops = "bert/layer_0/MatMul", 2 * (2 * 3 * 5 * 5) * 7
    assert stablehlo.read_program(STABLEHLO).products == [
        stablehlo.MatrixProduct(name, ("bf16", "bf16"), flops, in_loop=True),
        stablehlo.MatrixProduct("last", ("f32", "f32"), 2 * (4 * 2) * 6, in_loop=False),
    ]
    with pytest.raises(ValueError, match="only `dot` is counted as a matrix product, not %"):
        stablehlo.read_program(CONVOLUTION)


def test_all_reduces_have_bytes():
    pytest.importorskip("jax")
    work = stablehlo.read_program(STABLEHLO)
    assert (work.reduced, work.reduced_in_loops) == (2 * 3 * 5 * 7 * 2, 4 * 6 * 4)
    work = stablehlo.read_program(
        CONVOLUTION.split("  %c =")[0]
        + """
  %c = stablehlo.constant dense<0.0> : tensor<1x6x6x4xf32>
  return %c : tensor<1x6x6x4xf32>
}"""
    )
    assert work == stablehlo.Work()
