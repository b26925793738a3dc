"""A linear model and records for it, to test training without BERT."""

import functools
import glob
import os
import re

import keras
import numpy as np
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine.input_pipeline import TrainingInput
from bert_tf.files import records
from bert_tf.model.layers import glorot_initializer
from bert_tf.runs.training.plan import Phase
from tests.support.trainers import make_trainer

SCHEMA = {"x": records.float_feature([3]), "y": records.float_feature([1])}
SLOPE = np.array([0.5, -1.0, 2.0], np.float32)


class LineModel(keras.Model):
    """Least squares, with noise on the input in place of dropout."""

    def __init__(self):
        super().__init__(name="")
        self.line = keras.layers.Dense(1, kernel_initializer=glorot_initializer(), name="line")
        self.line.build((None, 3))
        self.built = True

    def call(self, features, training=False, dropout_seed=None):
        x = features["x"]
        if training:
            x += 0.1 * tf.random.stateless_normal(x.shape, dropout_seed, alg="philox")
        return self.line(x)

    def normalizers(self, features):
        weight = features.get("example_weight", tf.ones([features["x"].shape[0]]))
        return {"count": tf.reduce_sum(weight)}

    def loss_and_metrics(self, outputs, features, normalizers):
        error = tf.square(outputs - features["y"])[:, 0]
        weight = features.get("example_weight", tf.ones([outputs.shape[0]]))
        total = tf.reduce_sum(error * weight)
        return total / normalizers["count"], {"square": (total, tf.reduce_sum(weight))}


def write(path, count, seed, scale=1.0):
    rng = np.random.RandomState(seed)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for x in rng.randn(count, 3).astype(np.float32):
            values = {"x": x.tolist(), "y": [float(x @ SLOPE) * scale]}
            writer.write(records.serialize(values, SCHEMA))
    return str(path)


def trainer(output_dir, rate=0.05, total=60, build=LineModel, **settings):
    """Returns a trainer of a new run; `rate` is the peak of a linear schedule, or the schedule."""
    schedule = rate if callable(rate) else optimization.linear_schedule(rate, total, 5)
    return make_trainer(build, tf.distribute.get_strategy(), output_dir, schedule, **settings)


def rate_before(step, then):
    """Returns a schedule: 0.05 before a step, `then` from there on."""
    return lambda now: tf.where(now < step, 0.05, then)


def steps_of(folder):
    """Returns the steps of a directory's checkpoints, sorted."""
    found = (re.fullmatch(r"model\.ckpt-(\d+)\.index", name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def curves(folder):
    """Returns the steps of the points of TensorBoard's curves, by name."""
    points = {}
    for path in glob.glob(f"{folder}/events.*"):
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                points.setdefault(value.tag, []).append(event.step)
    return points


def phases(files, *steps_and_batches):
    return [
        Phase(steps, batch, functools.partial(TrainingInput, files, SCHEMA, batch))
        for steps, batch in steps_and_batches
    ]
