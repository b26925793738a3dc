"""The features of a SQuAD record."""

from bert_tf.files import records


def squad_schema(max_seq_length: int, is_training: bool) -> records.Schema:
    """Returns the schema of SQuAD records: one window of a text with its question.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = text, 0 = question and padding).
        is_training: whether to add the labels: `start_positions` and `end_positions`, indices of
            the answer's first and last token in the sequence (0, the index of [CLS], if the window
            has no answer), and `is_impossible` (1 = the question has no answer). Labels that a
            record lacks are read as 0.

    `unique_ids` identify the windows of a file. Names and types: `FeatureWriter` of the original.
    """
    schema = {"unique_ids": records.int64_feature([]), **records.model_inputs([max_seq_length])}
    if is_training:
        position = records.int64_feature([], low=0, high=max_seq_length - 1, default=0)
        schema["start_positions"] = schema["end_positions"] = position
        schema["is_impossible"] = records.int64_feature([], low=0, high=1, default=0)
    return schema
