"""The features of a pre-training record."""

from bert_tf.files import records


def pretraining_schema(max_seq_length: int, max_predictions_per_seq: int) -> records.Schema:
    """Returns the schema of pre-training records.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = second sentence).
        max_predictions_per_seq: length of `masked_lm_positions` (indices into the sequence),
            `masked_lm_ids` (the original tokens there) and `masked_lm_weights` (1.0 = prediction,
            0.0 = padding).

    `next_sentence_labels` is 1 if the second sentence is a random one, 0 if it follows the first.
    Names and types: `write_instance_to_example_files` of the original.
    """
    number, number_flag = [max_predictions_per_seq], "max_predictions_per_seq"
    position = max_seq_length - 1
    return {
        **records.model_inputs([max_seq_length]),
        "masked_lm_positions": records.int64_feature(number, number_flag, low=0, high=position),
        "masked_lm_ids": records.int64_feature(number, number_flag, low=0),
        "masked_lm_weights": records.float_feature(number, number_flag, low=0.0, high=1.0),
        "next_sentence_labels": records.int64_feature([1], low=0, high=1),
    }
