r"""Compares models of the family by size and speed: a table with a row for each.

    python -m benchmarks.compare_models --bert_config_file=flags/models/uncased_L-12_H-768_A-12/\
bert_config.json,flags/models/albert_base_v2/albert_config.json

The weights are random, since neither size nor speed depends on them. A row has the parameters of
the model without heads, the memory that they take in float32, and how many sequences a second it
encodes on this machine. The models take turns, because a machine's speed drifts; the speed is the
median of --num_batches batches. The last column compares it with the first model's.
"""

import os
import time

import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf.engine.prediction_loop import PredictionLoop
from bert_tf.model.family import read_config
from bert_tf.modeling import BertModel
from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS


class TimedModel:
    """A model with random weights, and the seconds that each batch took.

    Args:
        config_file: its configuration.
        batch_size: sequences in a batch.
        seq_length: their length in tokens; all are full.
    """

    def __init__(self, config_file: str, batch_size: int, seq_length: int):
        config = read_config(config_file)
        config.check_seq_length(seq_length, "max_seq_length")
        self.name = os.path.basename(os.path.dirname(os.path.abspath(config_file)))
        self.kind = config.NAME
        self.seconds: list[float] = []
        model = BertModel(config)
        self.num_parameters = model.count_params()

        def predict(features, seed):
            return {"pooled_output": model(features["input_ids"]).pooled_output}

        self._loop = PredictionLoop(tf.distribute.get_strategy(), predict)
        ids = np.random.default_rng(7).integers(config.vocab_size, size=(batch_size, seq_length))
        batch = {"input_ids": ids.astype(np.int32)}
        self._batches = [iter(tf.data.Dataset.from_tensors(batch).repeat())]

    def run(self) -> None:
        """Encodes a batch and notes how long it took."""
        began = time.monotonic()
        self._loop.run(self._batches, 1, lambda count: None)
        self.seconds.append(time.monotonic() - began)


def compare(config_files: list[str], batch_size: int, seq_length: int, num_batches: int) -> str:
    """Returns the table, in Markdown."""
    models = [TimedModel(path, batch_size, seq_length) for path in config_files]
    for _ in range(num_batches + 1):
        for model in models:
            model.run()
    rows = ["| Model | Parameters | MiB | Sequences/s | Times as fast |", "|---|--:|--:|--:|--:|"]
    speeds = [batch_size / np.median(model.seconds[1:]) for model in models]  # the first compiles
    for model, speed in zip(models, speeds, strict=True):
        rows.append(
            f"| {model.kind}, {model.name} | {model.num_parameters:,}"
            f" | {model.num_parameters * 4 / 2**20:,.0f} | {speed:.1f} | {speed / speeds[0]:.2f} |"
        )
    return "\n".join(rows)


def _define_flags() -> None:
    flags.DEFINE_list(
        "bert_config_file", None, "Configurations, separated by commas.", required=True
    )
    flags.DEFINE_integer("batch_size", 8, "Sequences in a batch.", lower_bound=1)
    flags.DEFINE_integer("max_seq_length", 128, "Their length in tokens.", lower_bound=1)
    flags.DEFINE_integer("num_batches", 8, "Batches to time of each model.", lower_bound=1)


def main() -> None:
    """Prints the table."""
    print(
        compare(FLAGS.bert_config_file, FLAGS.batch_size, FLAGS.max_seq_length, FLAGS.num_batches)
    )


if __name__ == "__main__":
    _define_flags()
    command_flags.run_program(main)
