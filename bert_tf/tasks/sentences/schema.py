"""The features of a record of sentences, and the names of the losses."""

from bert_tf.files import records

COSINE, IN_BATCH_NEGATIVES = LOSSES = ("cosine", "in_batch_negatives")


def sentences_schema(max_seq_length: int, num_texts: int = 2) -> records.Schema:
    """Returns the schema of records of pairs of texts, or of single texts.

    Args:
        max_seq_length: last axis of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (all 0), each [num_texts, max_seq_length]: each text is its own sequence.
        num_texts: 2 for pairs, 1 for single texts.

    `label_ids` is the score of the pair, float32; 0 if unknown.
    """
    return {
        **records.model_inputs([num_texts, max_seq_length]),
        "label_ids": records.float_feature([]),
    }
