"""Reads training batches from record files; reads records in chunks, and counts them."""

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.data.ops.interleave_op import _ParallelInterleaveDataset

from bert_tf.engine.distribution import ONE_HOST, InputShard
from bert_tf.engine.length_buckets import Buckets
from bert_tf.errors import UserError
from bert_tf.files import checkpoint_names, record_checks, records
from bert_tf.files.whole_files import read_json
from bert_tf.seeds import hash_numbers
from bert_tf.strict_json import checksum

READERS = 4  # files read in turn; num_cpu_threads of the original's input_fn_builder
SHUFFLE_BUFFER = 100  # records, as in the original: create_pretraining_data already shuffles them

Batch = dict[str, tf.Tensor]
# Changes a batch's features at random, seeded by each example's key, uint64 [batch].
Augment = Callable[[Batch, tf.Tensor], Batch]
_READ_AHEAD = 64  # records of each file
# The most batches to parse and mask at a time, one on each core: memory and a saved position hold
# all of them.
_MOST_PARSERS = 8
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PARSERS = min(_MOST_PARSERS, _CORES)
# How much to read to test a restored position: more than the buffers hold.
_DRAWN_BATCHES = 2 * _MOST_PARSERS
_DRAWN_RECORDS = 2 * _READ_AHEAD * READERS
# What `estimate_records` reads. It counts up to 10 files of `_COUNTED_BYTES` in all exactly.
_SAMPLED_FILES, _SAMPLED_RECORDS = 10, 1000
_COUNTED_BYTES = 2**25
_WATCHED_FILES = 128  # files to check at each save; on gs:// each costs a request

# For functions without control flow over tensors: AutoGraph would take 0.1 s to convert each.
plain_function = tf.autograph.experimental.do_not_convert


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Turns off autotuning: it gains nothing, and its thread can delay the exit by a minute."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def parsed(dataset: tf.data.Dataset, parse: Callable[..., Any]) -> tf.data.Dataset:
    """Maps `parse` over the elements in order, several at a time."""
    return dataset.map(plain_function(parse), num_parallel_calls=PARSERS, deterministic=True)


class TrainingInput:
    """An endless, shuffled iterator over training batches whose position can be saved.

    Files are shuffled and read four at a time in turn; records pass through a shuffle buffer of 100
    (original: input_fn_builder). The order is a function of the seed and of TensorFlow's global
    seed. A saved position holds the offsets in the open files and the records in the buffers, so a
    resumed run does not read earlier records again.

    `batch_size` is over all hosts; examples left over at the end of an epoch join the next epoch.
    Each host reads different files (different records if there are fewer files than hosts) and
    makes its part of every batch. `augment` changes each batch; a record's key is a hash of the
    seed, the epoch, the file and the record's number in it.
    """

    buckets: Buckets | None = None  # the lengths to which a `TrainingLoop` cuts the batches

    def __init__(
        self,
        files: Sequence[str],
        schema: records.Schema,
        batch_size: int,
        seed: int,
        shard: InputShard = ONE_HOST,
        augment: Augment | None = None,
    ):
        ends = record_checks.check_ends(files)
        self._identity = {"batch_size": batch_size}
        self._ends = {path: end[:2] for path, end in zip(files, ends, strict=True)}
        # Files to check for changes, in turn: each epoch opens them again.
        self._watched = dict(zip(files, ends, strict=True))
        # If a run was moved, its saved position has the original names of the files.
        self._files = self._names = list(files)
        self._schema = schema
        self._batch_size = batch_size
        self._shard = shard
        self._augment = augment
        self.start(seed)

    def start(self, seed: int) -> None:
        self._seed = seed
        with tf.device(self._shard.device):
            dataset = self._batches(seed)
            self.iterator: Iterator[Batch] = iter(without_autotune(dataset.prefetch(2)))

    @property
    def content(self) -> str:
        """Length and digest of each file, in their order."""
        return str([self._ends[path] for path in self._files])

    def _batches(self, seed: int) -> tf.data.Dataset:
        shard, files = self._shard, self._files
        whole_files = len(files) >= shard.count
        numbers = range(len(files))
        if whole_files:
            numbers = numbers[shard.index :: shard.count]
        cycle_length = min(READERS, len(numbers))
        dataset = self._repeated_files(numbers).shuffle(len(numbers), seed=seed)
        # `Dataset.interleave` with a larger buffer. Without it, threads hand over single records,
        # which halves the speed on several cores.
        reading = (plain_function(self._records), cycle_length, 1, cycle_length, _READ_AHEAD)
        dataset = _ParallelInterleaveDataset(dataset, *reading, deterministic=True)
        if not whole_files:
            dataset = dataset.shard(shard.count, shard.index)
        dataset = dataset.shuffle(SHUFFLE_BUFFER, seed=seed)
        dataset = dataset.batch(self._batch_size // shard.count, drop_remainder=True)

        def parse(serialized: tf.Tensor, *numbers: tf.Tensor) -> Batch:
            features = records.parse(serialized, self._schema)
            if self._augment is None:
                return features
            return self._augment(features, hash_numbers(seed, *numbers))

        return parsed(dataset, parse)

    def _repeated_files(self, numbers: Sequence[int]) -> tf.data.Dataset:
        """Repeats these files endlessly; with `augment` as (file, epoch, number of the file)."""
        names = [self._names[number] for number in numbers]
        if self._augment is None:
            return tf.data.Dataset.from_tensor_slices(names).repeat()
        epochs = tf.data.Dataset.range(2**62)
        numbered = tf.data.Dataset.from_tensor_slices((names, np.array(numbers, np.int64)))
        return epochs.flat_map(
            lambda epoch: numbered.map(lambda name, number: (name, epoch, number))
        )

    def _records(self, name: tf.Tensor, *numbers: tf.Tensor) -> tf.data.Dataset:
        """Returns a file's records; with `numbers`, each as (record, epoch, file, index)."""
        # TFRecordDataset does the same, but its saved position contains the path.
        opened = plain_function(self._opened)
        found = tf.data.Dataset.from_tensor_slices([name]).flat_map(opened)
        if not numbers:
            return found
        same = tf.data.Dataset.from_tensors(numbers).repeat()
        found = tf.data.Dataset.zip(found, same, tf.data.Dataset.range(2**62))
        return found.map(lambda record, same, own: (record, *same, own))

    def _opened(self, name: tf.Tensor) -> tf.data.Dataset:
        path = tf.gather(self._files, tf.argmax(tf.equal(self._names, name)))
        found = tf.raw_ops.TFRecordDataset(filenames=path, compression_type="", buffer_size=2**18)
        return tf.data.experimental.from_variant(found, tf.TensorSpec([], tf.string))

    def _place(self, prefix: str) -> str:
        index, count = self._shard.index, self._shard.count
        return f"{prefix}.input" + (f".{index}-of-{count}" if count > 1 else "")

    def capture(self) -> Callable[[str], None]:
        """Returns a function that any thread can call to save the position as `prefix`.input.*."""
        lengths, digests = zip(*(self._ends[path] for path in self._files), strict=True)
        files = [list(file) for file in zip(self._names, lengths, strict=True)]
        saved = {"seed": self._seed, "files": files, **self._identity, "digests": list(digests)}
        saved.update(features=self._features(), replicas=self._shard.replicas)
        # tf.train.Checkpoint would serialize on this host, which cannot fetch the state.
        with tf.device(self._shard.device):
            state = tf.raw_ops.SerializeIterator(resource_handle=self.iterator._iterator_resource)

        def write(prefix: str) -> None:
            self._warn_of_changes()
            place = self._place(prefix)
            with tf.io.gfile.GFile(f"{place}.json", "w") as writer:
                writer.write(json.dumps({**saved, "checksum": checksum(saved)}))
            with tf.device(self._shard.device):
                tf.raw_ops.SaveV2(
                    prefix=place, tensor_names=["iterator"], shape_and_slices=[""], tensors=[state]
                )

        return write

    def _warn_of_changes(self) -> None:
        """Warns, once for each file, if a file changed while the run reads it."""
        ends = dict(itertools.islice(self._watched.items(), _WATCHED_FILES))
        changed = record_checks.written_since(ends)
        for path in ends:
            end = self._watched.pop(path)
            if path not in changed:
                self._watched[path] = end  # at the end: the next save checks the others first
        if changed:
            logging.warning(
                "%s%s changed during the run, which now learns from old and new records. To learn"
                " from the new ones only, start over in a new --output_dir. During a run, write new"
                " records under new names",
                *(changed[0], ", ..." * (len(changed) > 1)),
            )

    def restore(self, prefix: str) -> bool:
        """Restores the position saved with the checkpoint `prefix`.

        Returns False, with a warning, if the saved position is missing or damaged, or if the files'
        content, the batch size or the features differ. The files may have different names.
        """
        fresh_seed, files = self._seed, self._files
        seed = self._saved_seed(prefix)
        if seed is None:
            return False
        try:
            self._go_to(prefix, seed)
            if self._can_go_on():
                self._go_to(prefix, seed)
                return True
            _warn(
                prefix,
                "belongs to files with different content: in the new content the position is inside"
                " a record",
            )
        except (tf.errors.OpError, ValueError) as error:
            _warn(prefix, f"cannot be read: {record_checks.one_line(error)}")
        self._use(files, files)
        self.start(fresh_seed)
        return False

    def _use(self, files: list[str], names: list[str]) -> None:
        """Sets the files' order; `names` are what a saved position calls them."""
        self._files, self._names = files, names

    def _saved_seed(self, prefix: str) -> int | None:
        """Returns a saved position's seed and applies its file order; None if it does not fit."""
        path = f"{self._place(prefix)}.json"
        if not tf.io.gfile.exists(path):
            logging.warning("%s has no position in the input beside it", prefix)
            return None
        try:
            saved = read_json(path, path, "it must be the file that a run saved")
        except UserError as error:
            return _warn(prefix, f"cannot be read: {error}")
        if not isinstance(saved, dict):
            return _warn(prefix, f"cannot be read: {path} must be a JSON object")
        # Earlier versions did not save a checksum, digests, features and replicas.
        expected = saved.pop("checksum", None)
        seed = saved.get("seed")
        whole = type(seed) is int and 0 <= seed < 2**63 and self._identity.keys() <= saved.keys()
        try:
            names, *ends = zip(*saved["files"], strict=True)
            ends += [saved["digests"]] if "digests" in saved else []
            theirs = sorted(zip(*ends, range(len(names)), strict=True))
            own = [self._ends[path][: len(ends)] for path in self._files]
            ours = sorted((*end, number) for number, end in enumerate(own))
            different = ["files"] if [x[0] for x in theirs] != [x[0] for x in ours] else []
            is_same = [x[:-1] for x in theirs] == [x[:-1] for x in ours]
            whole = whole and all(isinstance(name, str) for name in names)
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole or expected not in (None, checksum(saved)):
            return _warn(prefix, f"cannot be read: {path} is damaged")
        different += [key for key in self._identity if saved[key] != self._identity[key]]
        if different:
            return _warn(prefix, f"differs in {' and '.join(different).replace('_', ' ')}")
        if not is_same:
            return _warn(prefix, "belongs to files with different content")
        if saved.get("features", self._features()) != self._features():
            return _warn(prefix, "belongs to batches with different features")
        replicas = self._shard.replicas
        if saved.get("replicas", replicas) != replicas:
            logging.warning(
                "%s was saved by a run on %s replicas; this run divides its batches among %d",
                *(prefix, saved["replicas"], replicas),
            )
        order = sorted((their[-1], our[-1]) for their, our in zip(theirs, ours, strict=True))
        self._use([self._files[number] for _, number in order], list(names))
        return seed

    def _features(self) -> dict[str, list]:
        """Returns each feature's dtype and shape, which must fit a saved position's batches."""
        specs = self.iterator.element_spec
        return {name: [spec.dtype.name, spec.shape.as_list()] for name, spec in specs.items()}

    def _go_to(self, prefix: str, seed: int) -> None:
        self.start(seed)
        with tf.device(self._shard.device):
            (state,) = tf.raw_ops.RestoreV2(
                prefix=self._place(prefix),
                tensor_names=["iterator"],
                shape_and_slices=[""],
                dtypes=[tf.variant],
            )
            tf.raw_ops.DeserializeIterator(
                resource_handle=self.iterator._iterator_resource, serialized=state
            )

    def _can_go_on(self) -> bool:
        """Tries to draw batches: in a replaced file the position may be inside a record."""
        part = self._batch_size // self._shard.count
        try:
            with tf.device(self._shard.device):
                for _ in range(_DRAWN_BATCHES + -(-_DRAWN_RECORDS // part)):
                    next(self.iterator)
        except tf.errors.DataLossError:
            return record_checks.find_problem(self._files, None) is not None
        except record_checks.read_errors() as error:
            # An earlier version saved the position with a different number of features. Other
            # errors are reported by the training step that reads the record.
            if isinstance(error, tf.errors.InternalError) and "Expected " in error.message:
                raise
        return True

    def explain(self, error: tf.errors.OpError | UnicodeDecodeError) -> Exception:
        return record_checks.explain(error, self._files, self._schema)


def _warn(prefix: str, problem: str) -> None:
    logging.warning("The position in the input saved with %s %s", prefix, problem)


def record_chunks(files: Sequence[str], schema: records.Schema, size: int) -> Iterator[Batch]:
    """Yields the parsed records in order, `size` at a time; fewer at the end."""
    record_checks.check_ends(files)
    dataset = tf.data.TFRecordDataset(list(files)).batch(size)
    dataset = dataset.map(plain_function(lambda serialized: records.parse(serialized, schema)))
    with record_checks.explained(files, schema):
        yield from without_autotune(dataset)


def count_records(files: Sequence[str]) -> int:
    record_checks.check_ends(files)
    dataset = tf.data.TFRecordDataset(list(files))
    with record_checks.explained(files, None):
        return int(dataset.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1))


def estimate_records(files: Sequence[str], ends: Sequence[record_checks.Ends]) -> tuple[int, bool]:
    """Returns the number of records in TFRecord files, and whether it is exact.

    Counts the records of up to ten files if they have at most 32 MB together; otherwise samples
    1,000 records from each of up to ten files.
    """
    chosen = list(files[:: -(-len(files) // _SAMPLED_FILES)])
    total = sum(end.length for end in ends)
    most = -1 if len(chosen) == len(files) and total <= _COUNTED_BYTES else _SAMPLED_RECORDS
    sample = tf.data.Dataset.from_tensor_slices(chosen).flat_map(
        lambda path: tf.data.TFRecordDataset(path).take(most)
    )
    start = (tf.constant(0, tf.int64), tf.constant(0, tf.int64))
    with record_checks.explained(chosen, None):
        count, size = sample.reduce(
            start,
            lambda sums, record: (
                sums[0] + 1,
                sums[1] + tf.cast(tf.strings.length(record), tf.int64) + record_checks.FRAME_BYTES,
            ),
        )
    return round(total * int(count) / int(size)), int(size) == total


def trained_on(prefix: str) -> set[tuple[int, str]]:
    """Returns length and digest (see `record_checks.Ends`) of the files that a run trains on.

    They are the files of the phase that wrote the checkpoint `prefix`; none if the saved position
    is lost.
    """
    found: set[tuple[int, str]] = set()
    for path in checkpoint_names.files_of(prefix):
        if not path.startswith(f"{prefix}.input") or not path.endswith(".json"):
            continue
        try:
            saved = read_json(path, path, "it must be the file that a run saved")
            lengths = [length for _, length in saved["files"]]
            found.update(zip(lengths, saved["digests"], strict=True))
        except (UserError, KeyError, TypeError, ValueError):
            logging.warning("%s is damaged; what the model was trained on is not known", path)
    return found
