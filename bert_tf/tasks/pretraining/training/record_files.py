"""Looks at a run's record files before it starts: their size, and whether they teach anything."""

import dataclasses
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.input_pipeline import estimate_records, trained_on
from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from bert_tf.files.record_checks import Ends
from bert_tf.tasks.pretraining.schema import ELECTRA, MASKED, UNMASKED

_SAMPLE = 1000  # records


@dataclasses.dataclass(frozen=True)
class OpenedRecords:
    """Record files that fit the model and the flags.

    source: what `TrainingInput` and `EvaluationInput` have in common, by name.
    sequences: the mean number of sequences in a record, 1 if records are not packed.
    ends: of the files.
    """

    source: dict[str, Any]
    sequences: float
    ends: Sequence[Ends]

    def num_examples(self) -> tuple[float, bool]:
        """Returns the number of examples, and whether it is an estimate."""
        count, exact = estimate_records(self.source["files"], self.ends)
        return count * self.sequences, not exact or self.sequences != 1.0


def check_kind(names: Container[str], file: str, flag: str, objective: str) -> None:
    """Raises UserError if records with features of these names are BERT's but should be ELECTRA's.

    Also for the reverse. ELECTRA's have neither masks nor numbers of words.
    """
    if "input_ids" not in names:
        return  # records of another task: their features are compared next
    is_electra = MASKED not in names and UNMASKED not in names
    if is_electra and objective != ELECTRA:
        raise UserError(
            f"--{flag}: the records of {file} are ELECTRA's, which have no masks, and"
            f" --objective={objective} needs BERT's. Make them with create_pretraining_data.py"
            f" --objective={objective}, or train with --objective={ELECTRA}"
        )
    if not is_electra and objective == ELECTRA:
        raise UserError(
            f"--{flag}: the records of {file} are BERT's, and --objective={ELECTRA} needs"
            f" ELECTRA's, without masks. Make them with create_pretraining_data.py"
            f" --objective={ELECTRA}, or train with another --objective"
        )


def check_content(files: Sequence[str], schema: records.Schema, flag: str) -> None:
    """Checks that the first records of the files have tokens, and weights of predictions.

    Raises:
        UserError: there is nothing to learn from; a record does not fit the schema.
        OSError: a file cannot be read.
    """
    names = [name for name in ("input_mask", "masked_lm_weights") if name in schema]
    part = {name: schema[name] for name in names}
    sample = tf.data.TFRecordDataset(list(files)).take(_SAMPLE).batch(_SAMPLE)
    with record_checks.explained(files, part):
        found = records.parse(next(iter(sample)), part)
    for name in names:
        if not np.any(found[name]):
            what = "tokens" if name == "input_mask" else "masked tokens to predict"
            raise UserError(
                f"--{flag}: the records of {files[0]} must have {what}; {name} is 0 everywhere in"
                f" the first {len(found[name])} records. Make the records again"
            )


def warn_of_repeats(opened: OpenedRecords, max_eval_steps: int) -> None:
    """Warns if an evaluation of so many steps reads the same examples several times."""
    num_examples, _ = opened.num_examples()
    read = max_eval_steps * opened.source["batch_size"] * opened.sequences
    if read > 1.01 * num_examples:  # the number may be an estimate
        logging.warning(
            "The evaluation reads %d examples, although the files have only %s%d: each is read"
            " about %.3g times. --max_eval_steps=0 reads each once",
            *(read, "about " * (opened.sequences != 1.0), num_examples, read / num_examples),
        )


def warn_of_training_records(
    evaluation: OpenedRecords, training: Iterable[OpenedRecords], prefix: str | None
) -> None:
    """Warns if an evaluation reads files that the model is or was trained on.

    Files are the same if their lengths, beginnings and ends are, whatever their names.

    Args:
        prefix: the checkpoint that the run starts from, if there is one.
    """
    seen = {end[:2] for opened in training for end in opened.ends}
    if prefix:
        seen |= trained_on(prefix)
    files = evaluation.source["files"]
    both = [path for path, end in zip(files, evaluation.ends, strict=True) if end[:2] in seen]
    if both:
        logging.warning(
            "The model is evaluated on records that it is trained on (%s%s), so the results do not"
            " tell how well it does on other text. Name held-out records with --eval_input_file",
            *(both[0], ", ..." * (len(both) > 1)),
        )
