"""What a classification record holds."""

from bert_tf.files import records


def classification_schema(max_seq_length: int, regression: bool) -> records.Schema:
    """Returns the schema of classification records.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = second text).
        regression: whether `label_ids` is a number instead of the index of a class.

    `is_real_example` is 1, but for padding at the end of files that the original wrote on TPUs.
    Names and types are those of `file_based_convert_examples_to_features` in the original.
    """
    sequence = records.int64_feature([max_seq_length], "max_seq_length")
    return {
        "input_ids": sequence,
        "input_mask": sequence,
        "segment_ids": sequence,
        "label_ids": records.float_feature([]) if regression else records.int64_feature([]),
        "is_real_example": records.int64_feature([]),
    }
