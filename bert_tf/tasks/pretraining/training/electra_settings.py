"""ELECTRA's settings of run_pretraining, with their names in google-research/electra."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from bert_tf.errors import UserError
from bert_tf.runs.flags.setting_fields import Group, inherit
from bert_tf.tasks.pretraining.schema import ELECTRA, OBJECTIVES
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings

_NEEDS = ("objective", ELECTRA)
# Settings that are arguments of `ElectraPretrainingModel`, with the same defaults.
MODEL_ARGUMENTS = (
    *("electra_objective", "generator_hidden_size", "generator_layers", "untied_generator"),
    *("untied_generator_embeddings", "uniform_generator", "gen_weight", "disc_weight"),
    *("temperature", "disallow_correct"),
)
_HAS_GENERATOR = [_NEEDS, "electra_objective"]
_NOT_UNIFORM = {"excludes": "uniform_generator", "because": "a uniform generator has no weights"}


def number_of_predictions(mask_prob: float, max_seq_length: int) -> int:
    """Returns ELECTRA's max_predictions_per_seq: 19 for a mask_prob of 0.15 and length 128."""
    count = int((mask_prob + 0.005) * max_seq_length)
    if not count:
        raise UserError(
            f"--mask_prob={mask_prob:g} leaves no prediction in sequences of {max_seq_length}"
            " tokens (--max_seq_length or --phases): (mask_prob + 0.005) * length must be at least"
            " 1. Raise --mask_prob"
        )
    return count


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElectraSettings(PretrainingSettings):
    """Settings of run_pretraining: BERT's, and with --objective=electra ELECTRA's."""

    objective: str = inherit(
        PretrainingSettings,
        "objective",
        help="What to train: mlm_nsp for masked LM and next sentence prediction (BERT), mlm for"
        " masked LM only (RoBERTa), with records of any objective but electra, mlm_sop for masked"
        " LM and the order of sentences (ALBERT), electra for a generator that replaces tokens and"
        " a discriminator that finds them (ELECTRA).",
        choices=OBJECTIVES,
    )
    masked_lm_prob: float = inherit(
        PretrainingSettings,
        "masked_lm_prob",
        excludes=_NEEDS,
        because="the masks in records are made by create_pretraining_data.py --masked_lm_prob, and"
        " ELECTRA's follow --mask_prob",
    )
    do_whole_word_mask: bool = inherit(
        PretrainingSettings,
        "do_whole_word_mask",
        excludes=_NEEDS,
        because="the masks in records are made by create_pretraining_data.py --do_whole_word_mask,"
        " and ELECTRA masks single word pieces",
    )
    electra_objective: bool = Group.TRAINING.setting(
        True,
        help="Train a discriminator. --noelectra_objective: only a masked LM, on the same records"
        " and with the same masks.",
        needs=_NEEDS,
    )
    mask_prob: float = Group.DATA.setting(
        0.15, help="Share of the tokens to predict.", above=0.0, at_most=1.0, needs=_NEEDS
    )
    generator_hidden_size: float = Group.MODEL.setting(
        0.25,
        help="Hidden size of the generator as a share of the discriminator's.",
        above=0.0,
        needs=_HAS_GENERATOR,
        **_NOT_UNIFORM,
    )
    generator_layers: float = Group.MODEL.setting(
        1.0,
        help="Layers of the generator as a share of the discriminator's.",
        above=0.0,
        needs=_HAS_GENERATOR,
        **_NOT_UNIFORM,
    )
    untied_generator: bool = Group.MODEL.setting(
        True,
        help="Give the generator its own layers. --nountied_generator: the generator is the"
        " discriminator itself.",
        needs=_HAS_GENERATOR,
        excludes=["generator_hidden_size", "generator_layers", "untied_generator_embeddings"],
        because="a tied generator is the discriminator itself",
    )
    untied_generator_embeddings: bool = Group.MODEL.setting(
        False,
        help="Give the generator its own embeddings, as wide as its layers.",
        needs=_HAS_GENERATOR,
        **_NOT_UNIFORM,
    )
    uniform_generator: bool = Group.MODEL.setting(
        False,
        help="Draw replacements uniformly from the vocabulary, without a generator.",
        needs=_HAS_GENERATOR,
    )
    gen_weight: float = Group.TRAINING.setting(
        1.0, help="Weight of the generator's loss.", at_least=0.0, needs=_NEEDS
    )
    disc_weight: float = Group.TRAINING.setting(
        50.0, help="Weight of the discriminator's loss.", at_least=0.0, needs=_HAS_GENERATOR
    )
    temperature: float = Group.TRAINING.setting(
        1.0,
        help="Temperature of the generator's samples: divides its logits.",
        above=0.0,
        needs=_HAS_GENERATOR,
        **_NOT_UNIFORM,
    )
    disallow_correct: bool = Group.TRAINING.setting(
        False,
        help="Never sample the right token, so that every predicted place is replaced.",
        needs=_HAS_GENERATOR,
    )

    @property
    def needs_vocabulary(self) -> bool:
        return super().needs_vocabulary or self.objective == ELECTRA

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective != ELECTRA:
            return
        if not self.vocab_file and not self.init_checkpoint:
            raise UserError(
                f"--objective={ELECTRA} needs --vocab_file or --init_checkpoint: the ids of [MASK],"
                " [CLS] and [SEP] are in the vocabulary of the records"
            )
        learned = {"disc_weight": self.electra_objective, "gen_weight": not self.uniform_generator}
        if not any(getattr(self, name) for name, has_weights in learned.items() if has_weights):
            names = " or ".join(f"--{name}" for name, has_weights in learned.items() if has_weights)
            raise UserError(f"{names} must be above 0: with 0 there is no loss to train with")
        for phase in (*self.phases, self.evaluation_batches):
            count = number_of_predictions(self.mask_prob, phase.max_seq_length)
            if phase.max_predictions_per_seq != count:
                raise UserError(
                    f"ELECTRA predicts int((mask_prob + 0.005) * length) tokens of a sequence, here"
                    f" {count} of {phase.max_seq_length}; --max_predictions_per_seq or --phases"
                    f" says {phase.max_predictions_per_seq}. Leave out --max_predictions_per_seq,"
                    f" and write {count} in --phases"
                )

    @classmethod
    def _phases(cls, values: Mapping[str, Any], given: Collection[str]) -> tuple[list, Any]:
        """Returns the phases, with ELECTRA's number of predictions where no flag gives one."""
        phases, evaluation = super()._phases(values, given)
        if values["objective"] != ELECTRA or "max_predictions_per_seq" in given:
            return phases, evaluation

        def counted(batches):
            count = number_of_predictions(values["mask_prob"], batches.max_seq_length)
            return dataclasses.replace(batches, max_predictions_per_seq=count)

        return phases if values["phases"] else list(map(counted, phases)), counted(evaluation)

    def schedules(self) -> list[tuple[int, Any]]:
        """Returns the learning rate schedules; ELECTRA's warm-up multiplies the decay."""
        scales_decay = self.objective == ELECTRA
        return [
            (steps, dataclasses.replace(schedule, scales_decay=scales_decay))
            for steps, schedule in super().schedules()
        ]

    @property
    def model_arguments(self) -> dict[str, Any]:
        """The arguments of `ElectraPretrainingModel`."""
        return {name: getattr(self, name) for name in MODEL_ARGUMENTS}
