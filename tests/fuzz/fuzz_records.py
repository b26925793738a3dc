"""Record files with damage, and records of odd values, against a reader of their own."""

import contextlib
import random as random_module
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert_tf.engine import input_pipeline
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.whole_file_input import WholeFileInput
from bert_tf.files import record_checks, records
from tests.fuzz.cases import attempt, damage

S = 6
SCHEMAS = (
    {
        "input_ids": records.int64_feature([S], "max_seq_length", low=0, high=4000),
        "input_mask": records.int64_feature([S], "max_seq_length", low=0, high=1),
        "weights": records.float_feature([2], low=0.0, high=1.0),
        "label": records.int64_feature([1], high=2),
    },
    {
        "input_ids": records.int64_feature([2, 3], "max_seq_length"),
        "input_mask": records.int64_feature([2, 3], "max_seq_length", low=0, high=1),
        "score": records.float_feature([]),
        "start": records.int64_feature([], low=0, high=5, default=0),
    },
)
ODD_INTEGERS = [-1, 2, 7, 4000, 4001, 2**31 - 1, 2**31, 2**32 + 5, -(2**31) - 1]
ODD_INTEGERS += [2**63 - 1, -(2**63)]
ODD_FLOATS = (-1.0, -1e-9, 1.0000002, 1e30, 3.4e38, float("nan"), float("inf"), -float("inf"))
Row = dict[str, np.ndarray]


# --- what must be read ----------------------------------------------------------------------------


def _frame(record: bytes) -> bytes:
    checksum, length = record_checks._masked_crc32c, len(record).to_bytes(8, "little")
    return length + checksum(length) + record + checksum(record)


def _records(content: bytes) -> list[bytes] | None:
    """Returns the records in a file's content; None if it is damaged."""
    found = []
    while content:
        end = 12 + int.from_bytes(content[:8], "little")
        record = content[12:end]
        if len(content) < end + 4 or _frame(record) != content[: end + 4]:
            return None
        found.append(record)
        content = content[end + 4 :]
    return found


def _row(record: bytes, schema: records.Schema) -> Row | None:
    """Returns the values in a record; None if it does not fit the schema."""
    try:
        features = dict(tf.train.Example.FromString(record).features.feature.items())
    except Exception:
        return None
    row = {}
    for name, feature in schema.items():
        integer = feature.dtype == tf.int64
        value = features.get(name)
        kind = value.WhichOneof("kind") if value else None
        if kind is None and feature.default_value is not None:
            row[name] = np.full(feature.shape, feature.default_value)
            continue
        if kind != ("int64_list" if integer else "float_list"):
            return None
        numbers = list(getattr(value, kind).value)
        low, high, _ = feature.range
        if len(numbers) != np.prod(feature.shape) or not all(low <= x <= high for x in numbers):
            return None
        row[name] = np.array(numbers).reshape(feature.shape)
    return row


def _is_read_by_tensorflow_alone(record: bytes, schema: records.Schema) -> bool:
    """Whether TensorFlow's parser takes a record that is no valid message, as it does some."""
    try:
        tf.train.Example.FromString(record)
    except DecodeError:
        with contextlib.suppress(*record_checks.read_errors()):
            records.parse(tf.constant([record]), schema)
            return True
    return False


# --- a case ---------------------------------------------------------------------------------------


def _values(random: random_module.Random, schema: records.Schema) -> dict[str, list]:
    values = {}
    for name, feature in schema.items():
        low, high, _ = feature.range
        low, high = max(low, -9), min(high, 9**5)
        draw = random.randint if feature.dtype == tf.int64 else random.uniform
        values[name] = [draw(low, high) for _ in range(int(np.prod(feature.shape)))]
    return values


def _odd_record(random: random_module.Random, schema: records.Schema) -> bytes:
    """Returns a record with something odd about it, which may still be right."""
    example = tf.train.Example.FromString(records.serialize(_values(random, schema), schema))
    features = example.features.feature
    name = random.choice(list(schema))
    integer = schema[name].dtype == tf.int64
    values = (features[name].int64_list if integer else features[name].float_list).value
    match random.choice(["value", "value", "kind", "missing", "length", "extra", "bytes", "noise"]):
        case "value":
            odd = random.choice(ODD_INTEGERS if integer else ODD_FLOATS)
            values[random.randrange(len(values))] = odd
        case "kind":
            other = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\xff"] * 2))
            if random.random() < 0.5:
                numbers = [float(x) for x in values] if integer else [int(x) for x in values]
                other = tf.train.Feature()
                (other.float_list if integer else other.int64_list).value.extend(numbers)
            features[name].CopyFrom(other)
        case "missing":
            del features[name]
        case "length":
            del values[random.randrange(len(values)) :]
            values.extend([0] * random.choice([0, 0, 1, 2, 9]))
        case "extra":
            features["x" * random.choice([1, 300])].bytes_list.value.append(b"\xff\xfe")
        case "bytes":
            return damage(random, example.SerializeToString(deterministic=True))
        case _:
            return random.randbytes(random.randrange(40))
    return example.SerializeToString(deterministic=True)


def _same(batch: dict[str, tf.Tensor], rows: list[Row]) -> bool:
    values = {name: batch[name].numpy() for name in rows[0]}
    return all(
        np.array_equal(value, np.array([row[name] for row in rows]).astype(value.dtype))
        for name, value in values.items()
    )


def _key(row: dict[str, np.ndarray]) -> bytes:
    return b"".join(
        name.encode() + np.asarray(row[name]).astype(np.float32).tobytes() for name in sorted(row)
    )


def _check_drawn(source, rows: list[Row] | None, num_batches: int, bad: str) -> None:
    """Checks that batches have rows of the files, or that the first bad file is named."""

    def draw() -> None:
        for _ in range(num_batches):
            try:
                batch = next(source.iterator)
            except record_checks.read_errors() as error:
                raise source.explain(error) from error
            batch.pop("longest", None)
            assert rows is not None or bad, "nothing was refused"
            for i in range(2):
                drawn.add(_key({name: value[i].numpy() for name, value in batch.items()}))

    drawn: set[bytes] = set()
    message, _ = attempt(draw, naming=bad)
    assert (message is None) == (rows is not None), message
    if rows is not None:
        assert drawn <= set(map(_key, rows))


def fuzz_record_files(random: random_module.Random, folder: Path) -> None:
    """Every reader returns what a file holds, or refuses it by its name."""
    schema = random.choice(SCHEMAS)
    paths, contents = [], []
    wrong = random.choice(["nothing", "record", "file", "cut"])
    for i in range(random.randint(1, 3)):
        count = random.randint(1, 12)
        found = [records.serialize(_values(random, schema), schema) for _ in range(count)]
        if wrong == "record" and random.random() < 0.7:
            found[random.randrange(len(found))] = _odd_record(random, schema)
        content = b"".join(map(_frame, found))
        if wrong == "file" and random.random() < 0.7:
            content = damage(random, content)
        if wrong == "cut":
            end = len(b"".join(map(_frame, found[: random.randint(0, len(found))])))
            content = content[: max(0, end + random.randint(-20, 20))]
        paths.append(str(folder / f"{i}.tfrecord"))
        contents.append(content)
        Path(paths[-1]).write_bytes(content)
    framed = [_records(content) for content in contents]
    if any(_is_read_by_tensorflow_alone(x, schema) for found in framed for x in found or ()):
        return  # to read it and to refuse it are both right
    rows = [None if found is None else [_row(x, schema) for x in found] for found in framed]
    damaged = next((p for p, found in zip(paths, framed, strict=True) if found is None), None)
    bad = next((p for p, r in zip(paths, rows, strict=True) if r is None or None in r), None)
    every = None if bad else [row for of_file in rows for row in of_file]

    message, count = attempt(lambda: input_pipeline.count_records(paths))
    assert (message is None) == (damaged is None), message
    if damaged is None:
        assert count == sum(map(len, framed))
    message, _ = attempt(lambda: record_checks.check_files(paths, schema, "input_file"))
    sound = every is not None and all(framed)
    assert message is None or not sound, message
    # Damage in the middle of a file is left for later.
    first_bad = any(wrong == "cut" if r is None else not r or r[0] is None for r in rows)
    assert message is not None or not first_bad
    _check_chunks(paths, schema, every, bad)
    _check_inputs(random, paths, schema, every, bad, all(found != [] for found in framed))


def _check_chunks(paths, schema, every, bad) -> None:
    message, chunks = attempt(
        lambda: list(input_pipeline.record_chunks(paths, schema, 5)),
        naming="" if bad is None else str(Path(bad).parent),
    )
    assert (message is None) == (bad is None), message
    for i, chunk in enumerate(chunks or ()):
        assert _same(chunk, every[5 * i : 5 * i + 5])


def _check_inputs(random, paths, schema, every, bad, filled: bool) -> None:
    total = len(every) if every is not None else 36
    folder = str(Path(paths[0]).parent)
    settings = (paths, schema, 2, random.randrange(99))
    buckets = Buckets.of_schema((S,), schema)
    for build, num_batches in (
        (lambda: input_pipeline.TrainingInput(*settings), 4 * total),
        (lambda: WholeFileInput(*settings, num_batches=5, buckets=buckets), 2 * total),
    ):
        message, source = attempt(build, naming=folder)
        if message is not None:
            assert bad is not None or not filled, message
            continue
        assert filled
        _check_drawn(source, every, num_batches, folder if bad else "")
