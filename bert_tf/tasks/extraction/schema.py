"""What is computed for a line of text, and what the model is given for it."""

from bert_tf.errors import UserError
from bert_tf.files import records

# For a line of t tokens ([CLS] and [SEP] among them), the chosen layers L, hidden size H, attention
# heads N. `pooled_vector` is the pooler's, and has no layer.
SHAPES = {
    "token_vectors": "[t, L, H]",
    "mean_vector": "[L, H]",
    "pooled_vector": "[H]",
    "attention_probs": "[t, t, L, N]",
}
OUTPUTS = tuple(SHAPES)
# The axes that are as long as the sequence, at their front.
SEQUENCE_AXES = {"token_vectors": 1, "attention_probs": 2}


def features_schema(max_seq_length: int) -> records.Schema:
    """Returns the schema of the model's input, which is made in memory and never written.

    Args:
        max_seq_length: length of `input_ids`, `input_mask` (1 = token, 0 = padding) and
            `segment_ids` (1 = second text).
    """
    sequence = records.int64_feature([max_seq_length], "max_seq_length")
    return {"input_ids": sequence, "input_mask": sequence, "segment_ids": sequence}


def parse_layers(layers: str, num_hidden_layers: int) -> list[int]:
    """Returns the numbers in --layers as they are given: 0 is the first layer, -1 the last.

    Raises:
        UserError: one is not a number, or the model has no such layer.
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
            f"--layers={layers}: the model has {num_hidden_layers} layers, of which 0 is the first"
            f" and -1 the last, so numbers go from {-num_hidden_layers} to {num_hidden_layers - 1};"
            f" not {', '.join(map(str, wrong))}"
        )
    return numbers


def parse_outputs(outputs: str) -> list[str]:
    """Returns the names in --outputs, in the order of `OUTPUTS`.

    Raises:
        UserError: a name is none of `OUTPUTS`.
    """
    names = outputs.split(",")
    if not set(names).issubset(OUTPUTS):
        raise UserError(
            f"--outputs={outputs}: must be one or more of {', '.join(OUTPUTS)}, separated by commas"
        )
    return [name for name in OUTPUTS if name in names]
