"""The figures of a step's speed, against sums by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import distribution
from bert_tf.engine.distribution import InputShard
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.training import phase_steps
from bert_tf.runs.training.phase_steps import PhaseSteps
from bert_tf.runs.training.plan import Phase, Work
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.training.settings import RecordBatches


def strategy(kind="cpu", replicas=1, hosts=1):
    """A stand-in for a strategy of PJRT."""
    devices = np.array([SimpleNamespace(device_kind=kind)] * replicas)
    return SimpleNamespace(
        mesh=SimpleNamespace(devices=devices),
        num_replicas_in_sync=replicas,
        input_shard=InputShard(0, hosts, replicas=replicas),
    )


def figures(phase, num_steps, seconds, lengths=None, of=None, gather=None, waits=0.0):
    loop = SimpleNamespace(
        lengths=None if lengths is None else np.float32(lengths), input_seconds=waits
    )
    run = SimpleNamespace(strategy=of or strategy(), gather=gather)
    return PhaseSteps(phase, loop, None, run, None)._speed(num_steps, seconds)


@pytest.mark.parametrize(
    "kind, replicas, peak",
    [
        ("TPU v6 lite", 64, 64 * 918e12),
        ("TPU v3", 8, 4 * 123e12),  # two devices a chip
        ("TPU v4", 4, 4 * 275e12),
        ("cpu", 8, None),
    ],
)
def test_peaks(kind, replicas, peak):
    assert distribution.peak_flops(strategy(kind, replicas)) == peak


def test_tensorflow_knows_no_peak_of_a_cpu():
    assert distribution.peak_flops(tf.distribute.get_strategy()) is None


def test_pretraining_by_hand():
    """BERT-Base, 256 sequences of length 128 a step, 10 steps in 0.4 s, on a v6e-8."""
    batches = RecordBatches(128, 900, 256, 20)
    layer = 4 * 128 * 768 * 768 + 2 * 128 * 768 * 3072 + 2 * 12 * 128 * 128 * 64
    heads = 20 * 768 * (768 + 30522) + 768 * (768 + 2)
    flops = 256 * 3 * 2 * (12 * layer + heads)
    assert training_flops(BertConfig(30522), batches) == flops
    phase = Phase(900, 256, None, work=Work(256, 128, lambda length: flops))
    assert figures(phase, 10, 0.4, of=strategy("TPU v6 lite", 8)) == pytest.approx(
        {
            "examples_per_second": 6400.0,
            "seconds_per_step": 0.04,
            "tokens_per_second": 819_200.0,
            "mfu": flops / 0.04 / (8 * 918e12),
        },
        rel=1e-12,
    )
    assert "mfu" not in figures(phase, 10, 0.4)
    packed = Phase(900, 256, None, 2.5, work=phase.work)
    assert figures(packed, 10, 0.4)["examples_per_second"] == 16_000.0
    assert figures(packed, 10, 0.4)["tokens_per_second"] == 819_200.0


def test_batches_that_were_cut_count_by_their_lengths(monkeypatch):
    monkeypatch.setattr(phase_steps, "peak_flops", lambda strategy: 1e6)
    phase = Phase(9, 6, None, work=Work(12, 40, lambda length: 1000 * length + length**2))
    found = figures(phase, 4, 2.0, lengths=[10, 30, 10, 40])
    assert found["tokens_per_second"] == 12 * 90 / 2.0
    assert found["mfu"] == pytest.approx((90_000 + 100 + 900 + 100 + 1600) / 2.0 / 1e6)
    unknown = Phase(9, 6, None, work=Work(12, 40))
    assert figures(unknown, 4, 2.0).keys() == {
        *("examples_per_second", "seconds_per_step", "tokens_per_second")
    }
    assert "tokens_per_second" not in figures(Phase(9, 6, None), 4, 2.0)


def test_the_median_and_the_slowest_host():
    asked = []

    def gather(own):
        asked.append(own)
        return [own, 0.5, 0.75, 0.125] if len(asked) == 1 else [own, 0.0625, 0.0, 0.25]

    of = strategy(replicas=8, hosts=4)
    assert distribution.several_processes(of)
    found = figures(Phase(9, 8, None), 4, 1.0, of=of, gather=gather, waits=0.5)
    assert asked == [0.25, 0.125]
    assert {name: x for name, x in found.items() if name.startswith("hosts/")} == {
        "hosts/seconds_per_step_median": 0.375,
        "hosts/seconds_per_step_slowest": 0.75,
        "hosts/seconds_per_step_slowest_process": 2,
        "hosts/input_seconds_per_step_median": 0.09375,
        "hosts/input_seconds_per_step_slowest": 0.25,
        "hosts/input_seconds_per_step_slowest_process": 3,
    }
