"""The phases of pre-training, and their description in flags."""

import dataclasses
import re

from bert_tf.errors import UserError, quoted


@dataclasses.dataclass(frozen=True)
class RecordBatches:
    """Records of the same lengths, read in batches: a phase of training, or an evaluation."""

    max_seq_length: int
    num_steps: int
    batch_size: int
    max_predictions_per_seq: int


def parse_phases(text: str) -> list[RecordBatches]:
    """Returns the phases that --phases describes as `length:steps:batch:predictions,...`.

    Raises:
        UserError: the text has a different form, or a number is 0.
    """
    phases = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[1-9]\d{0,99}(:[1-9]\d{0,99}){3}\s*", part):
            raise UserError(
                "--phases must be a comma-separated list of length:steps:batch:predictions, each a"
                " whole number of at least 1, such as 128:900000:256:20,512:100000:256:77; got"
                f" {quoted(part)}"
            )
        phases.append(RecordBatches(*map(int, part.split(":"))))
    return phases
