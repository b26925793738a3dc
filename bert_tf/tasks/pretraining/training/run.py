"""Pre-trains and evaluates a model on record files (run_pretraining.py)."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Self

import tensorflow as tf
from absl import logging

from bert_tf import optimization, tokenization
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.engine.input_pipeline import Augment
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import read_as_hugging_face
from bert_tf.model_folder.writer import write_config, write_vocabulary
from bert_tf.runs.flags.setting_fields import MAX_COUNT
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.fine_tuning_checks import check_vocabulary
from bert_tf.runs.training.schedules import TimeBudget
from bert_tf.runs.training.trainer import Trainer, model_options
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.records.manifest import MadeFor
from bert_tf.tasks.pretraining.records.masking import check_predictions
from bert_tf.tasks.pretraining.schema import ELECTRA
from bert_tf.tasks.pretraining.training.dynamic_masking import DynamicMasking, ElectraMasking
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.model import check_objective
from bert_tf.tasks.pretraining.training.record_files import FittingRecords, Records, fit
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, RecordBatches
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.casing import find_casing
from bert_tf.text.model_vocabulary import check_padding
from bert_tf.text.tokenizers import load_tokenizer, read_vocabulary


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of the records; `files` are copied to the output."""

    path: str
    tokenizer: Tokenizer
    files: dict[str, bytes]  # see `read_vocabulary`
    do_lower_case: bool | None  # None if unknown

    @classmethod
    def open(
        cls, path: str, config: BertConfig, needs_mask: bool, folder: str, model: str | None
    ) -> Self:
        """Reads a vocabulary, whose size must fit `config`, and its casing if `folder` has it."""
        hugging_face = read_as_hugging_face(path, model)
        tokenizer = load_tokenizer(path, False, needs_mask, hugging_face)
        vocab, files = tokenizer.vocab, read_vocabulary(path, hugging_face)
        tokenization.check_vocab_size(vocab, config.vocab_size, path)
        return cls(path, tokenizer, files, find_casing(folder, path, vocab))


@dataclasses.dataclass(frozen=True)
class Job:
    """What `pretrain` trains and evaluates."""

    config: BertConfig  # of the model to train
    strategy: tf.distribute.Strategy
    settings: PretrainingSettings
    # Takes the arguments of `Trainer` from the second on. It is called once settings and files are
    # checked, while the run holds the output directory.
    make_trainer: Callable[..., Trainer]
    vocabulary: Vocabulary | None  # of the records, if one was given
    flops: Callable[[RecordBatches], int]  # operations of a training step's matrix products

    @functools.cached_property
    def made_for(self) -> MadeFor:
        """The model that the records must fit."""
        path, vocab = None, None
        if self.vocabulary:
            path, vocab = self.vocabulary.path, self.vocabulary.tokenizer.vocab
        places = self.settings.init_checkpoint, self.settings.output_dir
        return MadeFor(self.settings.objective, path, vocab, *places)

    def open_records(self) -> tuple[list[FittingRecords], FittingRecords | None]:
        """Returns the records of each phase of training, and of the evaluation."""
        settings, replicas = self.settings, self.strategy.num_replicas_in_sync
        wanted = []
        if settings.do_train:
            parts = replicas * settings.gradient_accumulation_steps
            wanted = [("input_file", "train_batch_size", x, parts) for x in settings.phases]
        evaluates = settings.do_eval or settings.evaluate_every_steps
        if evaluates:
            flag = "eval_input_file" if settings.eval_input_file else "input_file"
            wanted.append((flag, "eval_batch_size", settings.evaluation_batches, replicas))
        opened = [self._open(*x) for x in wanted]
        evaluated = opened.pop() if evaluates else None
        return opened, evaluated

    def _open(
        self, flag: str, batch_flag: str, batches: RecordBatches, parts: int
    ) -> FittingRecords:
        """Finds and checks the record files that --`flag` names; see `fit`."""
        length, settings = batches.max_seq_length, self.settings
        self.config.check_seq_length(length, "max_seq_length or --phases")
        records = Records.open(getattr(settings, flag), flag, length)
        records.check_kind(settings.objective, settings.dynamic_masking)
        vocabulary = (self.config.vocab_size, "vocab_size of --bert_config_file")
        limits = {
            "input_ids": vocabulary,
            "masked_lm_ids": vocabulary,
            "segment_ids": (self.config.type_vocab_size, "type_vocab_size of --bert_config_file"),
        }
        masking = self._masking(records, batches)
        return fit(records, batches, self.made_for, limits, masking, parts, batch_flag)

    def _masking(self, records: Records, batches: RecordBatches) -> Augment | None:
        """Returns the function that masks batches; None if the records are masked."""
        settings, vocabulary = self.settings, self.vocabulary
        number = batches.max_predictions_per_seq
        if isinstance(settings, ElectraSettings) and settings.objective == ELECTRA:
            return ElectraMasking.of_tokenizer(vocabulary.tokenizer, number, settings.mask_prob)
        if not records.are_unmasked:
            return None
        tokenizer, place = vocabulary.tokenizer, f"--vocab_file={vocabulary.path}"
        check_padding(tokenizer.vocab, self.config.pad_token_id, place, "--bert_config_file")
        check_predictions(batches.max_seq_length, number, settings.masked_lm_prob)
        rates = settings.masked_lm_prob, settings.do_whole_word_mask
        return DynamicMasking.of_tokenizer(tokenizer, number, *rates, records.packed_places or 1)


def run_pretraining(
    config: BertConfig, strategy: tf.distribute.Strategy, settings: PretrainingSettings
) -> dict[str, float | int] | None:
    """Pre-trains a model on `input_file`, evaluates it on `eval_input_file`, or both.

    Writes checkpoints, `bert_config.json`, a copy of `vocab_file`, `eval_results.txt` and
    TensorBoard's events to `output_dir`. If `output_dir` has a checkpoint, training resumes from
    it. Returns the results of the evaluation; None without --do_eval.
    """
    electra = settings.model_arguments if isinstance(settings, ElectraSettings) else {}
    options = model_options(settings, strategy)
    build = functools.partial(pretraining_model, config, settings.objective, electra, **options)
    start, path, vocabulary = settings.init_checkpoint, settings.vocab_file, None
    if path:
        vocabulary = Vocabulary.open(path, config, True, os.path.dirname(path), start)
        check_vocabulary(vocabulary.tokenizer.vocab, path, start, settings.output_dir)
    make_trainer = functools.partial(Trainer, build)
    flops = functools.partial(training_flops, config, objective=settings.objective, electra=electra)
    return pretrain(Job(config, strategy, settings, make_trainer, vocabulary, flops))


def pretrain(job: Job) -> dict[str, float | int] | None:
    """Trains and evaluates a model on record files; see `run_pretraining`."""
    settings, strategy = job.settings, job.strategy
    if not settings.do_train and not settings.do_eval:
        raise UserError("At least one of --do_train and --do_eval must be given.")
    check_objective(job.config, settings.objective)
    training, evaluated = job.open_records()
    phases, schedule = [x.phase(job.flops) for x in training], None
    if settings.do_train:
        schedule = optimization.RestartingSchedule(settings.schedules())
    with Run(strategy, settings) as run:
        if evaluated:
            evaluated.warn_of_training(training, run.checkpoints.latest())
        budget = None
        if settings.max_hours:
            num_steps, hours = settings.phases[0].num_steps, settings.max_hours
            budget = TimeBudget(hours, schedule, num_steps, run.used_seconds, strategy)
            schedule = budget.schedule
            phases = [dataclasses.replace(phases[0], num_steps=MAX_COUNT)]  # ended by the budget
        trainer = job.make_trainer(run, schedule, budget=budget)
        evaluator = Evaluator(trainer.objective, strategy)
        results: dict[str, float | int] = {}

        def evaluate() -> bool:
            step = trainer.global_step
            if run.evaluated_step != step:  # --evaluate_every_steps may include the last step
                logging.info("***** Running evaluation *****")
                source = EvaluationInput(**evaluated.source, max_steps=evaluated.batches.num_steps)
                results.update(run.report(evaluator.evaluate(source), step))
                run.write_results(results)
            return True

        if settings.do_train:
            logging.info("***** Running training *****")
            run.check_same("configurations (--bert_config_file)", job.config.to_json_string())
            found = job.vocabulary
            if found:
                run.check_same("vocabularies (--vocab_file)", str(sorted(found.files.items())))
            if run.chief:
                write_config(settings.output_dir, job.config)
            if run.chief and found:
                write_vocabulary(settings.output_dir, found.files, found.do_lower_case)
            trainer.train(phases, evaluate)
        if settings.do_eval:
            evaluate()
        return results if settings.do_eval else None
