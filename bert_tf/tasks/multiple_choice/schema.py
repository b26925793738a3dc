"""The features of a multiple choice record."""

from bert_tf.files import records

NUM_CHOICES = 4


def multiple_choice_schema(max_seq_length: int) -> records.Schema:
    """Returns the schema of multiple choice records.

    Args:
        max_seq_length: last axis of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = second text), each [NUM_CHOICES, max_seq_length].

    `label_ids` is the index of the right choice.
    """
    sequences = records.int64_feature([NUM_CHOICES, max_seq_length], "max_seq_length")
    return {
        "input_ids": sequences,
        "input_mask": sequences,
        "segment_ids": sequences,
        "label_ids": records.int64_feature([]),
    }
