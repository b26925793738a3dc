"""Tests of tools.tpu.hlo_text on short programs; compile_for_tpu_test.py has real ones."""

import pytest

from tools.tpu import hlo_text

# A loop around a product and an all-reduce, a call, and a computation that nothing calls.
PROGRAM = """HloModule step, entry_computation_layout={(f32[4,6]{1,0})->f32[4,2]{1,0}}

%adder (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(f32[] %x, f32[] %y)
}

%inner.1 (p: bf16[2,3,5,7]) -> bf16[2,3,5,5] {
  %p = bf16[2,3,5,7]{3,2,1,0} parameter(0)
  ROOT %dot.1 = bf16[2,3,5,5]{3,2,1,0} dot(bf16[2,3,5,7]{3,2,1,0} %p, bf16[2,3,5,7]{3,2,1,0} %p), \
lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={3}, \
metadata={op_type="BatchMatMulV2" op_name="bert/layer_0/MatMul"}
}

%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %c = bf16[2,3,5,5]{3,2,1,0} call(bf16[2,3,5,7]{3,2,1,0} %q), to_apply=%inner.1
  %all-reduce.9 = f32[8]{0} all-reduce(f32[8]{0} %v), replica_groups={{0,1}}, to_apply=%adder
  ROOT %r = (s32[], f32[8]{0}) tuple(s32[] %i, f32[8]{0} %all-reduce.9)
}

%condition (t: (s32[], f32[8])) -> pred[] {
  ROOT %less = pred[] compare(s32[] %i, s32[] %n), direction=LT
}

%forgotten (a: f32[9,9]) -> f32[9,9] {
  ROOT %dot.7 = f32[9,9]{1,0} dot(f32[9,9]{1,0} %a, f32[9,9]{1,0} %a), lhs_contracting_dims={1}
}

ENTRY %main (a: f32[4,6]) -> f32[4,2] {
  %a = f32[4,6]{1,0} parameter(0)
  %b = f32[6,2]{1,0} constant({...})
  %loop = (s32[], f32[8]{0}) while((s32[], f32[8]{0}) %t0), condition=%condition, body=%body
  %start = (f32[8]{0:T(128)}, /*index=1*/f32[8]{0:T(128)}) all-reduce-start(%u), to_apply=%adder
  %done = f32[8]{0} all-reduce-done(%start)
  ROOT %dot.2 = f32[4,2]{1,0} dot(f32[4,6]{1,0} %a, f32[6,2]{1,0} %b), \
lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


# The same as TensorFlow gives it to JAX: StableHLO.
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
    %c = func.call @inner(%q) : (tensor<2x3x5x7xbf16>) -> tensor<2x3x5x5xbf16>
    stablehlo.return %i : tensor<i32>
  }
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
    assert hlo_text.matrix_products(STABLEHLO) == [
        hlo_text.MatrixProduct(name, ("bf16", "bf16"), flops, in_loop=True),
        hlo_text.MatrixProduct("last", ("f32", "f32"), 2 * (4 * 2) * 6, in_loop=False),
    ]
    with pytest.raises(ValueError, match="only `dot` is counted as a matrix product, not %"):
        hlo_text.matrix_products(CONVOLUTION)


def test_all_reduces_are_counted_where_they_begin():
    assert hlo_text.all_reduces(PROGRAM) == (1, 1, 2 * 8 * 4)
    assert hlo_text.all_reduces(PROGRAM.replace("body=%body", "body=%condition")) == (1, 0, 64)
    assert hlo_text.all_reduces(PROGRAM.replace("(f32[8]{0:T(128)}, /", "(bf16[], /"))[2] == 34


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="marked ENTRY"):
        hlo_text.all_reduces(PROGRAM.replace("ENTRY ", ""))
