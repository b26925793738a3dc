r"""Benchmarks fine-tuning and prediction with batches padded to several lengths.

    python -m benchmarks.fine_tuning --task_name=MRPC --data_dir=glue/MRPC \
        --bert_config_file=bert_config.json --vocab_file=vocab.txt

It compares --length_buckets=none, as in the original, with the given --length_buckets, and for
training also with --group_by_length. The variants run in turn, because a machine's speed drifts.
All lengths are compiled before the timing begins.
"""

import functools
import os
import tempfile
from collections.abc import Callable

from absl import flags

from benchmarks.take_turns import describe, take_turns, timed
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import TextSettings
from bert_tf.text.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
SEED = 12345
# Buckets are chosen for a run of this many epochs: lengths that are rare in it get no bucket. Only
# its first steps run.
NUM_TRAIN_EPOCHS = 3


def main() -> None:
    import tensorflow as tf

    from bert_tf import optimization
    from bert_tf.engine import input_pipeline
    from bert_tf.engine.length_buckets import Buckets, parse_lengths
    from bert_tf.engine.loops import TrainingLoop
    from bert_tf.engine.prediction import CHUNK_BATCHES, Predictor
    from bert_tf.engine.steps import train_step
    from bert_tf.engine.whole_file_input import WholeFileInput
    from bert_tf.model.family import read_config
    from bert_tf.tasks.classification.examples import ClassificationEncoder, classification_schema
    from bert_tf.tasks.classification.model import ClassificationModel
    from bert_tf.tasks.classification.processors import get_processor
    from bert_tf.tasks.example_records import write_records

    config = read_config(FLAGS.bert_config_file)
    processor = get_processor(FLAGS.task_name, FLAGS.data_dir)
    labels = processor.get_labels()
    length, batch_size = FLAGS.max_seq_length, FLAGS.train_batch_size
    schema = classification_schema(length, regression=labels is None)
    model = ClassificationModel(config, 1 if labels is None else len(labels))
    schedule = optimization.linear_schedule(5e-5, 1_000_000, 10_000)
    optimizer = optimization.create_optimizer(model.trainable_variables, schedule)
    strategy = tf.distribute.get_strategy()
    tokenizer = load_tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)
    encoder = ClassificationEncoder(tokenizer, length, labels)

    def make_training(buckets: Buckets, group_by_length: bool) -> Callable[[], float]:
        options = {"buckets": buckets, "group_by_length": group_by_length}
        source = WholeFileInput(
            *([train_file], schema, batch_size, SEED), num_batches=num_batches, **options
        )
        step = functools.partial(train_step, model, optimizer)
        loop = TrainingLoop(strategy, step, buckets=source.buckets)

        def run() -> None:
            source.start(SEED)  # the same batches each time
            loop.run(source.iterator, FLAGS.num_steps, lambda _: None)

        return timed(run)

    def make_prediction(buckets: Buckets | None) -> Callable[[], float]:
        predictor = Predictor(model, strategy)

        def run() -> None:
            size = CHUNK_BATCHES * FLAGS.predict_batch_size
            windows = input_pipeline.record_chunks([dev_file], schema, size)
            for _ in predictor.predict(windows, FLAGS.predict_batch_size, buckets):
                pass

        return timed(run)

    with tempfile.TemporaryDirectory() as folder:
        train_file, dev_file = (os.path.join(folder, name) for name in ("train", "dev"))
        train_examples = processor.get_train_examples(FLAGS.data_dir)
        dev_examples = processor.get_dev_examples(FLAGS.data_dir)
        num_batches = max(1, len(train_examples) * NUM_TRAIN_EPOCHS // batch_size)
        write_records(train_file, train_examples, encoder)
        write_records(dev_file, dev_examples, encoder)
        whole = Buckets.of_schema((length,), schema)
        cut = Buckets.of_schema(parse_lengths(FLAGS.length_buckets, length), schema)
        training = {
            f"padded to {length}": make_training(whole, False),
            "padded to buckets": make_training(cut, False),
            "grouped by length": make_training(cut, True),
        }
        prediction = {f"padded to {length}": make_prediction(None), "sorted": make_prediction(cut)}
        print(f"training, batches of {batch_size}:")
        seconds = take_turns(training, FLAGS.num_rounds)
        print(describe(seconds, FLAGS.num_steps * batch_size))
        print(f"prediction, batches of {FLAGS.predict_batch_size}:")
        print(describe(take_turns(prediction, FLAGS.num_rounds), len(dev_examples)))


if __name__ == "__main__":
    flags.DEFINE_string(
        "task_name", None, "The task, as for run_classifier.py, such as MRPC.", required=True
    )
    flags.DEFINE_string("data_dir", None, "Folder with the task's files.", required=True)
    flags.DEFINE_string(
        "bert_config_file", None, "The model's configuration, a bert_config.json.", required=True
    )
    command_flags.define_flags(TextSettings)
    flags.DEFINE_integer("max_seq_length", 128, "Longest sequence in word pieces.", lower_bound=4)
    flags.DEFINE_string(
        "length_buckets",
        "auto",
        "Lengths that batches are padded to, such as 32,64,128; auto for up to eight evenly spaced"
        " ones.",
    )
    flags.DEFINE_integer("train_batch_size", 32, "Examples per training step.", lower_bound=1)
    flags.DEFINE_integer("predict_batch_size", 8, "Examples per prediction step.", lower_bound=1)
    flags.DEFINE_integer("num_steps", 12, "Training steps per timed round.", lower_bound=1)
    flags.DEFINE_integer("num_rounds", 3, "Timed rounds of each variant.", lower_bound=1)
    command_flags.run_program(main)
