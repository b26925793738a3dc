"""The features of a multiple choice record."""

from bert_tf.files import records

NUM_CHOICES = 4


def multiple_choice_schema(max_seq_length: int) -> records.Schema:
    """Returns the schema of multiple choice records; `label_ids`: the index of the right choice."""
    return {
        **records.model_inputs([NUM_CHOICES, max_seq_length]),
        "label_ids": records.int64_feature([], low=0, high=NUM_CHOICES - 1),
    }
