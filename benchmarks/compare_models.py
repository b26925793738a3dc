r"""Compares models of the family by size and speed: a table with a row for each.

    python -m benchmarks.compare_models --bert_config_file=flags/models/uncased_L-12_H-768_A-12/\
bert_config.json,flags/models/albert_base_v2/albert_config.json

The weights are random, since neither size nor speed depends on them. A row has the number of
parameters without heads, the memory that they take in float32, and how many sequences a second the
model encodes on this machine. The models take turns, because a machine's speed drifts; the speed is
the median of --num_batches batches. The last column compares the speed with the first model's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from benchmarks.take_turns import take_turns, timed
from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS


def encoder(model: Callable[..., Any], shape: tuple[int, int]) -> Callable[[], None]:
    """Returns a function that encodes a batch of full sequences."""
    import tensorflow as tf

    from bert_tf.engine.loops import PredictionLoop

    def predict(features, seed):
        return {"pooled_output": model(features["input_ids"]).pooled_output}

    loop = PredictionLoop(tf.distribute.get_strategy(), predict)
    ids = np.random.default_rng(7).integers(model.config.vocab_size, size=shape)
    batch = {"input_ids": ids.astype(np.int32)}
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return lambda: loop.run(batches, 1, lambda count: None)


def main() -> None:
    from bert_tf.model.family import read_config
    from bert_tf.modeling import BertModel

    models = {}
    for path in FLAGS.bert_config_file:
        config = read_config(path)
        config.check_seq_length(FLAGS.max_seq_length, "max_seq_length")
        models[path] = BertModel(config)
    shape = (FLAGS.batch_size, FLAGS.max_seq_length)
    runs = {path: timed(encoder(model, shape)) for path, model in models.items()}
    seconds = take_turns(runs, FLAGS.num_batches)
    print("| Model | Parameters | MiB | Sequences/s | Times as fast |")
    print("|---|--:|--:|--:|--:|")
    speeds = {path: FLAGS.batch_size / np.median(values) for path, values in seconds.items()}
    for path, model in models.items():
        name = Path(path).absolute().parent.name
        size, ratio = model.count_params(), speeds[path] / next(iter(speeds.values()))
        print(
            f"| {model.config.NAME}, {name} | {size:,} | {size * 4 / 2**20:,.0f}"
            f" | {speeds[path]:.1f} | {ratio:.2f} |"
        )


if __name__ == "__main__":
    flags.DEFINE_list(
        "bert_config_file", None, "Configurations, separated by commas.", required=True
    )
    flags.DEFINE_integer("batch_size", 8, "Sequences in a batch.", lower_bound=1)
    flags.DEFINE_integer("max_seq_length", 128, "Length of a sequence in tokens.", lower_bound=1)
    flags.DEFINE_integer("num_batches", 8, "Batches to time for each model.", lower_bound=1)
    command_flags.run_program(main)
