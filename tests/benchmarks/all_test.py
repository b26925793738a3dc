"""Tests of benchmarks/all.py: the table that it makes of what the benchmarks print."""

import pytest
from absl import flags

from benchmarks import all as every_benchmark
from tests.support.environment import of_a_user
from tests.support.pretraining_runs import ROOT, run

PRINTED = """\
batch: 8 of length 128
training, batches of 32:
padded to 128: 12.30 examples/s (12.01 to 12.50), 1.00 times as fast as the first
a line without a figure
| Program | Sentences/s | Peak memory, MiB |
|---|--:|--:|
| ours, float32 | 569 | 1,214 |
| theirs | 208 | 812 |
STS-B, float32: Spearman's correlation 86.73
| Operation | Share |
|---|--:|
| `MatMul` | 61% |
"""


def test_lines_and_tables_become_rows():
    assert [*every_benchmark.figures(PRINTED)] == [
        ("batch", "8 of length 128"),
        (
            "training, batches of 32: padded to 128",
            "12.30 examples/s (12.01 to 12.50), 1.00 times as fast as the first",
        ),
        ("ours, float32", "Sentences/s 569; Peak memory, MiB 1,214"),
        ("theirs", "Sentences/s 208; Peak memory, MiB 812"),
        ("training, batches of 32: STS-B, float32", "Spearman's correlation 86.73"),
        ("`MatMul`", "Share 61%"),
    ]


def test_the_processor_is_named(tmp_path, monkeypatch):
    core = "processor : {}\nmodel name : Fast 7\nflags : sse2 avx2 avx512_vnni amx_bf16x\n\n"
    (tmp_path / "cpuinfo").write_text("".join(map(core.format, range(3))))
    monkeypatch.setattr(every_benchmark, "CPU_INFO", tmp_path / "cpuinfo")
    assert every_benchmark.processor() == "Fast 7, 3 cores (avx2, avx512_vnni)"
    monkeypatch.setattr(every_benchmark, "CPU_INFO", tmp_path / "none")
    assert every_benchmark.processor() == "unknown processor"


def test_what_is_given_decides_what_is_measured(monkeypatch):
    values = flags.FlagValues()
    for name in ("output_dir", "model", "data_dir", "classifier", "torch_python"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    flags.DEFINE_bool("full", False, "", flag_values=values)
    values(["", "--output_dir=o"])
    monkeypatch.setattr(every_benchmark, "FLAGS", values)
    plain = ["records", "input pipeline", "training step", "float32 and bfloat16"]
    assert [name for name, _ in every_benchmark.measurements()] == plain
    values(["", "--model=m", "--data_dir=d", "--classifier=c", "--torch_python=p", "--full"])
    found = dict(every_benchmark.measurements())
    operations = ["operations, float32", "operations, bfloat16"]
    assert [*found] == [*plain, "memory", "fine-tuning", "answers", *operations, "serving"]
    assert found["memory"] == [["benchmarks.memory", "--model=m", "--torch_python=p"]]
    assert found["serving"] == [
        ["benchmarks.serving", "--classifier=c", "--data_dir=d/MRPC", "--output_dir=o/exports"]
        + ["--torch_python=p"]
    ]
    assert {"--torch_python=p", "--onnx_export=o/onnx", "--classifier=c"} <= {*found["answers"][1]}
    assert "--bert_config_file=flags/quickstart/bert_config.json" not in found["training step"][0]


@pytest.mark.slow
def test_what_was_measured_is_not_measured_again(tmp_path):
    """And a model without its data is refused."""
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("records", "input_pipeline", "training_step", "float32_and_bfloat16"):
        (folder / f"{name}.txt").write_text(f"{name}: 7 s\n")
    options = {"program": "benchmarks.all", "cwd": ROOT, "env": of_a_user()}
    printed = run(f"--output_dir={folder}", **options)
    assert "| input pipeline | input_pipeline | 7 s |" in printed
    printed = run(f"--output_dir={folder}", "--model=m", **options, status=1)
    assert "--model and --classifier need --data_dir, a folder with MRPC" in printed
