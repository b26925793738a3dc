"""Pre-trains and evaluates a model on record files (run_pretraining.py)."""

import dataclasses
import functools
import os
from collections.abc import Callable, Container

import tensorflow as tf
from absl import logging

from bert_tf import optimization, tokenization
from bert_tf.engine.distribution import InputShard
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.engine.input_pipeline import Augment, TrainingInput
from bert_tf.errors import UserError, listed
from bert_tf.files import record_checks
from bert_tf.files.checkpoints import CheckpointReader
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.writer import write_config, write_model_files
from bert_tf.runs.flags.setting_fields import MAX_COUNT
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.fine_tuning_checks import check_vocabulary
from bert_tf.runs.training.options import model_options
from bert_tf.runs.training.plan import Phase
from bert_tf.runs.training.time_budget import TimeBudget
from bert_tf.runs.training.trainer import Trainer
from bert_tf.tasks.pretraining.records.manifest import check_manifest, record_files
from bert_tf.tasks.pretraining.records.masking import check_predictions
from bert_tf.tasks.pretraining.records.packed_records import (
    check_packed_predictions,
    mean_sequences,
)
from bert_tf.tasks.pretraining.records.packing import rows_a_step
from bert_tf.tasks.pretraining.schema import ELECTRA, PACKED, UNMASKED, pretraining_schema
from bert_tf.tasks.pretraining.training.dynamic_masking import DynamicMasking
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.pretraining.training.electra_masking import ElectraMasking
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.model import check_objective
from bert_tf.tasks.pretraining.training.phases import RecordBatches
from bert_tf.tasks.pretraining.training.record_files import (
    OpenedRecords,
    check_content,
    check_kind,
    warn_of_repeats,
    warn_of_training_records,
)
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings
from bert_tf.tasks.task_model import TaskModel
from bert_tf.text.casing import find_casing
from bert_tf.text.model_vocabulary import check_padding
from bert_tf.text.tokenizers import load_tokenizer, read_vocabulary


def run_pretraining(
    config: BertConfig, strategy: tf.distribute.Strategy, settings: PretrainingSettings
) -> dict[str, float | int] | None:
    """Pre-trains a model on `input_file`, evaluates it on `eval_input_file`, or both.

    Writes checkpoints, `bert_config.json`, a copy of `vocab_file`, `eval_results.txt` and
    TensorBoard's events to `output_dir`. If `output_dir` has a checkpoint, training resumes from
    it. Returns the results of the evaluation; None without --do_eval.

    Raises:
        UserError: settings, records, checkpoint and configuration do not fit together. The
            settings, files and lengths are checked before the first step.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """

    def build() -> TaskModel:
        electra = settings.model_arguments if isinstance(settings, ElectraSettings) else {}
        options = model_options(settings, strategy)
        return pretraining_model(config, settings.objective, electra, **options)

    def write_files() -> None:
        if not settings.vocab_file:
            return write_config(settings.output_dir, config)
        vocab = _tokenizer(config, settings).vocab
        casing = find_casing(os.path.dirname(settings.vocab_file), settings.vocab_file, vocab)
        content = read_vocabulary(settings.vocab_file)
        write_model_files(settings.output_dir, config, content, casing)

    def initialize(model: TaskModel) -> None:
        if settings.init_checkpoint:
            _warn_of_missing_generator(model, settings.init_checkpoint)

    if settings.vocab_file:
        vocab, start = _tokenizer(config, settings).vocab, settings.init_checkpoint
        check_vocabulary(vocab, settings.vocab_file, start, settings.output_dir)
    make_trainer = functools.partial(Trainer, build, initialize=initialize)
    return train_and_evaluate(config, strategy, settings, make_trainer, write_files)


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
    parts = replicas * settings.gradient_accumulation_steps
    training, evaluation = [], None
    if settings.do_train:
        flags = ("input_file", "train_batch_size")
        training = [_open_records(config, settings, flags, x, parts) for x in settings.phases]
    phases = list(map(_training_phase, settings.phases, training))
    if settings.do_eval or settings.evaluate_every_steps:
        opened, evaluation = _evaluation_input(config, settings, replicas)
    with Run(strategy, settings) as run:
        if evaluation:
            warn_of_training_records(opened, training, run.checkpoints.latest())
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


def _training_phase(batches: RecordBatches, opened: OpenedRecords) -> Phase:
    def open_input(seed: int, shard: InputShard) -> TrainingInput:
        return TrainingInput(**opened.source, seed=seed, shard=shard)

    num_examples, estimated = opened.num_examples()
    return Phase(
        *(batches.num_steps, opened.source["batch_size"], open_input, opened.sequences),
        *(num_examples, estimated),
    )


def _evaluation_input(
    config: BertConfig, settings: PretrainingSettings, replicas: int
) -> tuple[OpenedRecords, EvaluationInput]:
    batches = settings.evaluation_batches
    flags = ("eval_input_file" if settings.eval_input_file else "input_file", "eval_batch_size")
    opened = _open_records(config, settings, flags, batches, replicas)
    warn_of_repeats(opened, batches.num_steps)
    return opened, EvaluationInput(**opened.source, max_steps=batches.num_steps)


def _open_records(
    config: BertConfig,
    settings: PretrainingSettings,
    flags: tuple[str, str],
    batches: RecordBatches,
    parts: int,
) -> OpenedRecords:
    """Finds and checks record files.

    Args:
        flags: the flags (no dashes) of the files and of the batch size.
        parts: number of equal parts that a batch is computed in.

    Raises:
        UserError: no file matches; the records' lengths differ from those in `batches`; the records
            are masked but should not be, or the reverse; the files are not all packed alike; or
            the records have no tokens or predictions.
    """
    flag, batch_flag = flags
    length, batch_size = batches.max_seq_length, batches.batch_size
    config.check_seq_length(length, "max_seq_length or --phases")
    pattern = getattr(settings, flag).replace("{max_seq_length}", str(length))
    files = record_files(pattern, flag)
    logging.info("*** --%s, records of length %d ***", flag, length)
    for path in files:
        logging.info("  %s", path)
    lengths = record_checks.feature_lengths(files[0], flag)
    packed_places = lengths.get(PACKED)
    predictions: int | None = batches.max_predictions_per_seq
    masking: Augment | None = None
    check_kind(lengths, files[0], flag, settings.objective)
    if settings.objective == ELECTRA:
        masking = _electra_masking(config, settings, batches)
    elif _are_unmasked(lengths, files[0], flag, settings):
        predictions = None
        masking = _dynamic_masking(config, settings, batches, packed_places)
    elif packed_places is not None:
        check_packed_predictions(lengths, predictions, files[0], flag)
    schema = pretraining_schema(length, predictions, settings.objective, packed_places)
    ends = record_checks.check_files(files, schema, flag)
    check_content(files, schema, flag)
    model = (settings.vocab_file, settings.init_checkpoint, settings.output_dir)
    check_manifest(files, flag, settings.objective, *model)
    vocabulary = (config.vocab_size, "vocab_size of --bert_config_file")
    limits = {
        "input_ids": vocabulary,
        "masked_lm_ids": vocabulary,
        "segment_ids": (config.type_vocab_size, "type_vocab_size of --bert_config_file"),
    }
    limits = {name: limit for name, limit in limits.items() if name in schema}
    sequences = 1.0
    if packed_places is not None:
        sequences = mean_sequences(files, schema)
        batch_size = rows_a_step(batches.batch_size, sequences, parts)
        logging.info(
            "Packed records: --%s=%d sequences are %d rows of %.4g sequences on average, %.5g in"
            " all",
            *(batch_flag, batches.batch_size, batch_size, sequences, batch_size * sequences),
        )
    source = {"files": files, "schema": schema, "batch_size": batch_size, "limits": limits}
    return OpenedRecords({**source, "augment": masking}, sequences, ends)


def _are_unmasked(
    names: Container[str], file: str, flag: str, settings: PretrainingSettings
) -> bool:
    """Returns whether the records of a file, with features of these names, are unmasked.

    Raises UserError if they do not fit --dynamic_masking; --eval_input_file may name either kind.
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


def _warn_of_missing_generator(model: TaskModel, init_checkpoint: str) -> None:
    """Warns if --init_checkpoint, which the run starts from, lacks weights of the generator."""
    scopes = ("generator/", "generator_predictions/")
    generator = {v.path for v in model.variables if v.path.startswith(scopes)}
    if missing := generator - CheckpointReader(init_checkpoint).shapes.keys():
        which = "no generator" if missing == generator else f"no {listed(sorted(missing)[:3])}, ..."
        logging.warning(
            "--init_checkpoint=%s has %s, so the generator starts with random weights there; its"
            " samples are poor until it has learned",
            *(init_checkpoint, which),
        )


def _tokenizer(config: BertConfig, settings: PretrainingSettings) -> tokenization.FullTokenizer:
    """Returns the tokenizer of --vocab_file, whose size fits the model."""
    tokenizer = load_tokenizer(settings.vocab_file, do_lower_case=False, needs_mask=True)
    tokenization.check_vocab_size(tokenizer.vocab, config.vocab_size, settings.vocab_file)
    return tokenizer


def _electra_masking(
    config: BertConfig, settings: ElectraSettings, batches: RecordBatches
) -> ElectraMasking:
    tokenizer = _tokenizer(config, settings)
    mask_id, layout = tokenizer.vocab[tokenizer.mask_token], tokenizer.layout
    never_masked = (layout.cls_id, layout.sep_id, mask_id)
    number = batches.max_predictions_per_seq
    return ElectraMasking(mask_id, never_masked, number, settings.mask_prob)


def _dynamic_masking(
    config: BertConfig,
    settings: PretrainingSettings,
    batches: RecordBatches,
    packed_places: int | None,
) -> DynamicMasking:
    tokenizer = _tokenizer(config, settings)
    vocab = tokenizer.vocab
    place = f"--vocab_file={settings.vocab_file}"
    check_padding(vocab, config.pad_token_id, place, "--bert_config_file")
    predictions = batches.max_predictions_per_seq
    check_predictions(batches.max_seq_length, predictions, settings.masked_lm_prob)
    return DynamicMasking(
        vocab[tokenizer.mask_token],
        max(vocab.values()) + 1,
        predictions,
        settings.masked_lm_prob,
        settings.do_whole_word_mask,
        packed_places or 1,
        tuple(sorted(tokenizer.never_drawn)),
    )
