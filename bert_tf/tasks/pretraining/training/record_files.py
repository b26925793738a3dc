"""A run's record files: what they contain, and whether they fit the model."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.distribution import InputShard
from bert_tf.engine.input_pipeline import Augment, TrainingInput, estimate_records, trained_on
from bert_tf.errors import UserError
from bert_tf.files import record_checks
from bert_tf.files.record_checks import Ends
from bert_tf.files.records import Limits, Schema, limited, parse
from bert_tf.runs.training.plan import Phase, Work
from bert_tf.tasks.pretraining.records.manifest import MadeFor, record_files
from bert_tf.tasks.pretraining.records.packing import rows_a_step
from bert_tf.tasks.pretraining.schema import (
    ELECTRA,
    MASKED,
    PACKED,
    UNMASKED,
    predictions_per_row,
    pretraining_schema,
)
from bert_tf.tasks.pretraining.training.settings import RecordBatches

_SAMPLE = 1000  # records to check before a run
# Records to estimate the mean number of sequences from, which takes a second. For Wikipedia, whose
# rows mostly have one or two sequences and sometimes twelve, the error is below 1%.
_PACKED_SAMPLE = 10_000


@dataclasses.dataclass(frozen=True)
class Records:
    """Record files, and the features of their first record."""

    flag: str  # the flag that names the files, without dashes
    files: list[str]
    lengths: Mapping[str, int]  # the length of each feature

    @classmethod
    def open(cls, pattern: str, flag: str, length: int) -> Self:
        """Finds the files, with `length` for {max_seq_length}, and reads their first record."""
        files = record_files(pattern.replace("{max_seq_length}", str(length)), flag)
        logging.info("*** --%s, records of length %d ***", flag, length)
        for path in files:
            logging.info("  %s", path)
        return cls(flag, files, record_checks.feature_lengths(files[0], flag))

    @property
    def place(self) -> str:
        """The beginning of messages about the records."""
        return f"--{self.flag}: the records of {self.files[0]}"

    @property
    def are_unmasked(self) -> bool:
        """Whether training draws the masks (create_pretraining_data.py --nomask)."""
        return UNMASKED in self.lengths and MASKED not in self.lengths

    @property
    def packed_places(self) -> int | None:
        """Places for sequences in a record; None if records are not packed."""
        return self.lengths.get(PACKED)

    def check_kind(self, objective: str, dynamic_masking: bool) -> None:
        """Checks that the records fit the objective, and are masked unless training masks them.

        ELECTRA's records have neither masks nor word numbers. --eval_input_file may name masked
        records even with --dynamic_masking.
        """
        if "input_ids" not in self.lengths:
            return  # records of a different task: the check of the features reports them
        is_electra = MASKED not in self.lengths and UNMASKED not in self.lengths
        if is_electra != (objective == ELECTRA):
            kinds = "BERT's", "ELECTRA's, without masks"
            raise UserError(
                f"{self.place} are {kinds[is_electra]}, and --objective={objective} needs"
                f" {kinds[not is_electra]}. Make them with create_pretraining_data.py"
                f" --objective={objective}, or train with a different --objective"
            )
        if is_electra:
            return
        if self.are_unmasked and not dynamic_masking:
            raise UserError(
                f"{self.place} are unmasked (create_pretraining_data.py --nomask),"
                " so they need --dynamic_masking"
            )
        if dynamic_masking and not self.are_unmasked and self.flag == "input_file":
            raise UserError(
                f"--{self.flag}: --dynamic_masking needs unmasked records; the records of"
                f" {self.files[0]} are masked. Make them with create_pretraining_data.py --nomask,"
                " or leave out --dynamic_masking"
            )

    def schema(self, objective: str, batches: RecordBatches) -> Schema:
        """Returns the schema of records of these lengths, packed and masked as the files are."""
        places, predictions = self.packed_places, batches.max_predictions_per_seq
        if self.are_unmasked:
            predictions = None
        elif places is not None and objective != ELECTRA:
            found = self.lengths[MASKED]
            made_with = found - predictions_per_row(0, places)
            if made_with != predictions:
                raise UserError(
                    f"--{self.flag}: {self.files[0]} was made with different settings: its packed"
                    f" records have {found} masked positions. Give"
                    f" --max_predictions_per_seq={made_with}, which fits, instead of {predictions}"
                )
        return pretraining_schema(batches.max_seq_length, predictions, objective, places)

    def sample(self, schema: Schema) -> dict[str, np.ndarray]:
        """Reads masks, weights and words of the first records; none may be 0 everywhere."""
        features = {"input_mask": "tokens", "masked_lm_weights": "masked tokens to predict"}
        features[UNMASKED] = "words to mask"
        part = {name: schema[name] for name in features if name in schema}
        count = _SAMPLE if self.packed_places is None else _PACKED_SAMPLE
        dataset = tf.data.TFRecordDataset(self.files).take(count).batch(count)
        with record_checks.explained(self.files, part):
            found = {name: x.numpy() for name, x in parse(next(iter(dataset)), part).items()}
        for name, values in found.items():
            if not np.any(values):
                raise UserError(
                    f"{self.place} must have {features[name]}; {name} is 0 everywhere in"
                    f" the first {len(values)} records. Make the records again"
                )
        return found


@dataclasses.dataclass(frozen=True)
class FittingRecords:
    """Records that fit the model and the flags."""

    source: dict[str, Any]  # the arguments that `TrainingInput` and `EvaluationInput` share
    sequences: float  # mean number of sequences in a record; 1 if records are not packed
    ends: Sequence[Ends]  # of the files
    batches: RecordBatches  # a row of packed records counts as a sequence

    def phase(self, flops: Callable[[RecordBatches], int]) -> Phase:
        """Returns the training phase of these records; `flops` counts a step's operations."""
        step, known = self.batches, flops(self.batches)
        work = Work(step.batch_size, step.max_seq_length, lambda length: known)
        count, exact = estimate_records(self.source["files"], self.ends)
        counted = count * self.sequences, not exact or self.sequences != 1.0
        return Phase(*(step.num_steps, step.batch_size, self._open, self.sequences), *counted, work)

    def _open(self, seed: int, shard: InputShard) -> TrainingInput:
        return TrainingInput(**self.source, seed=seed, shard=shard)

    def warn_of_training(self, training: Iterable[Self], prefix: str | None) -> None:
        """Warns if an evaluation reads files that the model is or was trained on.

        Files with equal lengths, beginnings and ends count as the same, whatever their names.
        """
        seen = {end[:2] for records in training for end in records.ends}
        if prefix:
            seen |= trained_on(prefix)
        files = zip(self.source["files"], self.ends, strict=True)
        both = [path for path, end in files if end[:2] in seen]
        if both:
            logging.warning(
                "The model is evaluated on records that it is trained on (%s%s), so the results do"
                " not show how well it does on other text. Name held-out records with"
                " --eval_input_file",
                *(both[0], ", ..." * (len(both) > 1)),
            )


def fit(
    records: Records,
    batches: RecordBatches,
    made_for: MadeFor,
    limits: Limits,
    augment: Augment | None,
    parts: int,
    batch_flag: str,
) -> FittingRecords:
    """Checks that records fit the model and the flags; call `Records.check_kind` first.

    `limits`: feature -> (the model's limit of its values, name of the limit). `parts`: number of
    equal parts that a batch is computed in.
    """
    schema = records.schema(made_for.objective, batches)
    ends = record_checks.check_files(records.files, schema, records.flag)
    sample = records.sample(schema)
    batch_size, sequences = batches.batch_size, 1.0
    if records.packed_places is not None:
        sequences = float(np.mean(sample["input_mask"].max(axis=1)))
        batch_size = rows_a_step(batches.batch_size, sequences, parts)
        logging.info(
            "Packed records: --%s=%d sequences are %d rows of %.4g sequences on average, %.5g in"
            " all",
            *(batch_flag, batches.batch_size, batch_size, sequences, batch_size * sequences),
        )
    if getattr(augment, "whole_words", False):
        words = sample[UNMASKED]
        if not np.any((words[:, 1:] == words[:, :-1]) & (words[:, 1:] > 0)):
            logging.warning(
                "--do_whole_word_mask changes nothing in the first %d records of %s: each word is"
                " one token, like each character of Chinese text",
                *(len(words), records.files[0]),
            )
    made_for.check(records.files, records.flag)
    schema = limited(schema, {name: x for name, x in limits.items() if name in schema})
    source = {"files": records.files, "schema": schema, "batch_size": batch_size}
    source["augment"] = augment
    batches = dataclasses.replace(batches, batch_size=batch_size)
    return FittingRecords(source, sequences, ends, batches)
