"""The features of a SQuAD record."""

import tensorflow as tf

from bert_tf.files import records


def squad_schema(max_seq_length: int, is_training: bool) -> records.Schema:
    """Returns the schema of SQuAD records: one window of a text with its question.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = text, 0 = question and padding).
        is_training: whether to add the labels: `start_positions` and `end_positions`, indices of
            the answer's first and last token in the sequence (0, that of [CLS], if the window has
            no answer), and `is_impossible` (1 = the question has no answer). In records without
            labels they are read as 0.

    `unique_ids` identify the windows of a file. Names and types: `FeatureWriter` of the original.
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
