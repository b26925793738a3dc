"""The features of a tagging record."""

from bert_tf.files import records


def tagging_schema(max_seq_length: int) -> records.Schema:
    """Returns the schema of tagging records.

    Args:
        max_seq_length: length of every feature: `input_ids`, `input_mask` (1 = token, 0 =
            padding), `segment_ids` (all 0), `label_ids` (indices in the list of labels) and
            `label_mask` (1 = first piece of a word to tag; 0 = another piece, a word given as
            context only, [CLS], [SEP] or padding).
    """
    inputs = records.model_inputs([max_seq_length])
    return {**inputs, "label_ids": inputs["input_ids"], "label_mask": inputs["input_mask"]}
