"""Makes training batches from records that are held in memory and fully shuffled."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.engine.distribution import ONE_HOST, InputShard
from bert_tf.engine.input_pipeline import TrainingInput, parsed, plain_function
from bert_tf.engine.length_buckets import Buckets, example_lengths
from bert_tf.files import record_checks, records

RECORDS_PER_READ = 1024  # to find the records' lengths
_LOOKED_AT_EPOCHS = 30  # to find out which lengths are rare
GROUP_BATCHES = 50  # number of batches whose examples are sorted by length together


class WholeFileInput(TrainingInput):
    """An endless iterator over training batches that reshuffles all records in each epoch.

    The original shuffles through a buffer of 100 records, which leaves sorted data nearly sorted.
    This class holds all records in memory, and an epoch's order is a function of the seed and the
    epoch. A batch also has `longest`, int32 []: the length of its longest example over all hosts.

    Args, in addition to the arguments of `TrainingInput`; the schema must have `input_mask`:
        num_batches: number of batches that will be read. Bucket lengths that few of them need are
            left out.
        group_by_length: make batches of examples of similar length: sort the examples of 50
            batches, then shuffle the batches.
    """

    def __init__(
        self,
        files: Sequence[str],
        schema: records.Schema,
        batch_size: int,
        seed: int,
        shard: InputShard = ONE_HOST,
        *,
        num_batches: int,
        buckets: Buckets,
        group_by_length: bool = False,
    ):
        self._num_batches = num_batches
        self._all_buckets = buckets
        self._group_by_length = group_by_length
        with tf.device(shard.device):
            self._examples, self._lengths = _read(files, schema)
        super().__init__(files, schema, batch_size, seed, shard)
        self._watched = {}  # the records are in memory
        self._identity["group_by_length"] = group_by_length

    def _use(self, files: list[str], names: list[str]) -> None:
        if files != self._files:
            with tf.device(self._shard.device):
                self._examples, self._lengths = _read(files, self._schema)
        super()._use(files, names)

    def _batches(self, seed: int) -> tf.data.Dataset:
        part = self._batch_size // self._shard.count
        begin = self._shard.index * part
        self.buckets = self._frequent_buckets(seed)

        @plain_function
        def read(indices: tf.Tensor) -> dict[str, tf.Tensor]:
            mine = tf.gather(self._examples, indices[begin : begin + part])
            features = records.parse(mine, self._schema)
            # Not the bucket's number: a saved position holds batches that were drawn ahead, and the
            # run that resumes from it may have different buckets.
            return {**features, "longest": tf.reduce_max(tf.gather(self._lengths, indices))}

        @plain_function
        def epoch_order(epoch: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.from_tensor_slices(self._order(epoch, seed))

        dataset = tf.data.Dataset.counter().flat_map(epoch_order)
        dataset = dataset.batch(self._batch_size, drop_remainder=True)
        return parsed(dataset, read)

    def _frequent_buckets(self, seed: int) -> Buckets:
        count = self._examples.shape[0]
        # Enough epochs to know which lengths are frequent.
        num_batches = min(self._num_batches, -(-_LOOKED_AT_EPOCHS * count // self._batch_size))
        num_examples = num_batches * self._batch_size
        num_epochs = -(-num_examples // count)
        epochs = [self._order(tf.constant(i, tf.int64), seed) for i in range(num_epochs)]
        lengths = tf.gather(self._lengths, tf.concat(epochs, 0)[:num_examples])
        longest = tf.reduce_max(tf.reshape(lengths, [-1, self._batch_size]), axis=1)
        # The last bucket must fit any batch that a saved position has drawn ahead.
        longest = np.append(longest, tf.reduce_max(self._lengths))
        return self._all_buckets.frequent(longest)

    def _order(self, epoch: tf.Tensor, seed: int) -> tf.Tensor:
        def shuffle(values: tf.Tensor) -> tf.Tensor:
            seeds = tf.stack([tf.constant(seed, tf.int64), epoch])
            return tf.random.experimental.stateless_shuffle(values, seeds)

        count, batch_size = self._examples.shape[0], self._batch_size
        order = shuffle(tf.range(count, dtype=tf.int64))
        if not self._group_by_length:
            return order
        group = tf.range(count, dtype=tf.int32) // (GROUP_BATCHES * batch_size)
        longest = tf.reduce_max(self._lengths) + 1
        order = tf.gather(
            order, tf.argsort(group * longest - tf.gather(self._lengths, order), stable=True)
        )
        # The shortest records, at the end, complete the last batch of the previous epoch.
        head = (-epoch * count) % batch_size
        first, order = order[count - head :], order[: count - head]
        full = (count - head) // batch_size * batch_size
        batches = shuffle(tf.reshape(order[:full], [-1, batch_size]))
        return tf.concat([first, tf.reshape(batches, [-1]), order[full:]], 0)


def _read(files: Sequence[str], schema: records.Schema) -> tuple[tf.Tensor, tf.Tensor]:
    mask = {"input_mask": schema["input_mask"]}

    @plain_function
    def with_lengths(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return serialized, example_lengths(records.parse(serialized, mask)["input_mask"])

    chunks = tf.data.TFRecordDataset(list(files)).batch(RECORDS_PER_READ)
    with record_checks.explained(files, schema):
        parts = list(parsed(chunks, with_lengths))
    examples, lengths = zip(*parts, strict=True)
    return tf.concat(examples, 0), tf.concat(lengths, 0)
