"""Plain pre-training batches and the same sequences packed."""

import numpy as np

from bert_tf.tasks.pretraining.records.packing import pack_row
from bert_tf.tasks.pretraining.schema import MLM, MLM_NSP, pretraining_schema

ROW_LENGTH, PREDICTIONS, PLACES = 23, 6, 4
# The lengths of the sequences of each row: one that fills it, all places used, padding.
ROWS = ((23,), (9, 6, 5, 3), (12, 4), (11, 10))


def make_sequences(rows=ROWS, predictions=PREDICTIONS, objective=MLM_NSP, vocab_size=53, seed=0):
    """Returns for each row its sequences, each with the features of a record without padding."""
    rng = np.random.RandomState(seed)

    def make(length):
        count = rng.randint(1, min(predictions, length - 2) + 1)
        # As many as a row has room for.
        count = min(count, max(1, round(0.25 * length)))
        first = rng.randint(2, length)
        sequence = {
            "input_ids": rng.randint(1, vocab_size, length).tolist(),
            "segment_ids": [0] * first + [1] * (length - first),
            "masked_lm_positions": sorted(rng.choice(length, count, replace=False).tolist()),
            "masked_lm_ids": rng.randint(1, vocab_size, count).tolist(),
            "masked_lm_weights": rng.choice([0.25, 1.0], count).tolist(),
        }
        if objective != MLM:
            sequence["next_sentence_labels"] = [int(rng.randint(2))]
        return sequence

    return [[make(length) for length in lengths] for lengths in rows]


def plain_record(sequence, row_length=ROW_LENGTH, predictions=PREDICTIONS):
    """Returns the features of the record of one sequence, lists with padding."""
    record = {**sequence, "input_mask": [1] * len(sequence["input_ids"])}
    for name in record.keys() - {"next_sentence_labels"}:
        size = predictions if name.startswith("masked_lm") else row_length
        record[name] = record[name] + [0] * (size - len(record[name]))
    return record


def batch(rows, schema):
    """Returns records, dictionaries of lists, as a batch of NumPy arrays, int32 or float32."""
    return {
        name: np.array([row[name] for row in rows], np.int32 if feature.dtype is np.int64 else "f")
        for name, feature in schema.items()
    }


def both_batches(rows=ROWS, objective=MLM_NSP, **options):
    """Returns the batch of plain records, and the batch of the same sequences packed."""
    sequences = make_sequences(rows, objective=objective, **options)
    schema = pretraining_schema(ROW_LENGTH, PREDICTIONS, objective)
    plain = batch([plain_record(x) for row in sequences for x in row], schema)
    schema = pretraining_schema(ROW_LENGTH, PREDICTIONS, objective, PLACES)
    return plain, batch([pack_row(row, schema) for row in sequences], schema)
