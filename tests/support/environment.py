"""The environment of tests, and of the programs that they start."""

import os

# LLVM's optimizations take a third of the time of a test that compiles a step, and a module for
# each fused loop a quarter; the results are within the same bounds without them.
_QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)


def compile_quickly() -> None:
    """Makes XLA compile quickly, in this process and those that it starts."""
    os.environ.setdefault("XLA_FLAGS", _QUICK_TO_COMPILE)


def of_a_user() -> dict[str, str]:
    """Returns the environment without the flags that make XLA compile quickly, compute slowly."""
    environment = dict(os.environ)
    if environment.get("XLA_FLAGS") == _QUICK_TO_COMPILE:
        del environment["XLA_FLAGS"]
    return environment
