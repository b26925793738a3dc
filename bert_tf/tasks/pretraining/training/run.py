"""Pre-trains and evaluates a model on record files (run_pretraining.py)."""

import dataclasses
import functools
from collections.abc import Callable, Container

import tensorflow as tf
from absl import logging

from bert_tf import optimization, tokenization
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.engine.input_pipeline import Augment, TrainingInput
from bert_tf.errors import UserError
from bert_tf.files import record_checks, records, storage
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.writer import write_config
from bert_tf.runs.flags.setting_fields import MAX_COUNT
from bert_tf.runs.flags.settings import model_options
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.plan import Phase
from bert_tf.runs.training.time_budget import TimeBudget
from bert_tf.runs.training.trainer import Trainer
from bert_tf.tasks.pretraining.records.masking import check_predictions
from bert_tf.tasks.pretraining.records.packed_records import (
    check_packed_predictions,
    mean_sequences,
)
from bert_tf.tasks.pretraining.records.packing import rows_a_step
from bert_tf.tasks.pretraining.schema import PACKED, UNMASKED, pretraining_schema
from bert_tf.tasks.pretraining.training.dynamic_masking import DynamicMasking
from bert_tf.tasks.pretraining.training.model import PretrainingModel, check_objective
from bert_tf.tasks.pretraining.training.phases import RecordBatches
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings
from bert_tf.text.model_vocabulary import check_padding
from bert_tf.text.tokenizers import load_tokenizer


def run_pretraining(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: PretrainingSettings,
) -> dict[str, float | int] | None:
    """Pre-trains a model on `input_file`, evaluates it on `eval_input_file`, or both.

    Writes checkpoints, `bert_config.json`, `eval_results.txt` and TensorBoard's events to
    `output_dir`. If `output_dir` has a checkpoint, training resumes from it.

    Returns:
        The results of the evaluation; None without --do_eval.

    Raises:
        UserError: settings, records, checkpoint and configuration do not fit together. The
            settings, files and lengths are checked before the first step.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """

    def build() -> PretrainingModel:
        return PretrainingModel(config, settings.objective, **model_options(settings, strategy))

    return train_and_evaluate(
        config,
        strategy,
        settings,
        functools.partial(Trainer, build),
        lambda: write_config(settings.output_dir, config),
    )


def train_and_evaluate(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: PretrainingSettings,
    make_trainer: Callable[..., Trainer],
    write_files: Callable[[], None],
) -> dict[str, float | int] | None:
    """Trains and evaluates a model on record files; see `run_pretraining`.

    Args:
        make_trainer: returns the trainer, given the arguments of `Trainer` from the second on;
            called after settings and files are checked, while the run holds the directory.
        write_files: writes the files that belong next to the checkpoints.
    """
    if not settings.do_train and not settings.do_eval:
        raise UserError("At least one of --do_train and --do_eval must be given.")
    check_objective(config, settings.objective)
    replicas = strategy.num_replicas_in_sync
    phases = _training_phases(config, settings, replicas) if settings.do_train else []
    evaluation = None
    if settings.do_eval or settings.evaluate_every_steps:
        evaluation = _evaluation_input(config, settings, replicas)
    with Run(strategy, settings) as run:
        schedule = budget = None
        if settings.do_train:
            schedule = optimization.restarting_schedule(settings.schedules())
        if settings.max_hours:
            num_steps, hours = settings.phases[0].num_steps, settings.max_hours
            budget = TimeBudget(hours, schedule, num_steps, run.used_seconds, strategy)
            schedule = budget.schedule
            phases = [dataclasses.replace(phases[0], num_steps=MAX_COUNT)]  # time ends it
        trainer = make_trainer(run, schedule, budget=budget)
        evaluator = Evaluator(trainer.objective, strategy)
        results: dict[str, float | int] = {}

        def evaluate() -> bool:
            nonlocal results
            step = trainer.global_step
            if run.evaluated_step != step:  # --evaluate_every_steps may include the last step
                logging.info("***** Running evaluation *****")
                results = run.report(evaluator.evaluate(evaluation), step)
                run.write_results(results)
            return True

        if settings.do_train:
            logging.info("***** Running training *****")
            if run.chief:
                write_files()
            trainer.train(phases, evaluate)
        if settings.do_eval:
            evaluate()
        return results if settings.do_eval else None


@dataclasses.dataclass(frozen=True)
class _Records:
    """The record files of a phase.

    files: names of the files.
    schema: the records' schema.
    limits: limits of the ids in the records.
    augment: masks the records; None if they are already masked.
    sequences: the mean number of sequences in a record; None if the records are not packed.
    """

    files: list[str]
    schema: records.Schema
    limits: records.Limits
    augment: Augment | None
    sequences: float | None

    def batch_size(self, num_sequences: int, parts: int, flag: str) -> int:
        """Returns the number of records in a batch; logs it if records are packed.

        Args:
            num_sequences: sequences in a batch.
            parts: number of equal parts that a batch is computed in.
            flag: the flag (no dashes) that sets the number of sequences.
        """
        if self.sequences is None:
            return num_sequences
        rows = rows_a_step(num_sequences, self.sequences, parts)
        logging.info(
            "Packed records: --%s=%d sequences are %d rows of %.4g sequences on average, %.5g in"
            " all",
            *(flag, num_sequences, rows, self.sequences, rows * self.sequences),
        )
        return rows


def _training_phases(
    config: BertConfig, settings: PretrainingSettings, replicas: int
) -> list[Phase]:
    phases = []
    parts = replicas * settings.gradient_accumulation_steps
    for phase in settings.phases:
        found = _open_records(config, settings, settings.input_file, "input_file", phase)
        batch_size = found.batch_size(phase.batch_size, parts, "train_batch_size")
        open_input = functools.partial(
            TrainingInput,
            *(found.files, found.schema, batch_size, found.limits),
            augment=found.augment,
        )
        phases.append(Phase(phase.num_steps, batch_size, open_input, found.sequences or 1.0))
    return phases


def _evaluation_input(
    config: BertConfig, settings: PretrainingSettings, replicas: int
) -> EvaluationInput:
    flag = "eval_input_file" if settings.eval_input_file else "input_file"
    phase = settings.evaluation_batches
    found = _open_records(config, settings, getattr(settings, flag), flag, phase)
    batch_size = found.batch_size(phase.batch_size, replicas, "eval_batch_size")
    return EvaluationInput(
        batch_size, found.files, found.schema, found.limits, phase.num_steps, found.augment
    )


def _open_records(
    config: BertConfig,
    settings: PretrainingSettings,
    pattern: str,
    flag: str,
    phase: RecordBatches,
) -> _Records:
    """Finds and checks the record files of a phase.

    Args:
        pattern: names or globs of the files, with or without `{max_seq_length}`.
        flag: the flag (no dashes) that gave the pattern, for messages.
        phase: has the lengths that the records must have.

    Raises:
        UserError: no file matches; the records' lengths differ from the phase's; the records are
            masked but should not be, or the reverse; or the files are not all packed alike.
    """
    config.check_seq_length(phase.max_seq_length, "max_seq_length or --phases")
    pattern = pattern.replace("{max_seq_length}", str(phase.max_seq_length))
    files = storage.expand_files(pattern, flag)
    logging.info("*** --%s, records of length %d ***", flag, phase.max_seq_length)
    for path in files:
        logging.info("  %s", path)
    lengths = record_checks.feature_lengths(files[0], flag)
    packed_places = lengths.get(PACKED)
    predictions: int | None = phase.max_predictions_per_seq
    masking = None
    if _are_unmasked(lengths, files[0], flag, settings):
        predictions = None
        masking = _dynamic_masking(config, settings, phase, packed_places)
    elif packed_places is not None:
        check_packed_predictions(lengths, predictions, files[0], flag)
    schema = pretraining_schema(
        phase.max_seq_length, predictions, settings.objective, packed_places
    )
    record_checks.check_files(files, schema, flag)
    vocabulary = (config.vocab_size, "vocab_size of --bert_config_file")
    limits = {
        "input_ids": vocabulary,
        "masked_lm_ids": vocabulary,
        "segment_ids": (config.type_vocab_size, "type_vocab_size of --bert_config_file"),
    }
    limits = {name: limit for name, limit in limits.items() if name in schema}
    sequences = None if packed_places is None else mean_sequences(files, schema)
    return _Records(files, schema, limits, masking, sequences)


def _are_unmasked(
    names: Container[str], file: str, flag: str, settings: PretrainingSettings
) -> bool:
    """Returns whether records are unmasked. --eval_input_file may name either kind.

    Args:
        names: names of the features of the file's records.
        file: the file, for messages.
        flag: the flag (no dashes) that named the file.

    Raises:
        UserError: the records do not fit --dynamic_masking.
    """
    unmasked = UNMASKED in names and "masked_lm_positions" not in names
    if unmasked and not settings.dynamic_masking:
        raise UserError(
            f"--{flag}: the records of {file} are unmasked (create_pretraining_data.py --nomask),"
            " so they need --dynamic_masking"
        )
    if not unmasked and settings.dynamic_masking and flag == "input_file":
        raise UserError(
            f"--{flag}: --dynamic_masking needs unmasked records; the records of {file} are masked."
            " Make them with create_pretraining_data.py --nomask, or leave out --dynamic_masking"
        )
    return unmasked


def _dynamic_masking(
    config: BertConfig,
    settings: PretrainingSettings,
    phase: RecordBatches,
    packed_places: int | None,
) -> DynamicMasking:
    tokenizer = load_tokenizer(settings.vocab_file, do_lower_case=False, needs_mask=True)
    vocab = tokenizer.vocab
    tokenization.check_vocab_size(vocab, config.vocab_size, settings.vocab_file)
    place = f"--vocab_file={settings.vocab_file}"
    check_padding(vocab, config.pad_token_id, place, "--bert_config_file")
    check_predictions(phase.max_seq_length, phase.max_predictions_per_seq, settings.masked_lm_prob)
    return DynamicMasking(
        vocab[tokenizer.mask_token],
        max(vocab.values()) + 1,
        phase.max_predictions_per_seq,
        settings.masked_lm_prob,
        settings.do_whole_word_mask,
        packed_places or 1,
        tuple(sorted(tokenizer.never_drawn)),
    )
