"""Tests of tools/export.py as users run it."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.support.exported_heads import write_head
from tests.support.pretraining_runs import run, run_code

# Exports a model again and again. Each time a SIGTERM comes when TensorFlow's save has made a share
# of its calls of Python functions, some of which its C++ code makes. Prints what the save was at,
# the exit status and what was printed.
TERMINATE = """
import contextlib, io, json, os, signal, sys
import tensorflow as tf
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.runs.flags import command_flags
source, output, shares = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
save, total, sent = tf.saved_model.save, 0, None

def watched(*args, **kwargs):
    global sent
    calls = 0

    def count(frame, event, _):
        nonlocal calls
        global sent
        if event == "call":
            calls += 1
            if calls == at:
                sent = frame.f_code.co_qualname
                os.kill(os.getpid(), signal.SIGTERM)

    sys.setprofile(count)
    try:
        return save(*args, **kwargs)
    finally:
        sys.setprofile(None)
        global total
        total = total if at else calls

tf.saved_model.save = watched
ends = []
command_flags.define_flags(ExportSettings)
for number, share in enumerate([None, None, *shares]):  # the second counts: the first fills caches
    at, sent = share and max(1, int(share * total)), None
    place = f"{output}/{number if number % 2 else 'earlier'}" if share else f"{output}/0"
    sys.argv = ["tools.export", f"--input={source}", f"--output={place}", "--input_kind=ids"]
    with contextlib.redirect_stderr(io.StringIO()) as page:
        try:
            command_flags.run_program(
                lambda: export(command_flags.settings_from_flags(ExportSettings))
            )
        except SystemExit as end:
            ends.append([sent, end.code or 0, page.getvalue()])
print(json.dumps([total, ends]))
"""


def test_it_exports_and_says_how_near(tmp_path):
    source = write_head(tmp_path / "model", "tagging")
    output = tmp_path / "served" / "tagger" / "1"
    flags = (f"--input={source}", f"--output={output}", "--input_kind=ids")
    printed = run(*flags, program="tools.export")
    assert "tagging; classes: 'O', 'B-PER'" in printed
    assert "The exported and the original outputs differ by at most 0.0e+00" in printed
    said = [line for line in printed.splitlines() if line.startswith("I1") or "INFO" in line]
    assert len(said) <= 4, printed  # TensorFlow does not log its steps
    assert "README.md" in os.listdir(output) and os.listdir(output.parent) == ["1"]


def digests(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)}


@pytest.mark.slow
def test_sigterm_while_tensorflow_saves_leaves_a_whole_folder_or_none(tmp_path):
    """Every second export replaces an earlier folder, which stays as it was."""
    source, output = write_head(tmp_path / "model", "classification"), tmp_path / "served"
    flags = (f"--input={source}", f"--output={output}/earlier", "--input_kind=ids")
    run(*flags, program="tools.export")
    before = digests(output / "earlier")
    shares = [0.0001, 0.12, 0.31, 0.45, 0.58, 0.7, 0.83, 0.93]
    printed = run_code(TERMINATE, source, output, json.dumps(shares))
    total, ends = json.loads(printed.splitlines()[-1])
    assert total > 10_000
    assert [status for _, status, _ in ends] == [0, 0] + [75] * len(shares), ends
    assert all(sent for sent, _, _ in ends[2:]), ends  # each place was reached
    assert not [page for _, _, page in ends if "Traceback" in page or "RuntimeError" in page]
    # Nothing half-written, no temporary folder; 0 is the one that no signal disturbed.
    assert sorted(os.listdir(output)) == ["0", "earlier"]
    assert digests(output / "earlier") == before
