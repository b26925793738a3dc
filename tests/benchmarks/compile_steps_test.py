"""benchmarks/compile_steps.sh, with a stand-in for the compiler."""

import os
import re
import subprocess
from pathlib import Path

from bert_tf.tasks.pretraining.training.settings import parse_phases
from tools.tpu import compiler

ROOT = Path(__file__).resolve().parents[2]
# Fails once for TPU7x; says that v4's does not fit.
STAND_IN = """#!/bin/sh
echo "$@"
case "$*" in
  *tpu7x*) [ -e again ] || { touch again; exit 1; } ;;
  *v4*) exit 2 ;;
esac
"""


def test_reports_are_kept_and_a_second_start_goes_on(tmp_path):
    python = tmp_path / "python"
    python.write_text(STAND_IN.replace("again", f"{tmp_path}/again"))
    python.chmod(0o755)

    def start():
        return subprocess.run(
            ["bash", ROOT / "benchmarks" / "compile_steps.sh", "steps"],
            env={**os.environ, "PYTHON": str(python)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    steps = tmp_path / "steps"
    assert start().returncode == 1
    kept = {path.name: path.stat().st_mtime_ns for path in steps.glob("*.txt")}
    assert "base_v4_2x2x4_512_in_1.txt" in kept and "base_tpu7x_2x2x2_512_in_1.txt" not in kept
    assert (steps / "base_tpu7x_2x2x2_512_in_1.txt.unfinished").exists()
    done = start()
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 34 - len(kept)
    assert len([*steps.iterdir()]) == 34
    assert all((steps / name).stat().st_mtime_ns == time for name, time in kept.items())
    for report in steps.iterdir():
        flags = dict(re.findall(r"--(\w+)=(\S+)", report.read_text()))
        assert flags["topology"].partition(":")[0] in compiler.GENERATIONS
        assert (ROOT / flags.get("flagfile", flags.get("bert_config_file"))).exists()
        if "flagfile" not in flags:
            (phase,) = parse_phases(flags["phases"])
            assert phase.batch_size % int(flags.get("gradient_accumulation_steps", 1)) == 0
