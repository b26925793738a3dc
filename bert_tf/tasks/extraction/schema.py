"""Outputs of feature extraction for a line of text, the model's input, and their flags."""

from bert_tf.errors import UserError, listed
from bert_tf.files import records

# Shapes for a line of t tokens, [CLS] and [SEP] included; L extracted layers, hidden size H, N
# attention heads. `pooled_vector` is the pooler's output, so it has no axis of layers.
SHAPES = {
    "token_vectors": "[t, L, H]",
    "mean_vector": "[L, H]",
    "pooled_vector": "[H]",
    "attention_probs": "[t, t, L, N]",
}
OUTPUTS = tuple(SHAPES)
# Number of leading axes that are as long as the sequence.
SEQUENCE_AXES = {"token_vectors": 1, "attention_probs": 2}


def features_schema(max_seq_length: int) -> records.Schema:
    """Returns the schema of the model's input, which stays in memory and is not written.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = second text).
    """
    return records.model_inputs([max_seq_length])


def parse_layers(layers: str, num_hidden_layers: int) -> list[int]:
    """Returns the layer indices in --layers, unchanged: 0 is the first layer, -1 the last.

    Args:
        layers: indices separated by commas.
        num_hidden_layers: number of encoder layers of the model.

    Raises:
        UserError: an index is not a number, or the model does not have that layer.
    """
    try:
        numbers = [int(number) for number in layers.split(",")]
    except ValueError as error:
        raise UserError(
            f"--layers={layers}: must be numbers separated by commas, such as -1,-2,-3,-4"
        ) from error
    wrong = [n for n in numbers if not -num_hidden_layers <= n < num_hidden_layers]
    if wrong:
        raise UserError(
            f"--layers={layers}: numbers must be from {-num_hidden_layers} to"
            f" {num_hidden_layers - 1}, because the model has {num_hidden_layers} layers (0 is the"
            f" first, -1 the last); got {listed(wrong)}"
        )
    return numbers


def parse_outputs(outputs: str) -> list[str]:
    """Returns the names in --outputs, in the order of `OUTPUTS`.

    Args:
        outputs: names separated by commas.

    Raises:
        UserError: a name is not in `OUTPUTS`.
    """
    names = outputs.split(",")
    if not set(names).issubset(OUTPUTS):
        raise UserError(
            f"--outputs={outputs}: must be one or more of {', '.join(OUTPUTS)}, separated by commas"
        )
    return [name for name in OUTPUTS if name in names]
