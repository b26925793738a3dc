"""Runs of pre-training by JAX's client (PJRT) against the same runs by TensorFlow's runtime.

JAX fixes its devices when it starts, so each number of replicas has a process of its own.
"""

import pathlib

import numpy as np
import pytest

from bert_tf.engine import distribution, loops
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, RecordBatches
from tests.support.pretraining_runs import CONFIG, make_records, run_forked, variables

pytest.importorskip("jax")

CONFIGS = {
    "electra": ElectraConfig.from_dict({**CONFIG, "embedding_size": 6}),
    "bert": BertConfig.from_dict(CONFIG),
}
RECORDS = {
    "masked": {},
    "packed": {"mask": False, "pack": True, "short_seq_prob": 1.0},
    "electra": {"objective": "electra"},
}
# By records and options. All have dropout, whose bits must be equal.
RUNS = {
    "mean": ("masked", {"gradient_reduction": "global_mean_clip", "optimizer": "lamb"}),
    "parts": ("masked", {"gradient_accumulation_steps": 2}),
    "packed": ("packed", {"dynamic_masking": True}),
    "bfloat16": ("masked", {"dtype": "bfloat16"}),
    "electra": ("electra", {"objective": "electra", "generator_hidden_size": 0.5}),
}


def check_run(folder, name, strategies, num_steps=3):
    """The results, and all variables, are equal but for rounding."""
    records, options = RUNS[name]
    kind = ElectraSettings if records == "electra" else PretrainingSettings
    config = CONFIGS["electra" if records == "electra" else "bert"]
    results = {}
    for engine, strategy in strategies.items():
        settings = kind(
            input_file=f"{folder}/{records}.tfrecord",
            output_dir=f"{folder}/{engine}_{name}",
            vocab_file=None if records == "masked" else f"{folder}/vocab.txt",
            do_train=True,
            do_eval=True,
            learning_rate=1e-3,
            num_warmup_steps=1,
            phases=[RecordBatches(24, num_steps, 8, 3)],
            evaluation_batches=RecordBatches(24, 2, 8, 3),
            **options,
        )
        results[engine] = run_pretraining(config, strategy, settings)
    found, expected = results["pjrt"], results["tensorflow"]
    # What rounding changes: of a loss, and of the largest element of a slot.
    of_loss, of_slot = (2e-2, 1e-1) if name == "bfloat16" else (1e-5, 1e-5)
    assert found == pytest.approx(expected, rel=of_loss)
    found, expected = (variables(f"{folder}/{engine}_{name}") for engine in strategies)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if "key/bias" not in key:  # its gradient is 0 but for rounding
            bound = (of_slot if "adam" in key else 10 * of_loss) * np.abs(value).max()
            np.testing.assert_allclose(found[key], value, atol=bound, err_msg=f"{name}: {key}")


def main(replicas, folder):
    from bert_tf.engine.pjrt import connect

    loops.may_compile = lambda strategy: False  # TensorFlow's steps: it takes most of the time
    kind = "mirrored" if replicas > 1 else "one_device"
    strategies = {
        "pjrt": connect(replicas),
        "tensorflow": distribution.get_strategy(kind, replicas),
    }
    make_records(pathlib.Path(folder), 24, 3, **RECORDS)
    # What replicas do together is tried with all of them.
    for name in RUNS if replicas > 1 else ("parts", "packed"):
        check_run(folder, name, strategies)
    # Each engine resumes the other's run.
    check_run(folder, "parts", dict(zip(strategies, reversed(strategies.values()), strict=True)), 5)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_runs_are_those_of_tensorflow(replicas, tmp_path):
    run_forked(
        f"from tests.engine import pjrt_runs_test as t; t.main({replicas}, {str(tmp_path)!r})"
    )
