"""Settings of run_pretraining and create_pretraining_data. Each field is the flag of that name."""

import dataclasses
from collections.abc import Collection
from typing import ClassVar

from bert_tf.errors import UserError, as_given, quoted
from bert_tf.optimization import PolynomialSchedule
from bert_tf.runs.setting_fields import REQUIRED, Group, Settings, inherit, rule_of, setting
from bert_tf.runs.settings import MAX_LENGTH, EvaluationSettings, TextSettings, TrainingSettings
from bert_tf.tasks.pretraining.phases import (
    PretrainingPhase,
    parse_phase_values,
    parse_phases,
)
from bert_tf.tasks.pretraining.schema import MLM, MLM_NSP, OBJECTIVES
from bert_tf.text.text_files import TEXT_FIELD


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(TrainingSettings):
    """Settings of run_pretraining.

    `phases` and `evaluation_phase` are no flags. The program makes them from `ScheduleSettings`.

    phases: the phases of training, in order.
    evaluation_phase: lengths and batch size of the evaluation; `num_steps` is the number of
        batches, 0 for every example once.
    """

    amount_of_training: ClassVar[str] = "--num_train_steps, or the steps in --phases,"
    phases: list[PretrainingPhase]
    evaluation_phase: PretrainingPhase
    input_file: str = setting(
        help="Record files of create_pretraining_data: names or globs, separated by commas."
        " {max_seq_length} is replaced by the length of each phase.",
        group=Group.DATA,
    )
    eval_input_file: str | None = setting(
        None,
        help="Record files to evaluate on. Default: --input_file.",
        group=Group.DATA,
    )
    do_eval: bool = inherit(EvaluationSettings, "do_eval")
    objective: str = setting(
        MLM_NSP,
        help="What to train: mlm_nsp for masked LM and next sentence prediction, mlm for masked LM"
        " alone, with records of any objective.",
        group=Group.TRAINING,
        choices=OBJECTIVES,
    )
    dynamic_masking: bool = setting(
        False,
        help="Draw masks while training, others in each epoch, for records of"
        " create_pretraining_data.py --nomask. It needs --vocab_file.",
        group=Group.DATA,
    )
    vocab_file: str | None = setting(
        None,
        help="Vocabulary of the records, with --dynamic_masking: a vocab.txt.",
        group=Group.DATA,
    )
    masked_lm_prob: float = setting(
        0.15,
        help="Share of the tokens of a sequence to predict, with --dynamic_masking.",
        group=Group.DATA,
        at_least=0.0,
        at_most=1.0,
    )
    do_whole_word_mask: bool = setting(
        False,
        help="Mask all word pieces of a word together, with --dynamic_masking.",
        group=Group.DATA,
    )
    num_warmup_steps: int = setting(
        10000,
        help="Steps in which the learning rate rises from 0 to its peak.",
        group=Group.TRAINING,
        at_least=0,
    )
    max_hours: float | None = setting(
        None,
        help="Train for this many hours, over all starts of the run, whatever --num_train_steps is:"
        " the learning rate's warm-up and decay stretch over them, and --num_warmup_steps of"
        " --num_train_steps is the warm-up's share. For one phase.",
        group=Group.TRAINING,
        above=0.0,
    )
    start_warmup_step: int = setting(
        0,
        help="Step at which the warm-up starts, 0 or less: with -N the first step has the rate of"
        " the N-th step of the warm-up, which ends N steps earlier.",
        group=Group.TRAINING,
    )
    decay_power: float = setting(
        1.0,
        help="Exponent of the decay after the warm-up: peak * (1 - step / steps) ** decay_power.",
        group=Group.TRAINING,
        above=0.0,
    )
    restart_schedule: bool = setting(
        False,
        help="Start the learning rate schedule anew, with its warm-up, in each phase. Default: one"
        " schedule for all phases, unless --phase_learning_rates or --phase_warmup_steps gives each"
        " its own. Step count and optimizer slots continue in all cases.",
        group=Group.TRAINING,
    )

    phase_learning_rates: str | None = setting(
        None,
        help="Peak learning rate of each phase, such as 6e-3,4e-3, instead of --learning_rate. Each"
        " phase then has its own schedule.",
        group=Group.TRAINING,
    )
    phase_warmup_steps: str | None = setting(
        None,
        help="Warm-up steps of each phase, such as 2000,200, instead of --num_warmup_steps. Each"
        " phase then has its own schedule.",
        group=Group.TRAINING,
    )

    def __post_init__(self):
        super().__post_init__()
        self.schedules()  # which raises what does not fit

    def schedules(self) -> list[tuple[int, PolynomialSchedule]]:
        """Returns the learning rate schedules in order, each with the number of its steps.

        One for all phases (the paper, A.2), or one for each.

        Raises:
            UserError: a list has not one value for each phase, or `start_warmup_step` is beyond a
                warm-up.
        """
        steps = [phase.num_steps for phase in self.phases]
        if not (self.restart_schedule or self.phase_learning_rates or self.phase_warmup_steps):
            steps = [sum(steps)]
        rates = self._of_each(len(steps), "phase_learning_rates", "learning_rate", float)
        warmups = self._of_each(len(steps), "phase_warmup_steps", "num_warmup_steps", int)
        start = self.start_warmup_step
        for warmup in warmups:
            # The original takes any number. Rates are negative before a positive one, and at
            # -warmup the warm-up is over.
            if start and not -warmup < start <= 0:
                raise UserError(
                    f"--start_warmup_step={start} is beyond the warm-up of {warmup} steps"
                    " (--num_warmup_steps or --phase_warmup_steps): it must be at most 0 and above"
                    f" -{warmup}. Leave it out to warm up from the first step"
                )
        return [
            (num_steps, PolynomialSchedule(rate, num_steps, warmup, self.decay_power, start))
            for num_steps, rate, warmup in zip(steps, rates, warmups, strict=True)
        ]

    def _of_each(self, count: int, name: str, of_all: str, number: type) -> list[float]:
        """Returns the value of each phase: those of a list, or the one of all phases."""
        text = getattr(self, name)
        if not text:
            return [getattr(self, of_all)] * count
        rules = {field.name: rule_of(field) for field in dataclasses.fields(self)}
        return parse_phase_values(text, name, count, number, rules[of_all])

    def check_given(self, given: Collection[str]) -> None:
        """Checks that of two flags for the same thing only one is among those given.

        Raises:
            UserError: both are.
        """
        for name, of_all in (
            ("phase_learning_rates", "learning_rate"),
            ("phase_warmup_steps", "num_warmup_steps"),
        ):
            if getattr(self, name) and of_all in given:
                raise UserError(f"--{of_all} is in --{name} already; leave one of them out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleSettings(Settings):
    """The flags of run_pretraining that describe its phases."""

    max_seq_length: int = setting(
        128,
        help="Length of the sequences in the records.",
        group=Group.DATA,
        at_least=1,
        at_most=MAX_LENGTH,
    )
    max_predictions_per_seq: int = setting(
        20, help="Masked positions in a record.", group=Group.DATA, at_least=1, at_most=MAX_LENGTH
    )
    num_train_steps: int = setting(
        100000, help="Total number of training steps.", group=Group.TRAINING, at_least=1
    )
    train_batch_size: int = inherit(EvaluationSettings, "train_batch_size")
    phases: str | None = setting(
        None,
        help="Phases of training as length:steps:batch:predictions,... instead of --max_seq_length,"
        " --num_train_steps, --train_batch_size and --max_predictions_per_seq. Evaluation uses the"
        " lengths of the last phase, or of the phase with --max_seq_length if that is given.",
        group=Group.TRAINING,
    )
    eval_batch_size: int = inherit(EvaluationSettings, "eval_batch_size")
    max_eval_steps: int = setting(
        100,
        help="Batches in an evaluation, which repeats the files if they have fewer; 0: every"
        " example once.",
        group=Group.EVALUATION,
        at_least=0,
    )

    def make_phases(
        self, given: Collection[str]
    ) -> tuple[list[PretrainingPhase], PretrainingPhase]:
        """Returns `phases` and `evaluation_phase` for `PretrainingSettings`.

        Args:
            given: names of the flags on the command line. The others have their defaults, which
                --phases may replace.

        Raises:
            UserError: flags contradict each other.
        """
        if self.phases is None:
            phases = [
                PretrainingPhase(
                    self.max_seq_length,
                    self.num_train_steps,
                    self.train_batch_size,
                    self.max_predictions_per_seq,
                )
            ]
        else:
            phases = parse_phases(self.phases)
            for phase in phases:
                self._check_phase(phase)
            total = sum(phase.num_steps for phase in phases)
            if "num_train_steps" in given and self.num_train_steps != total:
                raise UserError(
                    f"--num_train_steps ({self.num_train_steps}) must equal the sum of the steps in"
                    f" --phases ({total}); leave it out"
                )
            if "train_batch_size" in given:
                raise UserError("--train_batch_size is in --phases already; leave it out")
        length = phases[-1].max_seq_length
        if "max_seq_length" in given:
            length = self.max_seq_length
        of_phases = {phase.max_seq_length: phase.max_predictions_per_seq for phase in phases}
        predictions = of_phases.get(length)
        if "max_predictions_per_seq" in given or predictions is None:
            predictions = self.max_predictions_per_seq
        evaluation_phase = PretrainingPhase(
            length, self.max_eval_steps, self.eval_batch_size, predictions
        )
        return phases, evaluation_phase

    def _check_phase(self, phase: PretrainingPhase) -> None:
        """Checks the numbers of a phase by the rules of the flags that they stand for."""
        try:
            dataclasses.replace(
                self,
                max_seq_length=phase.max_seq_length,
                num_train_steps=phase.num_steps,
                train_batch_size=phase.batch_size,
                max_predictions_per_seq=phase.max_predictions_per_seq,
            )
        except UserError as error:
            raise UserError(f"--phases={quoted(self.phases)} has {error}") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(TextSettings):
    """Settings of create_pretraining_data.

    Raises:
        UserError: a value is out of bounds, or not exactly one of `input_file` and `tfds` is given.
    """

    input_file: str | None = setting(
        None,
        help="Text to read: files or globs, separated by commas. A sentence on each line and an"
        " empty line between documents; or JSON lines (.jsonl) or Parquet (.parquet) with a"
        " document in each. Text and JSON lines may be compressed (.gz, .zst).",
        group=Group.DATA,
    )
    text_field: str = setting(
        TEXT_FIELD,
        help="Field of JSON lines, or column of Parquet files, that holds a document's text, which"
        " is split into sentences.",
        group=Group.DATA,
        not_empty=True,
    )
    output_file: str = setting(
        help="TFRecord file to write, or several separated by commas, filled in turn.",
        group=Group.OUTPUT,
        not_empty=True,
    )
    objective: str = setting(
        MLM_NSP,
        help="mlm_nsp: pairs of sentences, for masked LM and next sentence prediction (BERT). mlm:"
        " sequences of whole sentences, for masked LM alone (RoBERTa).",
        group=Group.DATA,
        choices=OBJECTIVES,
    )
    across_documents: bool = setting(
        True,
        help="With --objective=mlm: fill a sequence with sentences of the next document, after a"
        " [SEP] (FULL-SENTENCES). --noacross_documents ends it with the document (DOC-SENTENCES).",
        group=Group.DATA,
    )
    mask: bool = setting(
        True,
        help="Mask tokens. --nomask leaves that to run_pretraining.py --dynamic_masking, so that"
        " one pass over the text is enough (--dupe_factor=1).",
        group=Group.DATA,
    )
    do_whole_word_mask: bool = setting(
        False,
        help="Mask all word pieces of a word together instead of one by one.",
        group=Group.DATA,
    )
    pack: bool = setting(
        False,
        help="Pack the sequences: a record holds as many as fit into --max_seq_length, and none of"
        " them sees the others.",
        group=Group.DATA,
    )
    max_sequences_per_pack: int = setting(
        12,
        help="The most sequences in a record, with --pack.",
        group=Group.DATA,
        at_least=2,
        at_most=MAX_LENGTH,
    )
    # [CLS], a token, [SEP], a token, [SEP].
    max_seq_length: int = setting(
        128,
        help="Length of a sequence in word pieces, with [CLS] and two [SEP].",
        group=Group.DATA,
        at_least=5,
        at_most=MAX_LENGTH,
    )
    max_predictions_per_seq: int = setting(
        20,
        help="Maximum number of masked tokens in a sequence: about max_seq_length *"
        " masked_lm_prob.",
        group=Group.DATA,
        at_least=1,
        at_most=MAX_LENGTH,
    )
    random_seed: int = setting(12345, help="Seed of all random choices.", group=Group.DATA)
    dupe_factor: int = setting(
        10,
        help="Passes over the text, each with other masks.",
        group=Group.DATA,
        at_least=1,
    )
    masked_lm_prob: float = setting(
        0.15,
        help="Share of the tokens of a sequence to predict.",
        group=Group.DATA,
        at_least=0.0,
        at_most=1.0,
    )
    short_seq_prob: float = setting(
        0.1,
        help="Share of the documents that are cut into sequences shorter than --max_seq_length, in"
        " each pass; with --objective=mlm_nsp only.",
        group=Group.DATA,
        at_least=0.0,
        at_most=1.0,
    )
    tfds: str | None = setting(
        None,
        help="Prepared dataset of TensorFlow Datasets to read instead of --input_file:"
        " NAME[:SPLIT], such as wiki40b/en:train. Each example is a document; its text is split"
        " into sentences.",
        group=Group.DATA,
    )
    tfds_data_dir: str | None = setting(
        None,
        help="Folder of the dataset. Default: that of TensorFlow Datasets.",
        group=Group.DATA,
    )
    tfds_text_feature: str = setting(
        "text", help="Feature of the dataset that holds the text.", group=Group.DATA
    )
    spill_dir: str | None = setting(
        None,
        help="Local folder for a temporary file about as large as the output. Default: the folder"
        " of the first output file, or that of temporary files (TMPDIR) if the output is not on a"
        " local disk.",
        group=Group.OUTPUT,
    )
    num_shards: int | None = setting(
        None,
        help="Write this many files, --output_file with -00003-of-00064 in its name, each the"
        " records of some documents. Any number of workers writes the same files; those that are"
        " there are kept when the command is started again.",
        group=Group.OUTPUT,
        at_least=1,
        at_most=99999,
    )
    num_workers: int = setting(
        1,
        help="Processes that make the shards, on this machine or, with --worker_index, on as many.",
        group=Group.OUTPUT,
        at_least=1,
        at_most=99999,
    )
    worker_index: int | None = setting(
        None,
        help="Which of the --num_workers this command is, from 0. Each makes shards of its own;"
        " none waits for another.",
        group=Group.OUTPUT,
        at_least=0,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.num_shards is None and (self.num_workers > 1 or self.worker_index is not None):
            raise UserError(
                "--num_workers and --worker_index share out shards, so they need --num_shards, the"
                " number of files to write"
            )
        if self.worker_index is not None and self.worker_index >= self.num_workers:
            raise UserError(
                f"--worker_index={self.worker_index} must be below --num_workers"
                f" ({self.num_workers}); workers are numbered from 0"
            )
        if self.num_shards is not None and "," in self.output_file:
            raise UserError(
                f"--output_file={as_given(self.output_file)} must be one name with"
                " --num_shards, to which the number of each shard is added"
            )
        if not self.across_documents and self.objective != MLM:
            raise UserError(
                f"--noacross_documents needs --objective={MLM}; pairs of sentences never cross"
                " documents. Leave it out"
            )
        if not self.mask and self.do_whole_word_mask:
            raise UserError(
                "--nomask leaves out the masks, so --do_whole_word_mask has no effect; give it to"
                " run_pretraining.py --dynamic_masking instead"
            )
        if not self.pack and self.max_sequences_per_pack != type(self).max_sequences_per_pack:
            raise UserError("--max_sequences_per_pack needs --pack; add it, or leave this flag out")
        if bool(self.input_file) == bool(self.tfds):
            raise UserError(
                "Give exactly one of --input_file and --tfds; got --input_file="
                f"{quoted(self.input_file or '')} and --tfds={quoted(self.tfds or '')}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingSettings(Settings):
    """Settings of tools/pack_records.py."""

    input_file: str = setting(
        help="Records of create_pretraining_data.py, with a sequence in each: files or globs,"
        " separated by commas.",
        group=Group.DATA,
        not_empty=True,
    )
    output_file: str | None = setting(
        None,
        help="TFRecord file to write, or several separated by commas, filled in turn. Default:"
        " none; the log says what packing would bring.",
        group=Group.OUTPUT,
        not_empty=True,
    )
    max_sequences_per_pack: int = inherit(
        PretrainingDataSettings, "max_sequences_per_pack", help="The most sequences in a record."
    )
    random_seed: int = inherit(
        PretrainingDataSettings, "random_seed", help="Seed of the order of the records."
    )
    spill_dir: str | None = inherit(
        PretrainingDataSettings,
        "spill_dir",
        help="Local folder for a temporary file as large as the input. Default: the folder of the"
        " first output file, or that of temporary files (TMPDIR) if the output is not on a local"
        " disk.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamDataSettings(PretrainingDataSettings):
    """Settings of tools/create_pretraining_data_beam.py, where Beam shares out the work."""

    num_shards: int = inherit(PretrainingDataSettings, "num_shards", default=REQUIRED)
    num_workers: int = 1  # no flag: Beam has one of this name
    worker_index: int | None = None  # no flag
