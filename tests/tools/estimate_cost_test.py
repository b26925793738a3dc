"""Tests of tools/estimate_cost.py."""

import copy
import dataclasses
import importlib.metadata
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import read_config
from bert_tf.modeling import AlbertConfig
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.training.electra_settings import MODEL_ARGUMENTS, ElectraSettings
from bert_tf.tasks.pretraining.training.settings import RecordBatches, parse_phases
from tests.support.pretraining_runs import run
from tests.support.refusals import refuses
from tools import estimate_cost
from tools.tpu import memory, step_flags
from tools.tpu.step_time import StepTime

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "flags/pretraining/uncased_base.flags"
MODELS = ROOT / "flags" / "models"
BASE = BertConfig.from_json_file(str(MODELS / "uncased_L-12_H-768_A-12" / "bert_config.json"))
LARGE = BertConfig.from_json_file(str(MODELS / "uncased_L-24_H-1024_A-16" / "bert_config.json"))
SIZES_OF_BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
ALBERT = AlbertConfig(3, embedding_size=128, num_hidden_layers=12, **SIZES_OF_BASE)


def estimated(*more: str, status: int = 0) -> str:
    """Returns what the program prints."""
    flags = ["--accelerator=v5e-8", f"--flagfile={RECIPE}", "--input_file=x", "--output_dir=y"]
    return run(*flags, *more, program="tools.estimate_cost", status=status)


def with_vocabulary(config: BertConfig, vocab_size: int) -> BertConfig:
    config = copy.copy(config)
    config.vocab_size = vocab_size
    return config


def test_the_utilisation_is_what_its_source_says():
    # Table 1 and section 4.1 of arXiv:1904.00962: batches of 64K and 32K, 8,599 steps, 76 minutes.
    phases = parse_phases("128:7037:65536:20,512:1562:32768:77")
    total = sum(phase.num_steps * training_flops(LARGE, phase) for phase in phases)
    share = total / (1024 * 123e12 * 76 * 60)
    assert share == pytest.approx(0.3, abs=0.05)
    assert share > estimate_cost.WORST_SHARE


SLICE = estimate_cost.Accelerator("v5e-4", 1, 4, 197.0, 0.5, 2.0, "zone-a")
# 45 million cycles at 1.5 GHz; of 4 replicas each sends 3/4 of the weights' gradients, twice.
COMPUTING = 0.030
REDUCING = 2 * 4 * 109.95e6 * 3 / 4 / 200e9


def test_estimate():
    phase = RecordBatches(128, 10, 256, 20)
    args = (BASE, [phase] * 1000, SLICE)
    text = estimate_cost.estimate(*args, spot=False, cycles=[45e6] * 1000)
    at_the_peak = training_flops(BASE, phase) / (4 * 197e12)
    least, most = (10_000 * (seconds + REDUCING) / 3600 for seconds in (COMPUTING, 5 * at_the_peak))
    assert f"  time   {least:.1f} to {most:.1f} hours: by these steps, or if the products" in text
    assert f"{least * 4 * 2:,.2f} to {most * 4 * 2:,.2f} US dollars at 2 a chip" in text
    assert "on demand in zone-a" in text and "steps  10,000: 10 of 256" in text
    assert (f"\n  step   of length 128: {(COMPUTING + REDUCING) * 1e3:.3g} ms, most of it") in text
    spot = estimate_cost.estimate(*args, spot=True, cycles=[45e6] * 1000)
    assert f"{least * 4 * 0.5:,.2f} to" in spot and "spot in zone-a" in spot
    # With cycles above a fifth of the peak.
    phase = RecordBatches(128, 10**6, 256, 20)
    text = estimate_cost.estimate(BASE, [phase], SLICE, spot=True, cycles=[1.5e9])
    assert f"  time   at least {1e6 * (1 + REDUCING) / 3600:.1f} hours: by these steps" in text
    assert f"  cost   at least {1e6 * (1 + REDUCING) / 3600 * 4 * 0.5:,.2f} US dollars" in text
    found = estimate_cost.read_accelerator("v6e-64")
    assert (found.hosts, found.chips) == (16, 64)
    text = estimate_cost.estimate(BASE, [phase], found, spot=True)
    assert "  slice  v6e-64: 64 chips of 918 TFLOP/s at most, on 16 hosts\n" in text


def test_max_hours_is_the_time():
    phase = RecordBatches(128, 1000, 256, 20)
    text = estimate_cost.estimate(BASE, [phase], SLICE, spot=False, max_hours=31.5)
    assert "  step   of length 128: " in text
    assert "  steps  as many of 256 sequences of length 128 as the time allows, what" in text
    assert f"  work   {training_flops(BASE, phase):.2g} floating" in text
    assert "products a step\n" in text
    assert "  time   31.5 hours (--max_hours) over all starts, with compiling and saving;" in text
    assert "  cost   252.00 US dollars at 2 a chip and hour, on demand in zone-a" in text


STEP = StepTime(
    products=5e-3, computing=8e-3, fixed=3e-3, reducing=1e-3, reduced=10**9, compiled=True
)


def test_what_bounds_a_step():
    for changes, expected in (
        ({}, "9 ms, most of it matrix products: 8 to compute (by the compiler's cycles; its"),
        ({"computing": 12e-3}, "13 ms, most of it memory: 12 to compute (by the compiler's"),
        ({"compiled": False}, "8 to compute (estimated, not compiled; its products take 5 at the"),
        ({"reducing": 6e-3}, "14 ms, most of it all-reduces: 8 to compute (by the compiler's cyc"),
        ({}, "at the peak), 1 for all-reduces of 1,000 MB"),
    ):
        step = dataclasses.replace(STEP, **changes)
        described = estimate_cost._describe(RecordBatches(128, 1, 256, 20), step, 1)[0]
        assert described.startswith("  step   of length 128: ") and expected in described
    # Products at a low share of the peak lengthen the step.
    seconds = [STEP.seconds(), STEP.seconds(0.5), STEP.seconds(0.9)]
    assert seconds == pytest.approx([9e-3, 11e-3, 9e-3])
    # A batch too small for the slice.
    for reducing, parts, expected in (
        (2.5e-3, 1, "52% of a step (weights, optimizer, all-reduces) stays as long with a larger"),
        (2.5e-3, 1, "batch; it is less than half from 512 sequences on. Such batches need another"),
        (8e-3, 4, "few for this slice: 69% of a step"),
        (
            8e-3,
            4,
            "; fewer --gradient_accumulation_steps shorten it; it is less than half from 768",
        ),
        (1.9e-3, 1, None),  # 4.9 ms that stay, 5 of the sequences
    ):
        step = dataclasses.replace(STEP, reducing=reducing)
        lines = estimate_cost._describe(RecordBatches(128, 1, 256, 20), step, parts)[1:]
        assert len(lines) == (expected is not None)
        for line in lines:
            assert line.startswith("  batch  of length 128: 256 sequences are few for this slice: ")
            assert expected in line and "flags/pretraining/lamb_large.flags" in line


def test_cycles_are_of_the_very_same_step(tmp_path):
    table = tmp_path / "memory.txt"
    line = "v5e-8 8 15.75 uncased_L-12_H-768_A-12 {} 20 32 2.87 {}\n"
    table.write_text(line.format(128, "24.15") + line.format(256, "48.3/2") + line.format(512, ""))
    assert [(p.cycles, p.parts) for p in memory.read_plans("v5e-8", str(table))] == [
        (24.15e6, 1), (48.3e6, 2), (None, 1)
    ]  # fmt: skip
    plans = memory.read_plans("v5e-32", str(table))
    for config, phase, parts, expected in [
        (BASE, (128, 1, 1024, 20), 1, 24.15e6),
        (BASE, (256, 1, 2048, 20), 2, 48.3e6),
        # Other parts, batch, predictions, vocabulary, model; no cycles; no plan.
        (BASE, (128, 1, 2048, 20), 2, None),
        (BASE, (128, 1, 512, 20), 1, None),
        (BASE, (128, 1, 1024, 19), 1, None),
        (with_vocabulary(BASE, 28996), (128, 1, 1024, 20), 1, None),
        (LARGE, (128, 1, 1024, 20), 1, None),
        (BASE, (512, 1, 1024, 20), 1, None),
        (BASE, (64, 1, 1024, 20), 1, None),
    ]:
        assert memory.look_up(plans, config, RecordBatches(*phase), parts)[1] == expected


def test_program():
    printed = estimated()
    assert "An estimate, not a measurement:\n  steps  1,000,000: 900,000 of 256" in printed
    # What docs/measuring.md shows.
    shown = (ROOT / "docs" / "measuring.md").read_text()
    assert printed[printed.index("An est") : printed.index("Prices are")] in shown
    printed = estimated("--max_hours=24", status=1)
    assert "--max_hours stretches one phase over the time; --phases has 2" in printed
    one = ("--phases=128:100000:256:20", "--num_warmup_steps=6000")
    printed = estimated("--max_hours=24", *one)
    assert "  time   24 hours (--max_hours) over all starts" in printed
    assert "  cost   47.04 US dollars at 0.245 a chip and hour, spot" in printed
    printed = estimated("--nodo_train", "--do_eval", status=1)
    assert "add --do_train: only training is estimated, and --do_train is false" in printed


@pytest.mark.parametrize(
    "recipe",
    [
        "uncased_base",
        *(
            pytest.param(f"{x}_large", marks=pytest.mark.slow)
            for x in ("roberta", "uncased", "cased")
        ),
        *(pytest.param(f"{x}_base", marks=pytest.mark.slow) for x in ("cased", "roberta")),
    ],
)
def test_recipes_expect_the_estimated_hours(recipe):
    path = f"flags/pretraining/{recipe}.flags"
    text = (ROOT / path).read_text()
    pattern = r"Expected: (\S+) to (\S+) hours on a v5e-8 and (\S+) to (\S+) on a v3-8,"
    hours = []
    for accelerator in ("v5e-8", "v3-8"):
        flags = (f"--flagfile={path}", f"--accelerator={accelerator}", "--vocab_file=x")
        time = re.search(r"time   (\S+) to (\S+) hours", estimated(*flags))
        hours += [f"{float(number):,.0f}" for number in time.groups()]
    assert hours == [*re.search(pattern, text).groups()]


def work_of(recipe, accelerator, *more):
    flags = [f"--accelerator={accelerator}", f"--flagfile=flags/{recipe}.flags"]
    flags += ["--input_file=x", "--output_dir=y", "--vocab_file=z"]
    printed = run(*flags, *more, program="tools.estimate_cost")
    return float(re.search("work   (.*) floating", printed)[1])


@pytest.mark.slow
def test_electra_s_generator_counts():
    small, large = (
        work_of("pretraining/electra_small", "v5e-8", f"--generator_hidden_size={share}")
        for share in (0.25, 1.0)
    )
    assert 1.5 < large / small < 2.5


@pytest.mark.slow
def test_distillation():
    teacher = f"--teacher_config_file={MODELS}/uncased_L-12_H-768_A-12/bert_config.json"
    undefined = "--undefok=alpha_ce,alpha_mlm,alpha_cos,student_layers"
    flags = ("distillation/distilbert", "v5e-32", teacher, undefined, "--temperature=1")
    work = [work_of(*flags), work_of(*flags, "--restrict_ce_to_mask")]
    # The teacher's layers are computed once, the student's half as many three times.
    student = BertConfig.from_json_file(str(MODELS / "uncased_L-6_H-768_A-12" / "bert_config.json"))
    phase = RecordBatches(512, 6500, 4096, 77)
    alone = phase.num_steps * training_flops(student, phase, objective="mlm")
    assert work[0] > work[1] and 1.5 < work[1] / alone < 1.8


def test_runs_that_would_be_refused():
    message = "must be one of v2-8, v3-8, v4-8, v4-16, .*v6e-64 .*; received v5e-9"
    refuses(message, estimate_cost.read_accelerator, "v5e-9")
    for name, phase, parts, message in (
        ("v5e-8", "1024:9:64:20", 1, "length 1024 of --max_seq_length or --phases must be at most"),
        ("v5e-8", "128:9:12:20", 1, r"\(12\) must be a multiple of 8: the replicas of --accelera"),
        ("v5p-8", "512:9:12:77", 2, r"\(12\) must be a multiple of 8: .*=v5p-8 times --gradient_a"),
        ("v3-8", "512:9:40:77", 2, r"\(40\) must be a multiple of 16: .*=v3-8 times --gradient_ac"),
    ):
        of_slice = estimate_cost.read_accelerator(name).replicas, f"--accelerator={name}"
        step_flags.check_phase(BASE, *parse_phases("512:9:48:77"), *of_slice, 2)
        refuses(message, step_flags.check_phase, BASE, *parse_phases(phase), *of_slice, parts)


def test_memory():
    for accelerator, config, phase, parts, expected in (
        # This step's own row; a step with fewer examples and predictions.
        ("v5e-8", LARGE, (512, 1, 256, 77), 4, "fits: 11.58 of 15.75 GiB a replica with 8 exam"),
        ("v5e-8", LARGE, (512, 1, 64, 20), 2, "at once, and this run has 4"),
        ("v5e-8", LARGE, (512, 1, 512, 77), 1, "does not fit: 30.53 of 15.75"),
        ("v2-8", LARGE, (512, 1, 256, 77), 16, "does not fit: 8.32 of 7.48"),
        # A larger slice of the generation, with as many examples a replica; with more.
        ("v5e-32", LARGE, (512, 1, 1024, 77), 4, "fits: 11.58 of 15.75 GiB a replica with 8 exam"),
        ("v5e-16", LARGE, (512, 1, 1024, 77), 1, "and this run has 64"),
        # Between rows that fit and rows that do not; another length, slice, vocabulary.
        ("v5e-8", LARGE, (512, 1, 192, 77), 1, "of length 512: not known; python -m tools.compile"),
        ("v5e-8", LARGE, (512, 1, 256, 80), 4, "not known"),
        ("v5e-8", BASE, (256, 1, 256, 20), 1, "of length 256: not known"),
        ("v5p-8", BASE, (128, 1, 256, 20), 1, "not known"),
        ("v3-8", with_vocabulary(BASE, 50265), (128, 1, 256, 20), 1, "not known"),
        ("v3-8", with_vocabulary(BASE, 28996), (128, 1, 256, 20), 1, "fits: 2.57"),
        ("v3-8", ALBERT, (128, 1, 256, 20), 1, "not known"),
    ):
        plans = memory.read_plans(accelerator)
        assert expected in memory.look_up(plans, config, RecordBatches(*phase), parts)[0]
    # Of ELECTRA, by the size of its generator.
    for accelerator, size, generator, phase, expected in (
        ("v6e-8", "base", 0.33333, (512, 1, 256, 79), "fits: 7.75 of 31.24 GiB a replica"),
        ("v6e-8", "base", 0.25, (512, 1, 200, 79), "with 32 examples at once, and this run has 25"),
        ("v5e-16", "small", 0.25, (128, 1, 256, 19), "fits: 0.43 of 15.75"),
        ("v5e-8", "base", 0.5, (512, 1, 256, 79), "not known"),
        ("v5e-8", "small", 0.25, (128, 1, 128, 20), "not known"),
        ("v5e-8", "large", 0.25, (512, 1, 256, 130), "not known"),
        ("v6e-8", "large", 0.25, (512, 1, 64, 130), "fits: 12.83 of 31.24 GiB a replica with 8 ex"),
    ):
        config = read_config(str(MODELS / f"electra_{size}" / "bert_config.json"))
        plans = memory.read_plans(accelerator)
        assert expected in memory.look_up(plans, config, RecordBatches(*phase), 1, generator)[0]
        config.embedding_size = 64
        assert "not known" in memory.look_up(plans, config, RecordBatches(*phase), 1, generator)[0]


def test_plans_say_nothing_of_another_step():
    """Of another generator, optimizer or type of numbers."""
    options = {"use_one_hot_embeddings": True, "dtype": "bfloat16", "recompute_activations": False}
    settings = {x: getattr(ElectraSettings, x) for x in MODEL_ARGUMENTS} | {"optimizer": "adamw"}

    def known(**changes):
        of_options = {name: changes.get(name, value) for name, value in options.items()}
        of_settings = {name: changes.get(name, value) for name, value in settings.items()}
        return memory.are_as_compiled(SimpleNamespace(**of_settings), of_options)

    assert known()
    for changes in (
        {"generator_layers": 2},
        {"untied_generator_embeddings": 2},
        {"optimizer": "lamb"},
        {"dtype": "float32"},
        {"recompute_activations": True},
    ):
        assert not known(**changes)
    printed = estimated("--accelerator=v3-8", "--recompute_activations")
    assert printed.count(": not known; python -m tools.compile_for_tpu finds out") == 2


def test_the_table_names_the_compiler_of_each_line(monkeypatch, tmp_path):
    table = tmp_path / "memory.txt"
    line = "v5e-8 8 15.75 uncased_L-12_H-768_A-12 {} 20 32 2.87\n"
    table.write_text(f"libtpu 0.0.50, older\n{line.format(128)}libtpu 0.0.42.1\n{line.format(64)}")
    plans = memory.read_plans("v5e-32", str(table))

    def described(length):
        return memory.look_up(plans, BASE, RecordBatches(length, 1, 1024, 20))[0]

    found = [SimpleNamespace(version="0.0.42.1")]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: found)
    assert described(64).endswith("this run has 32; compiled for v5e-8 by libtpu 0.0.42.1")
    assert described(128).endswith(
        "; compiled for v5e-8 by libtpu 0.0.50, older, and libtpu 0.0.42.1 is installed"
    )
    found.clear()
    assert described(128).endswith("; compiled for v5e-8 by libtpu 0.0.50, older")
    for name in ("v2-8", "v3-8", "v5e-8", "v6e-8"):
        found = estimate_cost.read_accelerator(name)
        assert found.tflops * 1e12 == found.device.flops * found.replicas / found.chips
        plans = memory.read_plans(name)
        assert plans and all(re.match(r"libtpu 0\.0\.\d+", plan.libtpu) for plan in plans)
