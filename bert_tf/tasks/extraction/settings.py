"""Settings of extract_features (each field is the flag of that name), and its outputs' shapes."""

import dataclasses

from bert_tf.errors import UserError, listed
from bert_tf.runs.flags.setting_fields import Group, inherit
from bert_tf.runs.flags.settings import (
    MAX_BATCH,
    ComputationSettings,
    FineTuningOptions,
    TextSettings,
)
from bert_tf.tasks.long_text import LongTextSettings

# Shapes for a line of t tokens, [CLS] and [SEP] included; L extracted layers, hidden size H, N
# attention heads. `pooled_vector` is the pooler's output, so it has no axis of layers.
SHAPES = {
    "token_vectors": "[t, L, H]",
    "mean_vector": "[L, H]",
    "pooled_vector": "[H]",
    "attention_probs": "[t, t, L, N]",
}
OUTPUTS = tuple(SHAPES)
FORMATS = ("json", "npz", "tfrecord")
# Number of leading axes that are as long as the sequence.
SEQUENCE_AXES = {"token_vectors": 1, "attention_probs": 2}


def parse_layers(layers: str, num_hidden_layers: int) -> list[int]:
    """Parses --layers. The indices stay as given: 0 is the first layer, -1 the last."""
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
    """Parses --outputs; returns the names in the order of `OUTPUTS`."""
    names = outputs.split(",")
    if not set(names).issubset(OUTPUTS):
        raise UserError(
            f"--outputs={outputs}: must be one or more of {', '.join(OUTPUTS)}, separated by commas"
        )
    return [name for name in OUTPUTS if name in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionSettings(LongTextSettings, ComputationSettings, TextSettings):
    input_file: str = Group.DATA.setting(
        help="UTF-8 text. Each line is a text, or two texts separated by ' ||| '."
    )
    output_file: str = Group.OUTPUT.setting(
        help="File for the results. An existing file is replaced once the new one is complete.",
        not_empty=True,
    )
    init_checkpoint: str = Group.MODEL.setting(
        help="Model: a folder (also Hugging Face's), or a checkpoint's prefix."
    )
    layers: str = Group.OUTPUT.setting(
        "-1,-2,-3,-4",
        help="Encoder layers whose vectors and attention are written; 0 is the first, -1 the last.",
    )
    outputs: str = Group.OUTPUT.setting(
        "token_vectors",
        help="What to write, separated by commas: token_vectors (the original); mean_vector, the"
        " mean of a line's token vectors; pooled_vector, the pooler's output or ELECTRA's [CLS];"
        " attention_probs. All but pooled_vector are written for each of --layers.",
    )
    output_format: str = Group.OUTPUT.setting(
        "json",
        help="JSON lines with six decimals (the original), a NumPy archive, or tf.Examples.",
        choices=FORMATS,
    )
    # `at_least` is [CLS], a token and [SEP].
    max_seq_length: int = inherit(
        FineTuningOptions,
        "max_seq_length",
        at_least=3,
        help="Maximum length of a sequence in word pieces, with [CLS] and [SEP]. Longer sequences"
        " are truncated.",
    )
    long_text: str = inherit(
        LongTextSettings,
        "long_text",
        help="What to do with a line longer than --max_seq_length. cut: drop its end. mean, max:"
        " split it into overlapping windows, and take the mean or the maximum of their mean_vector"
        " and pooled_vector, element by element.",
    )
    length_buckets: str = inherit(
        FineTuningOptions,
        "length_buckets",
        help="Lengths to pad batches to instead of --max_seq_length, such as 32,64,128. auto: up to"
        " eight evenly spaced lengths. none: --max_seq_length only. Lines are sorted by length;"
        " results and their order stay the same.",
    )
    batch_size: int = Group.COMPUTATION.setting(
        32, help="Lines to compute at a time, over all replicas.", at_least=1, at_most=MAX_BATCH
    )
