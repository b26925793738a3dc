"""The features of a pre-training record."""

from bert_tf.files import records

# What a model is trained to predict (--objective).
MLM_NSP, MLM = OBJECTIVES = ("mlm_nsp", "mlm")
UNMASKED = "word_ids"  # the feature that unmasked records have


def pretraining_schema(
    max_seq_length: int, max_predictions_per_seq: int | None, objective: str = MLM_NSP
) -> records.Schema:
    """Returns the schema of pre-training records.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = second sentence).
        max_predictions_per_seq: length of `masked_lm_positions` (indices into the sequence),
            `masked_lm_ids` (the original tokens there) and `masked_lm_weights` (1.0 = prediction,
            0.0 = padding). None for unmasked records, which have `word_ids` instead: for each token
            the number of its word in the sequence, from 1; 0 for [CLS], [SEP] and padding.
        objective: one of `OBJECTIVES`. Records of `mlm` have no `next_sentence_labels`.

    `next_sentence_labels` is 1 if the second sentence is a random one, 0 if it follows the first.
    Names and types: `write_instance_to_example_files` of the original; `word_ids` is our own.
    """
    schema = dict(records.model_inputs([max_seq_length]))
    if max_predictions_per_seq is None:
        schema[UNMASKED] = records.int64_feature(
            [max_seq_length], "max_seq_length", low=0, high=max_seq_length
        )
    else:
        number, number_flag = [max_predictions_per_seq], "max_predictions_per_seq"
        position = max_seq_length - 1
        schema |= {
            "masked_lm_positions": records.int64_feature(number, number_flag, low=0, high=position),
            "masked_lm_ids": records.int64_feature(number, number_flag, low=0),
            "masked_lm_weights": records.float_feature(number, number_flag, low=0.0, high=1.0),
        }
    if objective == MLM_NSP:
        schema["next_sentence_labels"] = records.int64_feature([1], low=0, high=1)
    return schema
