"""How fast training steps and predictions are with `--dtype=float32` and `--dtype=bfloat16`."""

import functools
from collections.abc import Callable

import tensorflow as tf

from benchmarks import data_speed
from benchmarks.take_turns import describe, take_turns, timed
from bert_tf import optimization
from bert_tf.engine.loops import PredictionLoop, TrainingLoop, update_function, xla_pays_on_cpu
from bert_tf.engine.steps import train_step
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.pretraining.training.settings import RecordBatches

DTYPES = ("float32", "bfloat16")


def measure_dtypes(config: BertConfig, phase: RecordBatches, num_steps: int) -> None:
    """Prints the seconds of a training step and of a batch's predictions with each dtype.

    `num_steps` steps and batches are timed with each.
    """
    print(f"batch: {phase.batch_size} of length {phase.max_seq_length}; medians of {num_steps}")
    calls = {dtype: _calls(config, phase, dtype) for dtype in DTYPES}
    for what in ("training step", "prediction"):
        runs = {f"{what}, {dtype}": timed(calls[dtype][what]) for dtype in DTYPES}
        print(describe(take_turns(runs, num_steps)))


def _calls(config: BertConfig, phase: RecordBatches, dtype: str) -> dict[str, Callable]:
    """Returns a function that makes a training step and a function that predicts a batch."""
    model = pretraining_model(config, dtype=dtype)
    schedule = optimization.linear_schedule(1e-4, 1_000_000, 10_000)
    optimizer = optimization.create_optimizer(model.trainable_variables, schedule)
    strategy = tf.distribute.get_strategy()
    update = update_function(strategy, model, optimizer)
    step = functools.partial(train_step, model, optimizer, update=update)
    training = TrainingLoop(strategy, step, compile_on_cpu=xla_pays_on_cpu(model))

    def predict(features, seed):
        output = model.bert(features["input_ids"], features["input_mask"], features["segment_ids"])
        return {"pooled_output": output.pooled_output}

    prediction = PredictionLoop(strategy, predict)
    batch = data_speed.synthetic_batch(config, phase)
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return {
        "training step": lambda: training.run(batches, 1, lambda steps: None),
        "prediction": lambda: prediction.run(batches, 1, lambda steps: None),
    }
