"""--phases: the course of pre-training as one string."""

import dataclasses
import re

from bert_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class PretrainingPhase:
    """One stretch: max_seq_length, num_steps, batch_size, max_predictions_per_seq."""

    max_seq_length: int
    num_steps: int
    batch_size: int
    max_predictions_per_seq: int


def parse_phases(text: str) -> list[PretrainingPhase]:
    """Returns the phases in a value of --phases, `length:steps:batch:predictions,...`.

    Raises:
        UserError: the text is not of that form, or a number is 0.
    """
    phases = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[1-9]\d*(:[1-9]\d*){3}\s*", part):
            raise UserError(
                "--phases is a comma-separated list of length:steps:batch:predictions, each a"
                f" whole number of at least 1, such as 128:900000:256:20,512:100000:256:77; not"
                f" {part!r}"
            )
        phases.append(PretrainingPhase(*map(int, part.split(":"))))
    return phases
