"""Turns a TensorFlow function that reads and updates variables into a JAX function.

TensorFlow lowers the function to HLO, in which the variables are arguments and their new values are
results. JAX compiles this HLO as part of its own program, for any device that JAX knows.

Only `_stablehlo` uses an interface of JAX that is not public; `load_jax` checks it first.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError

TRIED = "jax 0.10.2"


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A TensorFlow function as a JAX function.

    module: the function in StableHLO, serialized.
    variables: the variables that it reads or updates.
    kept, updated: indices of the variables that it only reads, and that it updates.
    results: tf.TensorSpec of each result, in the structure that the function returns.
    """

    module: bytes
    variables: list[tf.Variable]
    kept: list[int]
    updated: list[int]
    results: Any

    def parted(self, values: Sequence[Any]) -> tuple[list, list]:
        """Splits a list with one value per variable into lists for `kept` and for `updated`."""
        return [values[i] for i in self.kept], [values[i] for i in self.updated]

    def __call__(self, inputs: Any, kept: Any, old: Any) -> tuple[Any, list]:
        """For JAX to trace: returns the results, and the new values of the updated variables."""
        values = dict(zip([*self.kept, *self.updated], [*kept, *old], strict=True))
        flat = [*tf.nest.flatten(inputs), *(values[i] for i in sorted(values))]
        outputs = _primitive().bind(*flat, program=self)
        count = len(outputs) - len(old)
        return tf.nest.pack_sequence_as(self.results, outputs[:count]), list(outputs[count:])


def lower(function: Any, inputs: Any) -> Program:
    """Lowers a tf.function with jit_compile for `inputs`, a tuple of (nested) tf.TensorSpecs."""
    inputs = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), inputs)
    traced = function.get_concrete_function(*inputs)
    hlo = function.experimental_get_compiler_ir(*inputs)(stage="hlo_serialized")
    by_handle = {id(variable.handle): variable for variable in traced.variables}
    # Everything else that the function captures is a constant.
    variables = [
        by_handle[id(x)] if id(x) in by_handle else tf.Variable(x, trainable=False)
        for x in traced.captured_inputs
    ]
    first = len(tf.nest.flatten(inputs))
    module, count, aliases = _stablehlo(hlo)
    if count != first + len(variables):
        raise RuntimeError(
            f"TensorFlow lowered a step of {first} inputs and {len(variables)} variables to a"
            f" program of {count} parameters: TensorFlow made a constant of an input or variable"
            " that an assertion or a shape depends on, so the program would ignore its later values"
        )
    results = tf.nest.map_structure(
        lambda x: tf.TensorSpec(x.shape, x.dtype), traced.structured_outputs
    )
    number = len(tf.nest.flatten(results))
    if sorted(aliases) != [number + i for i in range(len(aliases))]:
        raise RuntimeError(
            f"TensorFlow lowered a step of {number} results to a program whose results"
            f" {sorted(aliases)} are new values of variables; these must come last"
        )
    updated = [aliases[i] - first for i in sorted(aliases)]
    kept = sorted({*range(len(variables))} - {*updated})
    return Program(module, variables, kept, updated, results)


def load_jax() -> Any:
    """Imports JAX; raises UserError for versions that do not work."""
    if not tf.__version__.startswith("2.21."):  # the version whose HLO was tested
        raise UserError(
            f"--tpu=pjrt needs TensorFlow 2.21; this is {tf.__version__}. In an environment of its"
            ' own run pip install -e ".[pjrt]"'
        )
    try:
        import jax._src.lib

        assert callable(jax._src.lib._jax.mlir.hlo_to_stablehlo)
    except ImportError as error:
        raise UserError(
            f"--tpu=pjrt needs JAX: {error.name or error} is not installed. In an environment"
            ' without tensorflow-tpu, run pip install -e ".[pjrt]"'
        ) from error
    except AttributeError as error:
        raise UserError(
            f"--tpu=pjrt does not work with jax {jax.__version__} ({error}); it was tried with"
            f' {TRIED}. Run pip install -e ".[pjrt]"'
        ) from error
    return jax


def _stablehlo(hlo: bytes) -> tuple[bytes, int, dict[int, int]]:
    """Returns a serialized HloModuleProto as StableHLO, its number of parameters, and its aliases.

    An alias maps the number of a result to the number of the parameter whose new value it is.
    """
    from jax._src.lib import _jax
    from jax.extend.mlir import ir
    from jax.interpreters import mlir

    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        aliases = {}
        if "mhlo.input_output_alias" in module.operation.attributes:
            for entry in module.operation.attributes["mhlo.input_output_alias"]:
                number = ir.IntegerAttr(entry["alias"]["parameter_number"]).value
                aliases[ir.DenseI64ArrayAttr(entry["output_index"])[0]] = number
        _adapt(module.operation, ir)
        main = ir.SymbolTable(module.operation)["main"]
        return mlir.module_to_bytecode(module), len(main.type.inputs), aliases


def _adapt(operation: Any, ir: Any) -> None:
    """Rewrites TensorFlow's operations in place, as JAX needs them.

    StableHLO lacks mhlo.copy, which TensorFlow emits for variables. TensorFlow's all-reduces are
    over replicas; JAX's are over partitions and need a channel.
    """
    blocks = [block for region in operation.regions for block in region.blocks]
    for inner in [op.operation for block in blocks for op in block.operations]:
        if inner.name == "mhlo.copy":
            inner.results[0].replace_all_uses_with(inner.operands[0])
            inner.erase()
            continue
        if inner.name == "stablehlo.all_reduce":
            inner.attributes["channel_handle"] = ir.Attribute.parse(
                "#stablehlo.channel_handle<handle = 1, type = 1>"
            )
            inner.attributes["use_global_device_ids"] = ir.UnitAttr.get()
        _adapt(inner, ir)


@functools.cache
def _primitive() -> Any:
    from jax.core import ShapedArray
    from jax.extend.core import Primitive
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import func
    from jax.interpreters import mlir

    def shapes(*arguments: Any, program: Program) -> list[Any]:
        new = [program.variables[i] for i in program.updated]
        outputs = [*tf.nest.flatten(program.results), *new]
        return [ShapedArray(tuple(x.shape), np.dtype(x.dtype.as_numpy_dtype)) for x in outputs]

    def call(context: Any, *arguments: Any, program: Program) -> Any:
        module, outer = ir.Module.parse(program.module), context.module_context
        name = mlir.merge_mlir_modules(outer.module, "tensorflow", module, outer.symbol_table)
        return func.CallOp(outer.symbol_table[name], list(arguments)).results

    primitive = Primitive("tensorflow")
    primitive.multiple_results = True
    primitive.def_abstract_eval(shapes)
    mlir.register_lowering(primitive, call)
    return primitive
