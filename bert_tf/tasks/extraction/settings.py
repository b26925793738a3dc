"""Settings of extract_features. Each field is the flag of that name."""

import dataclasses

from bert_tf.runs.flags.setting_fields import Group, inherit
from bert_tf.runs.flags.settings import (
    MAX_BATCH,
    ComputationSettings,
    FineTuningSettings,
    TextSettings,
)
from bert_tf.tasks.long_text import LongTextSettings

FORMATS = ("json", "npz", "tfrecord")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionSettings(LongTextSettings, ComputationSettings, TextSettings):
    """Settings of extract_features."""

    input_file: str = Group.DATA.setting(
        help="UTF-8 text. Each line is a text, or two texts separated by ' ||| '.",
    )
    output_file: str = Group.OUTPUT.setting(
        help="File for the results. An existing file is replaced once the new one is complete.",
        not_empty=True,
    )
    init_checkpoint: str = Group.MODEL.setting(
        help="Checkpoint with the weights: the prefix of its files, or a folder with a file"
        " `checkpoint`.",
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
    # [CLS], a token and [SEP].
    max_seq_length: int = inherit(
        FineTuningSettings,
        "max_seq_length",
        at_least=3,
        help="Maximum length of a sequence in word pieces, with [CLS] and [SEP]. Longer sequences"
        " are truncated.",
    )
    long_text: str = inherit(
        LongTextSettings,
        "long_text",
        help="What becomes of a line that is longer than --max_seq_length. cut: its end is left"
        " out. mean, max: it is split into overlapping windows, and its mean_vector and"
        " pooled_vector are the mean or the maximum of theirs, element by element.",
    )
    length_buckets: str = inherit(
        FineTuningSettings,
        "length_buckets",
        help="Lengths to pad batches to instead of --max_seq_length, such as 32,64,128. auto: up to"
        " eight evenly spaced lengths. none: --max_seq_length only. Lines are sorted by length;"
        " results and their order stay the same.",
    )
    batch_size: int = Group.COMPUTATION.setting(
        32, help="Lines to compute at a time, over all replicas.", at_least=1, at_most=MAX_BATCH
    )
