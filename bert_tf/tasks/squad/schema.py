"""What a SQuAD record holds."""

import tensorflow as tf

from bert_tf.files import records


def squad_schema(max_seq_length: int, is_training: bool) -> records.Schema:
    """Returns the schema of SQuAD records: one window of a text with its question.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = text, 0 = question and padding).
        is_training: whether there are `start_positions` and `end_positions`, the answer's first
            and last token in the sequence (0, [CLS], where the window has no answer), and
            `is_impossible` (1 = the question has no answer). Parsing records that lack them gives
            zeros, so the schema with them serves to read both.

    `unique_ids` number the windows of a file. Names and types are those of `FeatureWriter` in the
    original.
    """
    sequence = records.int64_feature([max_seq_length], "max_seq_length")
    schema = {
        "unique_ids": records.int64_feature([]),
        "input_ids": sequence,
        "input_mask": sequence,
        "segment_ids": sequence,
    }
    if is_training:
        for name in ("start_positions", "end_positions", "is_impossible"):
            schema[name] = tf.io.FixedLenFeature([], tf.int64, default_value=0)
    return schema
