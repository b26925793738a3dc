"""Packing: which sequences share a row, and what its record holds."""

import collections
import json
import math
import os
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.files import record_checks, records
from bert_tf.tasks.pretraining.records import data, packing
from bert_tf.tasks.pretraining.records.data_settings import PackingSettings, PretrainingDataSettings
from bert_tf.tasks.pretraining.records.packing import Pack, forecast, pack_histogram
from bert_tf.tasks.pretraining.records.shards import create_shards
from bert_tf.tasks.pretraining.schema import MLM, MLM_NSP, PACKED, pretraining_schema
from bert_tf.tasks.pretraining.training.record_files import Records
from tests.support import packed_batches
from tests.support.golden import needs_golden
from tests.support.packed_batches import PLACES, PREDICTIONS, ROW_LENGTH, plain_record
from tests.support.pretraining_runs import run, write_text
from tests.support.record_files import read_records
from tests.support.refusals import refuses

NAMES = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
NAMES += ("next_sentence_labels",)
LISTS = [2, 11, 12, 3, 13, 3], [0, 0, 0, 0, 1, 1], [2, 4], [21, 22], [1.0, 0.5], [1]
FIRST = dict(zip(NAMES, LISTS, strict=True))
SECOND = dict(zip(NAMES, ([2, 14, 3], [0, 0, 1], [1], [23], [1.0], [0]), strict=True))


def unpack(row):
    """Returns the sequences of a row, as `read_sequence` returns them."""
    sequences = []
    for number in range(1, max(row["input_mask"]) + 1):
        places = [i for i, x in enumerate(row["input_mask"]) if x == number]
        begin, end = places[0], places[-1] + 1
        assert places == list(range(begin, end))
        assert row["position_ids"][begin:end] == list(range(end - begin))
        assert row["cls_positions"][number - 1] == begin
        sequence = {name: row[name][begin:end] for name in ("input_ids", "segment_ids")}
        if "word_ids" in row:
            words = row["word_ids"][begin:end]
            offset = min((word for word in words if word), default=1) - 1
            sequence["word_ids"] = [word and word - offset for word in words]
        else:
            positions, weights = row["masked_lm_positions"], row["masked_lm_weights"]
            mine = [i for i, w in enumerate(weights) if w and begin <= positions[i] < end]
            sequence["masked_lm_positions"] = [positions[i] - begin for i in mine]
            for name in ("masked_lm_ids", "masked_lm_weights"):
                sequence[name] = [row[name][i] for i in mine]
        if "next_sentence_labels" in row:
            assert row["next_sentence_weights"][number - 1] == 1.0
            sequence["next_sentence_labels"] = [row["next_sentence_labels"][number - 1]]
        sequences.append(sequence)
    return sequences


def key(sequence):
    return tuple(sorted((name, tuple(values)) for name, values in sequence.items()))


def counted(sequences):
    return collections.Counter(map(key, sequences))


def write_plain(path, sequences, length=ROW_LENGTH, predictions=PREDICTIONS, objective=MLM_NSP):
    """Writes plain records; returns the path."""
    schema = pretraining_schema(length, predictions, objective)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for sequence in sequences:
            record = plain_record(sequence, length, predictions)
            writer.write(records.serialize(record, schema))
    return str(path)


def many(count, seed=0, shortest=3, longest=ROW_LENGTH):
    rng = random.Random(seed)
    lengths = [(rng.randint(shortest, longest),) for _ in range(count)]
    return [sequence for (sequence,) in packed_batches.make_sequences(lengths, seed=seed)]


def pack(input_file, output_file, places=PLACES, **settings):
    files = {"input_file": str(input_file), "output_file": output_file and str(output_file)}
    packing.pack_records(PackingSettings(**files, max_sequences_per_pack=places, **settings))
    return output_file and read_records(str(output_file).split(",")[0])


def test_a_row():
    schema = pretraining_schema(12, 3, MLM_NSP, 4)
    row = packing.pack_row([FIRST, SECOND], schema)
    assert row == {
        "input_ids": [2, 11, 12, 3, 13, 3, 2, 14, 3, 0, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 2, 2, 2, 0, 0, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0],
        "position_ids": [0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 0, 0],
        "masked_lm_positions": [2, 4, 7, 0, 0],
        "masked_lm_ids": [21, 22, 23, 0, 0],
        "masked_lm_weights": [1.0, 0.5, 1.0, 0.0, 0.0],
        "cls_positions": [0, 6, 0, 0],
        "next_sentence_labels": [1, 0, 0, 0],
        "next_sentence_weights": [1.0, 1.0, 0.0, 0.0],
    }
    records.serialize(row, schema)
    assert unpack(row) == [FIRST, SECOND]


def test_a_row_of_unmasked_sequences_without_next_sentences():
    schema = pretraining_schema(10, None, MLM, 3)
    sequences = [
        {"input_ids": [2, 5, 6, 7, 3], "segment_ids": [0] * 5, "word_ids": [0, 1, 1, 2, 0]},
        {"input_ids": [2, 8, 3], "segment_ids": [0] * 3, "word_ids": [0, 1, 0]},
    ]
    row = packing.pack_row(sequences, schema)
    assert row.keys() == schema.keys()
    assert row["word_ids"] == [0, 1, 1, 2, 0, 0, 3, 0, 0, 0]
    assert row["cls_positions"] == [0, 5, 0]
    assert unpack(row) == sequences


def test_a_record_is_read_without_its_padding():
    schema, record = pretraining_schema(ROW_LENGTH, PREDICTIONS), plain_record(FIRST)
    assert record["masked_lm_weights"] == [1.0, 0.5, 0, 0, 0, 0]
    assert packing.read_sequence(records.serialize(record, schema)) == FIRST
    parts = packing.split_row([FIRST, SECOND, FIRST, FIRST, SECOND], 4)  # predictions at most
    assert [len(part) for part in parts] == [2, 2, 1]


def test_the_tool_packs_every_sequence(tmp_path):
    """As users run it, on two files."""
    sequences = many(300)
    paths = [write_plain(tmp_path / f"{i}", sequences[i::2]) for i in range(2)]
    packed = tmp_path / "packed"
    files = (f"--input_file={','.join(paths)}", f"--output_file={packed}")
    log = run(*files, f"--max_sequences_per_pack={PLACES}", program="tools.pack_records")
    rows = read_records(packed)
    schema = pretraining_schema(ROW_LENGTH, PREDICTIONS, MLM_NSP, PLACES)
    assert record_checks.find_problem([str(packed)], schema) is None
    assert counted(x for row in rows for x in unpack(row)) == counted(sequences)
    tokens = sum(len(sequence["input_ids"]) for sequence in sequences)
    assert f"300 sequences fill {tokens / 300 / ROW_LENGTH:.4f} of their places" in log
    assert f"packed into {len(rows)} rows" in log and f"Wrote {len(rows)} rows" in log
    assert tokens / len(rows) / ROW_LENGTH > 0.95


def test_the_seed_decides_on_the_order_and_files_are_filled_in_turn(tmp_path):
    plain = write_plain(tmp_path / "plain", many(80))
    first, other = (pack(plain, f"{tmp_path}/packed", random_seed=s) for s in (1, 2))
    assert first != other
    assert sorted(map(str, first)) == sorted(map(str, other))
    pack(plain, f"{tmp_path}/a,{tmp_path}/b", random_seed=1)
    assert [read_records(tmp_path / "a"), read_records(tmp_path / "b")] == [first[::2], first[1::2]]


def test_without_an_output_file_the_log_has_the_figures(tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    plain = write_plain(tmp_path / "plain", many(80, shortest=20))
    pack(plain, None)
    assert "1.0000 sequences a row. Packing is not worthwhile" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def test_too_few_predictions_give_a_warning(tmp_path, caplog):
    """Sequences of three tokens have a prediction each: seven fit into a row, but for that."""
    plain = write_plain(tmp_path / "plain", many(70, shortest=3, longest=3), predictions=2)
    rows = pack(plain, tmp_path / "packed", places=7)
    numbers = [max(row["input_mask"]) for row in rows]
    assert collections.Counter(numbers) == {5: 10, 2: 10}
    assert "10 rows were added because a row has room for only 5 predictions" in caplog.text
    message = "of some rows: --max_predictions_per_seq=2 is too small for --max_seq_length=23"
    assert message in caplog.text


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Settings of create_pretraining_data.py for a small text with short documents."""
    sizes = {"max_seq_length": 40, "max_predictions_per_seq": 6, "dupe_factor": 3}
    return {**write_text(tmp_path_factory.mktemp("text")), **sizes, "do_lower_case": True}


@pytest.mark.parametrize("more", [{}, {"mask": False}, {"objective": MLM}])
def test_packing_while_records_are_made_gives_what_the_tool_makes_of_them(text, tmp_path, more):
    settings = PretrainingDataSettings(**text, output_file=f"{tmp_path}/plain", **more)
    count = data.create_pretraining_data(settings)
    rows = pack(tmp_path / "plain", tmp_path / "packed", random_seed=settings.random_seed)
    more = {**more, "pack": True, "max_sequences_per_pack": PLACES}
    settings = PretrainingDataSettings(**text, output_file=f"{tmp_path}/at_once", **more)
    assert data.create_pretraining_data(settings) == count
    assert (tmp_path / "at_once").read_bytes() == (tmp_path / "packed").read_bytes()
    sequences = [packing.read_sequence(x) for x in raw(tmp_path / "plain")]
    assert counted(x for row in rows for x in unpack(row)) == counted(sequences)
    assert len(rows) < count


def raw(path):
    return tf.data.TFRecordDataset(str(path)).as_numpy_iterator()


def test_shards_are_packed_one_by_one(text, tmp_path):
    for name, more in (("plain", {}), ("at_once", {"pack": True})):
        (tmp_path / name).mkdir()
        files = {"output_file": f"{tmp_path}/{name}/a", "num_shards": 3}
        create_shards(PretrainingDataSettings(**text, **files, **more))
    for shard in range(3):
        name = f"a-{shard:05}-of-00003"
        seed = data.shard_seed(shard, PretrainingDataSettings.random_seed)
        pack(tmp_path / "plain" / name, tmp_path / "packed", 12, random_seed=seed)
        assert (tmp_path / "at_once" / name).read_bytes() == (tmp_path / "packed").read_bytes()


WRONG = [
    (
        *("packed", {}),
        "--input_file: the records of packed are already packed, with --max_sequences_per_pack=5;"
        " name the unpacked records that they were made from",
    ),
    ("plain,longer", {}, "longer was made with other settings: length of input_"),
    ("other", {}, "with input_ids and masked_lm_positions or word_ids; it has x"),
    ("plain", {"output_file": "plain"}, "--output_file=plain"),
    (
        *("plain,holes", {}),
        "--input_file: record 10 of plain, holes (counted from 0): input_mask must be 1 for all"
        " tokens and then 0 for padding",
    ),
    ("plain", {"places": 1}, "--max_sequences_per_pack=1 must be between 2 and"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A folder of records: packed, plain, of other lengths, with a hole in a mask, of no BERT."""
    folder = tmp_path_factory.mktemp("wrong")
    pack(write_plain(folder / "plain", many(9)), folder / "packed", places=5)
    write_plain(folder / "longer", many(9), length=31)
    holes = plain_record(FIRST)
    holes["input_mask"][2] = 0
    schema = pretraining_schema(ROW_LENGTH, PREDICTIONS)
    with records.write_files([f"{folder}/holes"], "output_file") as write:
        write(records.serialize(plain_record(SECOND), schema))
        write(records.serialize(holes, schema))
    with records.write_files([f"{folder}/other"], "output_file") as write:
        write(records.serialize({"x": [1]}, {"x": records.int64_feature([1])}))
    return folder


@pytest.mark.parametrize("input_file, changes, message", WRONG)
def test_wrong_input(wrong, monkeypatch, input_file, changes, message):
    monkeypatch.chdir(wrong)
    refuses(re.escape(message), pack, input_file, **{"output_file": "new", **changes})
    assert not (wrong / "new").exists()


def test_the_mean_is_that_of_many_rows(tmp_path):
    schema = {"input_mask": pretraining_schema(2, None, MLM, 2)["input_mask"]}
    with records.write_files([str(tmp_path / "rows")], "output_file") as write:
        for i in range(3000):
            write(records.serialize({"input_mask": [1, 1 if i < 2000 else 2]}, schema))
    sample = Records("input_file", [str(tmp_path / "rows")], {PACKED: 2}).sample(schema)
    assert sample["input_mask"].max(axis=1).mean() == pytest.approx(4 / 3)


def histogram(lengths, row_length):
    return np.bincount(lengths, minlength=row_length + 1)


def packed(lengths, row_length, places):
    return pack_histogram(histogram(lengths, row_length), places)


def test_a_sequence_goes_into_the_row_with_the_fewest_tokens():
    # 7 opens a row, and so does 6, where 3 goes, although it fills up the row with 7. 2 goes to 7.
    assert sorted(packed([7, 6, 3, 2], 10, 4)) == [Pack((6, 3), 1), Pack((7, 2), 1)]
    # With the places used up, the next row is taken.
    assert sorted(packed([7, 4, 1, 1, 1, 1], 10, 3)) == [Pack((4, 1, 1), 1), Pack((7, 1, 1), 1)]
    # Where no row has room, a new one takes as many of this length as fit.
    assert sorted(packed([4] * 7, 13, 9)) == [Pack((4,), 1), Pack((4, 4, 4), 2)]
    assert sorted(packed([4] * 7, 13, 2)) == [Pack((4,), 1), Pack((4, 4), 3)]


@pytest.mark.parametrize("seed", range(40))
def test_each_sequence_is_in_one_row_that_it_fits_in(seed):
    rng = random.Random(seed)
    row_length, places = rng.randint(1, 31), rng.randint(2, 7)
    lengths = [rng.randint(1, row_length) for _ in range(rng.randint(1, 300))]
    packs = packed(lengths, row_length, places)
    rows = list(packing.rows_of(lengths, packs, seed))
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    for row in rows:
        in_row = [lengths[number] for number in row]
        assert len(row) <= places and sum(in_row) <= row_length
        assert in_row == sorted(in_row, reverse=True)
    count, tokens = len(lengths), sum(lengths)
    assert forecast(histogram(lengths, row_length), packs).startswith(
        f"{count} sequences fill {tokens / (count * row_length):.4f} of their places; packed into"
        f" {len(rows)} rows they fill {tokens / (len(rows) * row_length):.4f}:"
        f" {count / len(rows):.4f} sequences a row"
    )


def figures(counts, packs):
    """Returns the share of places that are filled, before and after, and sequences a row."""
    return [float(number) for number in re.findall(r"\d+\.\d{4}", forecast(counts, packs))]


def test_what_packing_brings():
    # Lengths as documents have them: a quarter full, many short ones.
    short = np.random.RandomState(3).lognormal(math.log(150), 0.75, 750_000).astype(int)
    counts = histogram(np.clip(short, 5, 512), 512)
    counts[512] += 250_000
    began = time.monotonic()
    factors = []
    for places in (2, 3, 6, 12, 512):
        packs = pack_histogram(counts, places)
        _, packed_fill, factor = figures(counts, packs)
        factors.append(factor)
    assert time.monotonic() - began < 2.0
    assert factors == sorted(factors)
    assert packed_fill > 0.995 and max(len(pack.lengths) for pack in packs) > 12
    # Long documents do not pay.
    counts = [0] * 20 + [3] + [0] * 99 + [0, 9, 88]
    assert forecast(counts, pack_histogram(counts, 6)).endswith(
        "98 rows they fill 0.9941: 1.0204 sequences a row. Packing is not worthwhile below 1.1"
        " sequences a row: train on the unpacked records"
    )


@needs_golden
def test_wikipedia():
    data = Path(os.environ["BERT_TF_GOLDEN"]).parent / "data" / "wikipedia_lengths_512.json"
    counts = [0, *json.loads(data.read_text())["counts_of_length_1_to_512"]]
    began = time.monotonic()
    fill, packed_fill, factor = figures(counts, pack_histogram(counts, 12))
    assert time.monotonic() - began < 2.0
    assert fill == 0.4997
    assert packed_fill >= 0.995 and factor >= 1.99


def test_rows_of_a_step():
    assert packing.rows_a_step(32, 2.0, 1) == 16
    assert packing.rows_a_step(32, 1.99, 6) == 18
    assert packing.rows_a_step(32, 3.6, 8) == 8
    assert packing.rows_a_step(3, 9.5, 4) == 4
