"""Record files with the numbers 0 to 602, and a training input that reads them."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine.distribution import ONE_HOST
from bert_tf.engine.input_pipeline import TrainingInput
from bert_tf.files import records

FEATURES = {"ids": records.int64_feature([3], "max_seq_length"), "w": records.float_feature([1])}
SCHEMA = records.limited(FEATURES, {"ids": (1000, "vocab_size")})
STARTS = np.cumsum((0, 170, 230, 113, 61, 29))  # the first number of each file, and the end


def write(path, numbers, schema=SCHEMA, ids=lambda number: [number, 0, 7]):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            values = {"ids": ids(number), "w": [number / 2]}
            writer.write(records.serialize(values, schema))
    return str(path)


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / f"{i}.tfrecord", range(*STARTS[i : i + 2])) for i in range(5)]


def training_input(files, batch_size=13, seed=5, shard=ONE_HOST, augment=None):
    return TrainingInput(files, SCHEMA, batch_size, seed, shard, augment)
