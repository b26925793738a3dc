"""Runs the fuzzers in turn, and prints the number of cases of each."""

import tempfile
from pathlib import Path

from absl import app, flags

from tests.fuzz.cases import fuzzers, run_cases

FLAGS = flags.FLAGS
flags.DEFINE_float("seconds", 60.0, "Seconds in all, shared out evenly.", lower_bound=0.0)
flags.DEFINE_list("only", [], "Fuzzers to run; all by default.")
flags.DEFINE_integer("first_case", 0, "Number of each fuzzer's first case.", lower_bound=0)
flags.DEFINE_integer("num_cases", None, "Cases of each fuzzer; by default what the time allows.")


def main(argv: list[str]) -> None:
    """Runs the fuzzers that the flags name."""
    if len(argv) > 1:
        raise app.UsageError(f"only flags are taken, not {argv[1:]}")
    chosen = fuzzers()
    unknown = set(FLAGS.only) - chosen.keys()
    if unknown:
        raise app.UsageError(f"no such fuzzer: {sorted(unknown)}; there are {sorted(chosen)}")
    chosen = {name: f for name, f in chosen.items() if name in FLAGS.only or not FLAGS.only}
    for name, fuzzer in chosen.items():
        which = (FLAGS.first_case, FLAGS.num_cases, FLAGS.seconds / len(chosen))
        with tempfile.TemporaryDirectory() as folder:
            count = run_cases(name, fuzzer, Path(folder), *which)
        print(f"{name}: {count} cases", flush=True)


if __name__ == "__main__":
    app.run(main)
