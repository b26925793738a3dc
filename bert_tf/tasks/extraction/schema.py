"""Outputs of feature extraction for a line of text, and their flags."""

from bert_tf.errors import UserError, listed

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


def parse_layers(layers: str, num_hidden_layers: int) -> list[int]:
    """Returns the layer indices in --layers, unchanged: 0 is the first layer, -1 the last."""
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
    """Returns the names in --outputs, in the order of `OUTPUTS`."""
    names = outputs.split(",")
    if not set(names).issubset(OUTPUTS):
        raise UserError(
            f"--outputs={outputs}: must be one or more of {', '.join(OUTPUTS)}, separated by commas"
        )
    return [name for name in OUTPUTS if name in names]
