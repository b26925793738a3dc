"""The features of a pre-training record."""

from bert_tf.files import records

# What a model is trained to predict (--objective).
MLM_NSP, MLM, MLM_SOP, ELECTRA = OBJECTIVES = ("mlm_nsp", "mlm", "mlm_sop", "electra")
MASKED = "masked_lm_positions"  # the feature that masked records have
UNMASKED = "word_ids"  # the feature that unmasked records have
PACKED = "cls_positions"  # the feature that packed records have, one value for each slot


def predictions_per_row(max_predictions_per_seq: int, max_sequences_per_pack: int) -> int:
    """Returns the number of masked positions of a packed row.

    The row's sequences predict as many tokens as one sequence that fills it, plus up to half a
    token each from rounding up.
    """
    return max_predictions_per_seq + max_sequences_per_pack // 2


def pretraining_schema(
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    objective: str = MLM_NSP,
    max_sequences_per_pack: int | None = None,
) -> records.Schema:
    """Returns the schema of pre-training records.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = second sentence).
        max_predictions_per_seq: length of `masked_lm_positions` (indices into the sequence),
            `masked_lm_ids` (the original tokens there) and `masked_lm_weights` (1.0 = prediction,
            0.0 = padding). None for unmasked records, which have `word_ids` instead: for each token
            the number of its word in the sequence, from 1; 0 for [CLS], [SEP] and padding.
        objective: one of `OBJECTIVES`. Records of `mlm` have no `next_sentence_labels`; records of
            `electra` have only `input_ids`, `input_mask` and `segment_ids`.
        max_sequences_per_pack: K of packed records; None for records of one sequence each.

    `next_sentence_labels` is 0 if the second text follows the first, and 1 if it is random; with
    `mlm_sop` also 1 if the two are swapped. Names and types are from the original's
    `write_instance_to_example_files`; `word_ids` is our own.

    A packed record has the tokens of several sequences one after another. `input_mask` is the
    number of a token's sequence, from 1, and 0 for padding; `position_ids` is its position in the
    sequence; words are numbered across the row. There are `predictions_per_row` masked positions,
    indices into the row, and K slots for sequences: `cls_positions`, where each begins,
    `next_sentence_labels`, and `next_sentence_weights`, 1.0 for a sequence and 0.0 for an unused
    slot.
    """
    schema = dict(records.model_inputs([max_seq_length]))
    if objective == ELECTRA:
        return schema
    position = max_seq_length - 1
    places = {"shape": [1]}
    number = {"shape": [max_predictions_per_seq], "length_flag": "max_predictions_per_seq"}
    if max_sequences_per_pack is not None:
        row = {"shape": [max_seq_length], "length_flag": "max_seq_length"}
        # No flag of training gives K; it is read from the first file.
        alike = {"length_source": "in the first file"}
        flag = "max_sequences_per_pack"
        places = {"shape": [max_sequences_per_pack], "length_flag": flag, **alike}
        size = predictions_per_row(max_predictions_per_seq or 0, max_sequences_per_pack)
        number = {"shape": [size], **alike}
        schema |= {
            "input_mask": records.int64_feature(**row, low=0, high=max_sequences_per_pack),
            "position_ids": records.int64_feature(**row, low=0, high=position),
            PACKED: records.int64_feature(**places, low=0, high=position),
        }
    if max_predictions_per_seq is None:
        schema[UNMASKED] = records.int64_feature(
            [max_seq_length], "max_seq_length", low=0, high=max_seq_length
        )
    else:
        schema |= {
            "masked_lm_positions": records.int64_feature(**number, low=0, high=position),
            "masked_lm_ids": records.int64_feature(**number, low=0),
            "masked_lm_weights": records.float_feature(**number, low=0.0, high=1.0),
        }
    if objective != MLM:
        schema["next_sentence_labels"] = records.int64_feature(**places, low=0, high=1)
        if max_sequences_per_pack is not None:
            schema["next_sentence_weights"] = records.float_feature(**places, low=0.0, high=1.0)
    return schema
