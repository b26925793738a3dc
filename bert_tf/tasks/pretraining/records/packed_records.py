"""Packed records: several sequences in a row, which do not attend to each other.

`schema.pretraining_schema` describes the records; `packing` chooses which sequences share a row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from bert_tf.files.overwriting import check_overwrites
from bert_tf.progress import Progress
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records import packing
from bert_tf.tasks.pretraining.records.data_settings import PackingSettings
from bert_tf.tasks.pretraining.records.manifest import (
    beside,
    check_place,
    common_manifest,
    read_manifests,
    record_files,
)
from bert_tf.tasks.pretraining.records.spill_file import SpillFile
from bert_tf.tasks.pretraining.schema import (
    MLM,
    MLM_NSP,
    PACKED,
    UNMASKED,
    predictions_per_row,
    pretraining_schema,
)

_READ = 1024  # records at a time
# Number of records that the mean number of sequences is estimated from. For Wikipedia, whose rows
# mostly have one or two sequences and sometimes twelve, the error is below 1%. Takes a second.
_SAMPLE = 10_000
# The features of a record, which is a sequence or a row of several, without the padding.
Features = dict[str, list]


def pack_records(settings: PackingSettings) -> None:
    """Packs the records of some files, and logs what packing saves; writes only to `output_file`.

    All records of the input are packed together. They wait in a temporary file as large as the
    input; each takes about 40 bytes of memory.

    Raises:
        UserError: the input is missing, damaged, already packed or not pre-training records, an
            output file is an input file, or a file cannot be written.
        OSError: reading or writing failed, but a retry may succeed, for example after freeing
            disk space.
    """
    files = record_files(settings.input_file, "input_file")
    made_by = common_manifest(read_manifests(files), "input_file")
    schema = _unpacked_schema(files)
    most = settings.max_sequences_per_pack
    if settings.output_file is None:
        _plan(np.concatenate([lengths for _, lengths in _read(files, schema)]), schema, most)
        return
    output_files = settings.output_file.split(",")
    check_overwrites(output_files, "output_file", {"input_file": files})
    for path in output_files:
        check_place(path, "output_file")

    def write_manifests(sizes: Mapping[str, int]) -> dict[str, str]:
        return beside({**made_by, "pack": True}, sizes) if made_by else {}

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
        for numbers in packing.rows_of(lengths, packs, seed):
            for row in split_row([read_sequence(r) for r in spill.read(numbers)], most):
                yield serialize(pack_row(row, packed))
                written += 1
            work.advance()
    split = written - num_rows
    logging.info("Wrote %d rows, at most %d sequences in each", written, max_sequences_per_pack)
    if split:
        logging.warning(
            "%d rows were added because a row has room for only %d predictions, too few for all"
            " sequences of some rows: --max_predictions_per_seq=%d is too few for"
            " --max_seq_length=%d",
            *(split, most, predictions, row_length),
        )


def read_sequence(record: bytes) -> Features:
    """Returns the features of a record of one sequence, by name, without the padding."""
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
    """Splits a row into parts with at most `most` predictions each, and yields their sequences.

    Every sequence must have at most `most` predictions.
    """
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


def mean_sequences(files: Sequence[str], schema: records.Schema) -> float:
    """Returns the mean number of sequences per record, from the first 10,000 packed records.

    Raises:
        UserError, OSError: see `record_checks.explain`.
    """
    mask = {"input_mask": schema["input_mask"]}
    sample = tf.data.TFRecordDataset(list(files)).take(_SAMPLE).batch(_READ)
    with record_checks.explained(files, schema):
        numbers = [records.parse(batch, mask)["input_mask"].numpy().max(axis=1) for batch in sample]
    return float(np.mean(np.concatenate(numbers)))


def _plan(
    lengths: np.ndarray, schema: records.Schema, max_sequences_per_pack: int
) -> tuple[list[packing.Pack], int]:
    """Returns rows for sequences of these lengths, and their number; logs what packing saves."""
    counts = np.bincount(lengths, minlength=schema["input_ids"].shape[0] + 1)
    packs = packing.pack_histogram(counts, max_sequences_per_pack)
    forecast = packing.forecast(counts, packs)
    logging.info("%s", forecast)
    return packs, forecast.rows


def _unpacked_schema(files: Sequence[str]) -> records.Schema:
    """Returns the schema of unpacked pre-training records, with the first record's lengths."""
    lengths = record_checks.feature_lengths(files[0], "input_file")
    if PACKED in lengths:
        raise UserError(
            f"--input_file: the records of {files[0]} are packed already, with"
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
    """Yields batches of records, each with its records' numbers of tokens."""
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


def check_packed_predictions(
    lengths: Mapping[str, int], max_predictions_per_seq: int, file: str, flag: str
) -> None:
    """Raises UserError if packed records lack the masked positions that the flags ask for.

    Args:
        lengths: lengths of the features of the first record of the file.
        flag: the flag (no dashes) that named the file, for messages.
    """
    found, places = lengths["masked_lm_positions"], lengths[PACKED]
    made_with = found - predictions_per_row(0, places)
    if made_with != max_predictions_per_seq:
        raise UserError(
            f"--{flag}: {file} was made with other settings: its packed records have {found} masked"
            f" positions. Give --max_predictions_per_seq={made_with}, which fits, instead of"
            f" {max_predictions_per_seq}"
        )
