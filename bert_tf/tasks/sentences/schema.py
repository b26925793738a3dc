"""The features of a record of sentences, and the names of the losses."""

from bert_tf.files import records

COSINE, IN_BATCH_NEGATIVES, TRIPLET = LOSSES = ("cosine", "in_batch_negatives", "triplet")
TEACHER = "teacher"  # the loss of a student, which needs a teacher


def sentences_schema(max_seq_length: int, num_texts: int = 2) -> records.Schema:
    """Returns the schema of records of 1 to 3 texts, each a separate sequence of segment 0.

    `label_ids` is the score of the pair, float32; 0 if unknown.
    """
    return {
        **records.model_inputs([num_texts, max_seq_length]),
        "label_ids": records.target_feature(),
    }
