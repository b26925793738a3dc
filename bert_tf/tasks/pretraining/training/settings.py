"""Settings of run_pretraining. Each field is the flag of that name."""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

from bert_tf.errors import UserError, as_given, quoted
from bert_tf.runs.flags.setting_fields import REQUIRED, Group, Settings, flags_of, inherit, rule_of
from bert_tf.runs.flags.settings import (
    MAX_LENGTH,
    EvaluationOptions,
    TeacherSettings,
    TrainingSettings,
)
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.schema import MLM, MLM_NSP, MLM_SOP

# A flag with a value for each phase -> the flag with one value for all.
_OF_ALL = {"phase_learning_rates": "learning_rate", "phase_warmup_steps": "num_warmup_steps"}


@dataclasses.dataclass(frozen=True)
class RecordBatches:
    """Records of the same lengths, read in batches: a phase of training, or an evaluation."""

    max_seq_length: int
    num_steps: int
    batch_size: int
    max_predictions_per_seq: int


def parse_phases(text: str) -> list[RecordBatches]:
    """Parses --phases: `length:steps:batch:predictions,...`."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(TrainingSettings):
    """Settings of run_pretraining.

    `phases` and `evaluation_batches` (what an evaluation reads; `num_steps` 0 for every example
    once) are not flags: the program makes them from `ScheduleSettings`.
    """

    amount_of_training: ClassVar[str] = "--num_train_steps, or the steps in --phases,"
    phases: list[RecordBatches]
    evaluation_batches: RecordBatches
    input_file: str = Group.DATA.setting(
        help="Record files of create_pretraining_data: names or globs, separated by commas."
        " {max_seq_length} is replaced by the length of each phase.",
    )
    eval_input_file: str | None = Group.DATA.setting(
        None,
        help="Record files to evaluate on. Default: --input_file.",
        needs_one_of=["do_eval", "evaluate_every_steps"],
    )
    do_eval: bool = inherit(EvaluationOptions, "do_eval")
    objective: str = Group.TRAINING.setting(
        MLM_NSP,
        help="What to train: mlm_nsp for masked LM and next sentence prediction (BERT), mlm for"
        " masked LM only (RoBERTa), with records of any objective, mlm_sop for masked LM and the"
        " order of sentences (ALBERT).",
        choices=(MLM_NSP, MLM, MLM_SOP),
    )
    dynamic_masking: bool = Group.DATA.setting(
        False,
        help="Draw masks during training, different ones in each epoch, for records of"
        " create_pretraining_data.py --nomask.",
        needs_one_of=["vocab_file", "init_checkpoint"],
        because="the id of the mask is in the vocabulary of the records",
    )
    vocab_file: str | None = Group.DATA.setting(
        None,
        help="Vocabulary that the records were made with, for --dynamic_masking and"
        " --objective=electra. It is copied to --output_dir.",
        of_model=True,
    )
    masked_lm_prob: float = inherit(
        PretrainingDataSettings,
        "masked_lm_prob",
        needs="dynamic_masking",
        because="the masks in records are made by create_pretraining_data.py --masked_lm_prob",
    )
    do_whole_word_mask: bool = inherit(
        PretrainingDataSettings,
        "do_whole_word_mask",
        needs="dynamic_masking",
        because="the masks in records are made by create_pretraining_data.py --do_whole_word_mask",
    )
    num_warmup_steps: int = Group.TRAINING.setting(
        10000, help="Steps in which the learning rate rises from 0 to its peak.", at_least=0
    )
    max_hours: float | None = Group.TRAINING.setting(
        None,
        help="Train for this many hours, over all starts of the run, instead of for"
        " --num_train_steps: the learning rate's warm-up and decay stretch over these hours, with"
        " --num_warmup_steps / --num_train_steps as the warm-up's share. For one phase only.",
        above=0.0,
        needs="do_train",
    )
    start_warmup_step: int = Group.TRAINING.setting(
        0,
        help="Step at which the warm-up starts, 0 or less: with -N the first step has the rate of"
        " the N-th step of the warm-up, which ends N steps earlier.",
    )
    decay_power: float = Group.TRAINING.setting(
        1.0,
        help="Exponent of the decay after the warm-up: peak * (1 - step / steps) ** decay_power.",
        above=0.0,
    )
    restart_schedule: bool = Group.TRAINING.setting(
        False,
        help="Restart the learning rate schedule, with its warm-up, in each phase. Default: one"
        " schedule for all phases, unless --phase_learning_rates or --phase_warmup_steps gives each"
        " phase its own. Step count and optimizer slots continue in all cases.",
    )

    phase_learning_rates: str | None = Group.TRAINING.setting(
        None,
        help="Peak learning rate of each phase, such as 6e-3,4e-3. Each phase then has its own"
        " schedule.",
        excludes="learning_rate",
    )
    phase_warmup_steps: str | None = Group.TRAINING.setting(
        None,
        help="Warm-up steps of each phase, such as 2000,200. Each phase then has its own schedule.",
        excludes="num_warmup_steps",
    )

    @property
    def needs_vocabulary(self) -> bool:
        return self.dynamic_masking

    def __post_init__(self):
        super().__post_init__()
        if self.max_hours and len(self.phases) > 1:
            raise UserError(
                f"--max_hours stretches one phase over the time; --phases has {len(self.phases)}."
                " Train them one after another, each with its own --max_hours and --output_dir, the"
                " later ones with --init_checkpoint"
            )
        self._schedule_numbers()  # raises an error if the settings do not fit

    @classmethod
    def from_flags(cls, values: Mapping[str, Any], given: Collection[str]) -> Self:
        """Returns the settings, with the phases that the flags of `ScheduleSettings` describe."""
        phases, evaluation_batches = cls._phases(values, given)
        fields = {field.name: values[field.name] for field in flags_of(cls)}
        return cls(phases=phases, evaluation_batches=evaluation_batches, **fields)

    @classmethod
    def _phases(
        cls, values: Mapping[str, Any], given: Collection[str]
    ) -> tuple[list[RecordBatches], RecordBatches]:
        return ScheduleSettings.from_flags(values, given).make_phases(given)

    def schedules(self) -> list[tuple[int, Any]]:
        """Returns (steps, `PolynomialSchedule`) of all phases (the paper, A.2), or of each one."""
        from bert_tf.optimization import PolynomialSchedule  # imports TensorFlow

        more = self.decay_power, self.start_warmup_step
        return [
            (num_steps, PolynomialSchedule(rate, num_steps, warmup, *more))
            for num_steps, rate, warmup in self._schedule_numbers()
        ]

    def _schedule_numbers(self) -> list[tuple[int, float, float]]:
        steps = [phase.num_steps for phase in self.phases]
        if not (self.restart_schedule or self.phase_learning_rates or self.phase_warmup_steps):
            steps = [sum(steps)]
        rates = self._of_each(len(steps), "phase_learning_rates")
        warmups = self._of_each(len(steps), "phase_warmup_steps")
        start = self.start_warmup_step
        for warmup in warmups:
            # The original accepts any number. But rates are negative before a positive start, and
            # with -warmup the warm-up is already over.
            if start and not -warmup < start <= 0:
                raise UserError(
                    f"--start_warmup_step={start} is beyond the warm-up of {warmup} steps"
                    " (--num_warmup_steps or --phase_warmup_steps): it must be at most 0 and above"
                    f" -{warmup}. Leave it out to warm up from the first step"
                )
        return list(zip(steps, rates, warmups, strict=True))

    def _of_each(self, count: int, name: str) -> list[float]:
        text, of_all = getattr(self, name), _OF_ALL[name]
        if not text:
            return [getattr(self, of_all)] * count
        field = type(self).__dataclass_fields__[of_all]
        try:
            values = [type(field.default)(part) for part in text.split(",")]
        except ValueError:
            values = []
        if len(values) != count:
            raise UserError(
                f"--{name} must have a number for each phase, {count} in all (see --phases),"
                f" separated by commas; got {quoted(text)}"
            )
        if problem := next(filter(None, map(rule_of(field).problem, values)), None):
            raise UserError(f"--{name}={as_given(text)}: each value {problem}")
        return values


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationSettings(PretrainingSettings, TeacherSettings):
    """Settings of run_distillation.

    The losses' defaults are DistilBERT's, and their names are from transformers' research project.
    """

    objective: ClassVar[str] = MLM  # not a flag: DistilBERT drops next sentence prediction
    losses: ClassVar[tuple[str, ...]] = ("ce", "mlm", "cos", "mse")
    teacher_checkpoint: str = inherit(TeacherSettings, "teacher_checkpoint", default=REQUIRED)
    vocab_file: str | None = inherit(
        PretrainingSettings,
        "vocab_file",
        help="Vocabulary of the records: a vocab.txt, which is copied to --output_dir. Default: the"
        " vocabulary next to --teacher_checkpoint, if there is one.",
        of_model=False,
    )
    # Needs no --vocab_file, because the teacher's vocabulary is the default.
    dynamic_masking: bool = inherit(PretrainingSettings, "dynamic_masking", needs_one_of=())
    student_layers: str | None = Group.MODEL.setting(
        None,
        help="Layers of the teacher, from 0, to initialize the student's layers from, such as"
        " 0,2,4,7,9,11; none for random weights. Default: spread evenly from the first to the last;"
        " with --cos_all_layers the layers that the student's are compared with.",
        excludes="init_checkpoint",
        because="--init_checkpoint has all of the student's initial weights",
    )
    alpha_ce: float = Group.TRAINING.setting(
        5.0,
        help="Weight of the soft targets: the teacher's probabilities of all tokens, at"
        " --temperature.",
        at_least=0.0,
    )
    temperature: float = inherit(
        TeacherSettings,
        "temperature",
        needs="alpha_ce",
        because="only the loss that --alpha_ce weights has a temperature",
    )
    alpha_mlm: float = Group.TRAINING.setting(
        2.0, help="Weight of the masked-LM loss.", at_least=0.0
    )
    alpha_mse: float = Group.TRAINING.setting(
        0.0,
        help="Weight of the squared distance between the logits of student and teacher.",
        at_least=0.0,
    )
    restrict_ce_to_mask: bool = Group.TRAINING.setting(
        False,
        help="Compare logits (--alpha_ce, --alpha_mse) only at masked positions, not at all tokens:"
        " less memory, fewer targets.",
        needs_one_of=["alpha_ce", "alpha_mse"],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleSettings(Settings):
    """The flags of run_pretraining that describe its phases."""

    max_seq_length: int = Group.DATA.setting(
        128, help="Length of the sequences in the records.", at_least=1, at_most=MAX_LENGTH
    )
    max_predictions_per_seq: int = Group.DATA.setting(
        20, help="Masked positions in a record.", at_least=1, at_most=MAX_LENGTH
    )
    num_train_steps: int = Group.TRAINING.setting(
        100000, help="Total number of training steps.", at_least=1
    )
    train_batch_size: int = inherit(EvaluationOptions, "train_batch_size")
    phases: str | None = Group.TRAINING.setting(
        None,
        help="Phases of training as length:steps:batch:predictions,... instead of --max_seq_length,"
        " --num_train_steps, --train_batch_size and --max_predictions_per_seq. Evaluation uses the"
        " lengths of the last phase, or of the phase with --max_seq_length if that is given.",
        excludes="train_batch_size",
    )
    eval_batch_size: int = inherit(EvaluationOptions, "eval_batch_size")
    max_eval_steps: int = Group.EVALUATION.setting(
        100,
        help="Batches in an evaluation, which repeats the files if they have fewer; 0: every"
        " example once.",
        at_least=0,
    )

    def make_phases(self, given: Collection[str]) -> tuple[list[RecordBatches], RecordBatches]:
        """Returns `phases` and `evaluation_batches`; `given` flags must not contradict --phases."""
        if self.phases is None:
            sizes = (self.num_train_steps, self.train_batch_size, self.max_predictions_per_seq)
            phases = [RecordBatches(self.max_seq_length, *sizes)]
        else:
            phases = parse_phases(self.phases)
            for phase in phases:  # each follows the rules of the flags it replaces
                length, steps, batch, predictions = dataclasses.astuple(phase)
                sizes = {"max_seq_length": length, "num_train_steps": steps}
                sizes |= {"train_batch_size": batch, "max_predictions_per_seq": predictions}
                try:
                    dataclasses.replace(self, phases=None, **sizes)
                except UserError as error:
                    raise UserError(f"--phases={quoted(self.phases)}: {error}") from error
            total = sum(phase.num_steps for phase in phases)
            if "num_train_steps" in given and self.num_train_steps != total:
                raise UserError(
                    f"--num_train_steps ({self.num_train_steps}) must equal the sum of the steps in"
                    f" --phases ({total}); leave out --num_train_steps"
                )
        last = phases[-1].max_seq_length
        length = self.max_seq_length if "max_seq_length" in given else last
        of_phases = {phase.max_seq_length: phase.max_predictions_per_seq for phase in phases}
        predictions = of_phases.get(length)
        if "max_predictions_per_seq" in given or predictions is None:
            predictions = self.max_predictions_per_seq
        evaluation_batches = RecordBatches(
            length, self.max_eval_steps, self.eval_batch_size, predictions
        )
        return phases, evaluation_batches
