"""What a tagging record holds."""

from bert_tf.files import records


def tagging_schema(max_seq_length: int) -> records.Schema:
    """Returns the schema of tagging records.

    Args:
        max_seq_length: length of every feature: `input_ids`, `input_mask` (1 = token, 0 =
            padding), `segment_ids` (0 throughout), `label_ids` (places in the list of labels) and
            `label_mask` (1 = the first piece of a word that this record tags; 0 = X, any other
            piece, a word that is there as context, or padding).
    """
    sequence = records.int64_feature([max_seq_length], "max_seq_length")
    return {
        "input_ids": sequence,
        "input_mask": sequence,
        "segment_ids": sequence,
        "label_ids": sequence,
        "label_mask": sequence,
    }
