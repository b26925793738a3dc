"""The features of a classification record."""

from bert_tf.files import records


def classification_schema(
    max_seq_length: int, regression: bool, weighted: bool = False, num_labels: int | None = None
) -> records.Schema:
    """Returns the schema of classification records.

    `label_ids` is the index of a class, or a float32 value for regression. If a text can have
    several of `num_labels` labels, which the original does not know, it is an int64 vector of that
    length, 1 for each label that the text has. `is_real_example` is 1.
    It is 0 for padding at the end of files that the original wrote for TPUs. Names and types:
    `file_based_convert_examples_to_features` of the original. If records are `weighted`, they also
    have `example_weight`, float32, the weight in losses and metrics.
    """
    label_ids = records.int64_feature([], low=0)
    if regression:
        label_ids = records.target_feature()
    elif num_labels is not None:
        label_ids = records.int64_feature([num_labels], low=0, high=1)
    weights = {"example_weight": records.float_feature([], low=0.0)} if weighted else {}
    return {
        **records.model_inputs([max_seq_length]),
        "label_ids": label_ids,
        "is_real_example": records.int64_feature([], low=0, high=1),
        **weights,
    }
