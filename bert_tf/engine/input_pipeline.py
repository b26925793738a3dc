"""Record files to batches, for training and evaluation."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.engine.distribution import ONE_HOST, InputShard
from bert_tf.engine.length_buckets import Buckets
from bert_tf.errors import UserError
from bert_tf.files import records

READERS = 4  # files read in turn, num_cpu_threads of the original's input_fn_builder
SHUFFLE_BUFFER = 100  # records; the original's. create_pretraining_data has shuffled them already.

Batch = dict[str, tf.Tensor]
Limits = Mapping[str, tuple[int, str]]


def parse_checked(serialized: tf.Tensor, schema: records.Schema, limits: Limits) -> Batch:
    """Returns the parsed batch, having checked its ids.

    Args:
        serialized: string [batch].
        schema: what the records hold.
        limits: for a feature of ids the number that they must be below, and what sets that number.
    """
    features = records.parse(serialized, schema)
    checks = []
    for name, (limit, source) in limits.items():
        low, high = tf.reduce_min(features[name]), tf.reduce_max(features[name])
        rule = f"{name} must be at least 0 and below {limit} ({source}); the records hold"
        checks.append(
            tf.debugging.Assert((low >= 0) & (high < limit), [rule, low, "to", high], name="ids")
        )
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in features.items()}


def _without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without tf.data's autotuning.

    There is nothing to tune, and the tuning thread can delay the end of an iterator, such as that
    of a phase, by a minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


class TrainingInput:
    """An endless, shuffled iterator over training batches whose place can be saved.

    Files are shuffled and read four at a time in turn; records pass through a buffer of 100
    (original: input_fn_builder). The order is a function of the seed and of TensorFlow's global
    seed. A saved place holds the offsets in the open files and the records in the buffers, so a
    resumed run does not read again what came before.

    Args:
        files: TFRecord files.
        schema: what each record holds.
        batch_size: examples in a batch over all hosts; those left over at the end of an epoch
            join the next.
        limits: see `parse_checked`.
        seed: of the shuffling.
        shard: the host that reads. Each host reads other files, or other records where there are
            fewer files than hosts, and makes its part of every batch.

    `buckets` are the lengths that batches are cut to, each to the first that its `longest` fits
    in; None leaves them as they are.
    """

    buckets: Buckets | None = None

    def __init__(
        self,
        files: Sequence[str],
        schema: records.Schema,
        batch_size: int,
        limits: Limits,
        seed: int,
        shard: InputShard = ONE_HOST,
    ):
        self._identity = {
            "files": [[path, tf.io.gfile.stat(path).length] for path in files],
            "batch_size": batch_size,
        }
        self._files = list(files)
        self._schema = schema
        self._batch_size = batch_size
        self._limits = limits
        self._shard = shard
        self.start(seed)

    def start(self, seed: int) -> None:
        """Starts from the beginning, in the order that `seed` gives."""
        self._seed = seed
        with tf.device(self._shard.device):
            dataset = self._batches(seed)
            self.iterator: Iterator[Batch] = iter(_without_autotune(dataset.prefetch(2)))

    def _batches(self, seed: int) -> tf.data.Dataset:
        """Returns the endless batches in the order that `seed` gives."""
        shard, files = self._shard, self._files
        whole_files = len(files) >= shard.count
        if whole_files:
            files = files[shard.index :: shard.count]
        cycle_length = min(READERS, len(files))
        dataset = tf.data.Dataset.from_tensor_slices(files).repeat()
        dataset = dataset.shuffle(len(files), seed=seed)
        dataset = dataset.interleave(
            tf.data.TFRecordDataset,
            cycle_length=cycle_length,
            num_parallel_calls=cycle_length,
            deterministic=True,
        )
        if not whole_files:
            dataset = dataset.shard(shard.count, shard.index)
        dataset = dataset.shuffle(SHUFFLE_BUFFER, seed=seed)
        dataset = dataset.batch(self._batch_size // shard.count, drop_remainder=True)
        return dataset.map(
            lambda serialized: parse_checked(serialized, self._schema, self._limits),
            num_parallel_calls=2,
            deterministic=True,
        )

    def _place(self, prefix: str) -> str:
        index, count = self._shard.index, self._shard.count
        return f"{prefix}.input" + (f".{index}-of-{count}" if count > 1 else "")

    def save(self, prefix: str) -> None:
        """Writes the place to `prefix`.input.* files."""
        place = self._place(prefix)
        with tf.io.gfile.GFile(f"{place}.json", "w") as writer:
            writer.write(json.dumps({"seed": self._seed, **self._identity}))
        # By the host that reads: tf.train.Checkpoint would do it here, and cannot fetch the state.
        with tf.device(self._shard.device):
            state = tf.raw_ops.SerializeIterator(resource_handle=self.iterator._iterator_resource)
            tf.raw_ops.SaveV2(
                prefix=place, tensor_names=["iterator"], shape_and_slices=[""], tensors=[state]
            )

    def restore(self, prefix: str) -> bool:
        """Returns whether the place saved with the checkpoint `prefix` has been restored.

        It has not if there is none, if it is damaged, or if it belongs to other files or another
        batch size. A warning then says why.
        """
        place = self._place(prefix)
        try:
            with tf.io.gfile.GFile(f"{place}.json", "r") as reader:
                saved = json.loads(reader.read())
        except (tf.errors.NotFoundError, ValueError):
            logging.warning("%s has no place in the input beside it", prefix)
            return False
        seed = saved.pop("seed")
        different = [key for key in self._identity if saved.get(key) != self._identity[key]]
        if different:
            logging.warning(
                "The place in the input saved with %s belongs to other %s",
                prefix,
                " and ".join(different).replace("_", " "),
            )
            return False
        fresh_seed = self._seed
        self.start(seed)
        try:
            with tf.device(self._shard.device):
                (state,) = tf.raw_ops.RestoreV2(
                    prefix=place,
                    tensor_names=["iterator"],
                    shape_and_slices=[""],
                    dtypes=[tf.variant],
                )
                tf.raw_ops.DeserializeIterator(
                    resource_handle=self.iterator._iterator_resource, serialized=state
                )
        except (tf.errors.OpError, ValueError) as error:
            logging.warning(
                "The place in the input saved with %s cannot be read: %s",
                prefix,
                getattr(error, "message", error),
            )
            self.start(fresh_seed)
            return False
        return True


def evaluation_dataset(
    files: Sequence[str],
    schema: records.Schema,
    batch_size: int,
    limits: Limits,
    num_examples: int,
    shard: InputShard = ONE_HOST,
) -> tf.data.Dataset:
    """Returns endless batches of the records in their order, over and over.

    Args:
        files: TFRecord files.
        schema: what each record holds.
        batch_size: examples in a batch over all hosts, every batch alike.
        limits: as for `TrainingInput`.
        num_examples: number of examples that count. A batch also has `example_weight`,
            float32 [batch]: 1 for the first `num_examples` examples, 0 for what fills the last
            batch.
        shard: the host that reads: it gets its part of every batch. All read all files.
    """
    part = batch_size // shard.count
    begin = shard.index * part

    def add_weight(indices: tf.Tensor, serialized: tf.Tensor) -> Batch:
        indices, serialized = indices[begin : begin + part], serialized[begin : begin + part]
        features = parse_checked(serialized, schema, limits)
        features["example_weight"] = tf.cast(indices < num_examples, tf.float32)
        return features

    dataset = tf.data.TFRecordDataset(list(files)).repeat().enumerate()
    dataset = dataset.batch(batch_size, drop_remainder=True)
    dataset = dataset.map(add_weight, num_parallel_calls=2, deterministic=True)
    return _without_autotune(dataset.prefetch(2))


def record_chunks(files: Sequence[str], schema: records.Schema, size: int) -> Iterator[Batch]:
    """Yields the parsed records in their order, `size` at a time; the last may be fewer.

    Raises:
        UserError: the records are damaged, or do not fit the schema.
    """
    dataset = tf.data.TFRecordDataset(list(files)).batch(size)
    try:
        for serialized in dataset:
            yield records.parse(serialized, schema)
    except tf.errors.OpError as error:
        raise explain(error, files) from error


def count_records(files: Sequence[str]) -> int:
    """Returns the number of records in TFRecord files, reading them through."""
    dataset = tf.data.TFRecordDataset(list(files))
    return int(dataset.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1))


def explain(error: tf.errors.OpError, files: Sequence[str]) -> Exception:
    """Returns an error that says what is wrong with the input, or `error` itself if nothing is.

    Args:
        error: raised by TensorFlow while it read batches.
        files: the files that it read.
    """
    message = error.message
    if isinstance(error, tf.errors.DataLossError):
        return UserError(f"A record file is damaged: {records.find_corrupt(files)}.")
    some = ", ".join(files[:3]) + (", ..." if len(files) > 3 else "")
    named = f" (in one of {some})."
    if "assertion failed: " in message:
        parts = re.findall(r"\[([^\]]*)\]", message.split("assertion failed: ", 1)[1])
        return UserError("Wrong ids in the input: " + " ".join(parts[:4]) + named)
    if "ParseExample" in message:
        what = re.search(r"Key: .*?(?=\n|$)", message)
        return UserError(
            "Every record must have the lengths that the flags say; received another one: "
            + (what.group() if what else message)
            + named
        )
    return error
