"""Packed records: rows of several sequences, which do not attend to each other.

Shortest-pack-first histogram packing (https://arxiv.org/abs/2107.02027, section 3.1) decides which
sequences share a row. It only uses the histogram of their lengths, so it is as fast for a billion
sequences as for a thousand.
"""

import random
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from bert_tf.progress import Progress
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records import manifest
from bert_tf.tasks.pretraining.records.data_settings import PackingSettings
from bert_tf.tasks.pretraining.records.shuffling import SpillFile, shuffle
from bert_tf.tasks.pretraining.schema import (
    MLM,
    MLM_NSP,
    PACKED,
    UNMASKED,
    predictions_per_row,
    pretraining_schema,
)

WORTHWHILE = 1.1  # sequences per row; with fewer, packing saves little more than it costs
_READ = 1024  # records at a time
# Features of a sequence without padding, or of a row.
Features = dict[str, list]


class Pack(NamedTuple):
    """`count` rows that hold sequences of the same lengths, in each row the longest first."""

    lengths: tuple[int, ...]
    count: int


def pack_histogram(counts: Sequence[int], max_sequences_per_pack: int) -> list[Pack]:
    """Packs sequences into rows; `counts[n]` is the number of sequences with n tokens.

    A row has `len(counts) - 1` places. From the longest to the shortest, each sequence goes into
    the row with the fewest tokens, among all rows with room for it, or into a new row.
    """
    row_length = len(counts) - 1
    with_room: list[list[Pack]] = [[] for _ in counts]  # by the number of tokens that still fit
    full: list[Pack] = []

    def add(lengths: tuple[int, ...], count: int) -> None:
        room = row_length - sum(lengths)
        ended = not room or len(lengths) == max_sequences_per_pack
        (full if ended else with_room[room]).append(Pack(lengths, count))

    for length in range(row_length, 0, -1):
        left = int(counts[length])
        # A row that got a sequence has less room, so the loop reaches it again.
        for room in range(row_length, length - 1, -1):
            while left and with_room[room]:
                lengths, count = with_room[room].pop()
                taken = min(count, left)
                if count > taken:
                    with_room[room].append(Pack(lengths, count - taken))
                add((*lengths, length), taken)
                left -= taken
        # No row has room: start new rows, each with as many of this length as fit.
        number = min(row_length // length, max_sequences_per_pack)
        if left >= number:
            add((length,) * number, left // number)
        if left % number:
            add((length,) * (left % number), 1)
    return full + [pack for packs in with_room for pack in packs]


def forecast(counts: Sequence[int], packs: Sequence[Pack]) -> str:
    """Says what packing saves; `packs` come from `counts`, which must not be all 0."""
    sequences, row_length = sum(map(int, counts)), len(counts) - 1
    rows = sum(pack.count for pack in packs)
    tokens = sum(length * int(count) for length, count in enumerate(counts))
    fill, packed_fill = (tokens / (number * row_length) for number in (sequences, rows))
    text = (
        f"{sequences} sequences fill {fill:.4f} of their places; packed into {rows} rows they fill"
        f" {packed_fill:.4f}: {sequences / rows:.4f} sequences a row"
    )
    if sequences / rows < WORTHWHILE:
        text += (
            f". Packing is not worthwhile below {WORTHWHILE} sequences a row: train on the unpacked"
            " records"
        )
    return text


def rows_of(lengths: Sequence[int], packs: Sequence[Pack], seed: int) -> Iterator[list[int]]:
    """Yields the indices of the sequences in each row, the longest sequence first.

    The seed determines the order of the rows. Sequences of the same length keep their order. Takes
    about 24 bytes of memory for each sequence and for each row.
    """
    by_length = np.argsort(np.asarray(lengths), kind="stable")
    ends = np.cumsum(np.bincount(lengths))
    begins = np.concatenate([[0], ends])[: len(ends)]  # each length's next sequence to take
    members = np.empty(len(lengths), by_length.dtype)
    widths = np.repeat([len(pack.lengths) for pack in packs], [pack.count for pack in packs])
    row_begins = np.concatenate([[0], np.cumsum(widths)])
    place = 0
    for pack_lengths, count in packs:
        stop = place + count * len(pack_lengths)
        rows = members[place:stop].reshape(count, -1)
        for column, length in enumerate(pack_lengths):
            begin = begins[length]
            rows[:, column] = by_length[begin : begin + count]
            begins[length] += count
        place = stop
    del by_length, widths
    order = array("Q", range(len(row_begins) - 1))
    shuffle(order, random.Random(seed))
    for number in order:
        yield members[row_begins[number] : row_begins[number + 1]].tolist()


def rows_a_step(batch_size: int, sequences_per_row: float, parts: int) -> int:
    """Returns the number of rows that hold about `batch_size` sequences, a multiple of `parts`."""
    return max(1, round(batch_size / sequences_per_row / parts)) * parts


def pack_records(settings: PackingSettings) -> None:
    """Packs records, and logs what packing saves; without an `output_file` only logs it.

    All records of the input are packed together. They wait in a temporary file as large as the
    input; each record takes about 40 bytes of memory.
    """
    files = manifest.record_files(settings.input_file, "input_file")
    made_by = manifest.common_manifest(files, "input_file")
    schema = _unpacked_schema(files)
    most = settings.max_sequences_per_pack
    if settings.output_file is None:
        _plan(np.concatenate([lengths for _, lengths in _read(files, schema)]), schema, most)
        return
    output_files = settings.output_file.split(",")
    manifest.check_outputs({"output_file": output_files}, {"input_file": files})

    def write_manifests(sizes: Mapping[str, int]) -> dict[str, str]:
        return manifest.beside({**made_by[1], "pack": True}, sizes) if made_by else {}

    with (
        records.write_files(output_files, "output_file", write_manifests) as write,
        SpillFile(settings.spill_dir, output_files[0]) as spill,
    ):
        for serialized, lengths in _read(files, schema):
            for record, length in zip(serialized, lengths.tolist(), strict=True):
                spill.add(record, length)
        for row in packed_rows(spill, schema, most, settings.random_seed):
            write(row)


def packed_rows(
    spill: SpillFile, schema: records.Schema, max_sequences_per_pack: int, seed: int
) -> Iterator[bytes]:
    """Packs records of this schema and yields the serialized rows, in an order set by the seed."""
    lengths = spill.num_tokens()
    packs, num_rows = _plan(lengths, schema, max_sequences_per_pack)
    row_length = schema["input_ids"].shape[0]
    objective = MLM_NSP if "next_sentence_labels" in schema else MLM
    predictions = None if UNMASKED in schema else schema["masked_lm_positions"].shape[0]
    most = predictions_per_row(predictions or 0, max_sequences_per_pack)
    packed = pretraining_schema(row_length, predictions, objective, max_sequences_per_pack)
    serialize = records.Serializer(packed)
    written = 0
    with Progress("writing rows", "rows", num_rows) as work:
        for numbers in rows_of(lengths, packs, seed):
            for row in split_row([read_sequence(r) for r in spill.read(numbers)], most):
                yield serialize(pack_row(row, packed))
                written += 1
            work.advance()
    split = written - num_rows
    logging.info("Wrote %d rows, at most %d sequences in each", written, max_sequences_per_pack)
    if split:
        logging.warning(
            "%d rows were added because a row has room for only %d predictions, too few for all"
            " sequences of some rows: --max_predictions_per_seq=%d is too small for"
            " --max_seq_length=%d",
            *(split, most, predictions, row_length),
        )


def read_sequence(record: bytes) -> Features:
    """Parses a record of one sequence, and removes the padding."""
    features = tf.train.Example.FromString(record).features.feature
    values = {name: list(x.int64_list.value or x.float_list.value) for name, x in features.items()}
    length = sum(values.pop("input_mask"))
    sequence = {}
    if "masked_lm_weights" in values:
        real = [i for i, weight in enumerate(values["masked_lm_weights"]) if weight]
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            column = values.pop(name)
            sequence[name] = [column[i] for i in real]
    if "next_sentence_labels" in values:
        sequence["next_sentence_labels"] = values.pop("next_sentence_labels")
    for name in ("input_ids", "segment_ids", UNMASKED):
        if name in values:
            sequence[name] = values[name][:length]
    return sequence


def split_row(sequences: Sequence[Features], most: int) -> Iterator[list[Features]]:
    """Splits a row into parts with at most `most` predictions; no sequence may have more."""
    part: list[Features] = []
    predictions = 0
    for sequence in sequences:
        number = len(sequence.get("masked_lm_ids", ()))
        if part and predictions + number > most:
            yield part
            part, predictions = [], 0
        part.append(sequence)
        predictions += number
    yield part


def pack_row(sequences: Iterable[Features], schema: records.Schema) -> Features:
    """Returns the features of a packed record of this schema."""
    row: Features = {name: [] for name in schema}
    num_words = 0
    for number, sequence in enumerate(sequences, 1):
        begin, length = len(row["input_ids"]), len(sequence["input_ids"])
        row["input_ids"] += sequence["input_ids"]
        row["input_mask"] += [number] * length
        row["segment_ids"] += sequence["segment_ids"]
        row["position_ids"] += range(length)
        row[PACKED].append(begin)
        if UNMASKED in row:
            row[UNMASKED] += [word and num_words + word for word in sequence[UNMASKED]]
            num_words += max(sequence[UNMASKED])
        else:
            row["masked_lm_positions"] += [begin + i for i in sequence["masked_lm_positions"]]
            row["masked_lm_ids"] += sequence["masked_lm_ids"]
            row["masked_lm_weights"] += sequence["masked_lm_weights"]
        if "next_sentence_labels" in row:
            row["next_sentence_labels"] += sequence["next_sentence_labels"]
            row["next_sentence_weights"].append(1.0)
    for name, feature in schema.items():
        padding = feature.shape[0] - len(row[name])
        row[name] += [0.0 if feature.dtype is np.float32 else 0] * padding
    return row


def _plan(
    lengths: np.ndarray, schema: records.Schema, max_sequences_per_pack: int
) -> tuple[list[Pack], int]:
    """Returns rows for sequences of these lengths, and their number; logs what packing saves."""
    counts = np.bincount(lengths, minlength=schema["input_ids"].shape[0] + 1)
    packs = pack_histogram(counts, max_sequences_per_pack)
    logging.info("%s", forecast(counts, packs))
    return packs, sum(pack.count for pack in packs)


def _unpacked_schema(files: Sequence[str]) -> records.Schema:
    lengths = record_checks.feature_lengths(files[0], "input_file")
    if PACKED in lengths:
        raise UserError(
            f"--input_file: the records of {files[0]} are already packed, with"
            f" --max_sequences_per_pack={lengths[PACKED]}; name the unpacked records that they"
            " were made from"
        )
    predictions = lengths.get("masked_lm_positions")
    if "input_ids" not in lengths or predictions is None and UNMASKED not in lengths:
        raise UserError(
            f"--input_file: {files[0]} must have records of create_pretraining_data.py, with"
            f" input_ids and masked_lm_positions or {UNMASKED}; it has"
            f" {', '.join(sorted(lengths)) or 'nothing'}"
        )
    objective = MLM_NSP if "next_sentence_labels" in lengths else MLM
    schema = pretraining_schema(lengths["input_ids"], predictions, objective)
    record_checks.check_files(files, schema, "input_file")
    return schema


def _read(
    files: Sequence[str], schema: records.Schema
) -> Iterator[tuple[Sequence[bytes], np.ndarray]]:
    """Yields batches of serialized records, with the number of tokens of each record."""
    dataset = tf.data.TFRecordDataset(list(files)).batch(_READ)
    dataset = dataset.map(lambda x: (x, records.parse(x, schema)["input_mask"]))
    count = 0
    with record_checks.explained(files, schema):
        for serialized, masks in dataset.as_numpy_iterator():
            lengths = masks.sum(axis=1)
            wrong = np.flatnonzero((np.diff(masks, axis=1) > 0).any(axis=1) | (lengths == 0))
            if wrong.size:
                raise UserError(
                    f"--input_file: record {count + wrong[0]} of {', '.join(files)} (counted from"
                    " 0): input_mask must be 1 for all tokens and then 0 for padding"
                )
            yield serialized, lengths
            count += len(serialized)
