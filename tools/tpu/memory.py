"""Looks up whether a pre-training step fits a TPU slice, in tpu/memory.txt."""

import dataclasses
import os
from collections.abc import Iterator

from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import read_config
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.phases import RecordBatches

from .. import ROOT

PLANS = os.path.join(ROOT, "tpu", "memory.txt")
MODELS = os.path.join(ROOT, "flags", "models")
# The sizes that a model's memory depends on, with the vocabulary's: a smaller one takes less.
_SIZES = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    "embedding_width",
)
# The optimizer and the model's options with which the plans were made.
_OPTIMIZER = "adamw"
_OPTIONS = {"use_one_hot_embeddings": True, "dtype": "bfloat16", "recompute_activations": False}
# ELECTRA's settings that have their defaults in all plans.
_DEFAULTS = (
    *("electra_objective", "generator_layers", "untied_generator", "untied_generator_embeddings"),
    "uniform_generator",
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The compiler's plan of a step, one line of tpu/memory.txt. That file explains the columns.

    generator: the hidden size of an ELECTRA's generator, as a share of `config`'s; else 0.
    """

    accelerator: str
    replicas: int
    limit: float
    config: BertConfig
    length: int
    predictions: int
    examples: int
    gib: float
    generator: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the step takes at most the memory of a replica."""
        return self.gib <= self.limit


def read_table(path: str) -> Iterator[list[str]]:
    """Yields the cells of each row of a table in tpu/; lines that begin with # are comments."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                yield line.split()


def are_as_compiled(settings: ElectraSettings, options: dict[str, bool | str]) -> bool:
    """Returns whether plans tell about a run with these settings and options of the model."""
    own = {name for name in _DEFAULTS if getattr(settings, name) != getattr(ElectraSettings, name)}
    return not own and (options, settings.optimizer) == (_OPTIONS, _OPTIMIZER)


def read_plans(accelerator: str, path: str = PLANS) -> list[Plan]:
    """Returns the plans for a slice; [] if nothing was compiled for its generation.

    A replica of a larger slice takes as much memory as one of a slice that was compiled.
    """
    plans = []
    generation, _, size = accelerator.partition("-")
    for name, replicas, limit, model, *numbers, gib in read_table(path):
        its_generation, _, its_size = name.partition("-")
        if its_generation == generation:
            model, _, share = model.partition("/")
            kind = "albert" if model.startswith("albert") else "bert"
            config = read_config(os.path.join(MODELS, model, f"{kind}_config.json"))
            sizes = map(int, numbers)
            count = int(replicas) * int(size) // int(its_size)
            plan = Plan(accelerator, count, float(limit), config, *sizes, float(gib))
            plans.append(dataclasses.replace(plan, generator=float(share or 0)))
    return plans


def describe(
    plans: list[Plan],
    config: BertConfig,
    phase: RecordBatches,
    accumulation_steps: int = 1,
    generator: float = 0.0,
) -> str:
    """Returns a line that says whether a phase's step fits, if the plans for the slice tell.

    A step with fewer examples takes no more memory, and one with more takes no less.

    Args:
        plans: [] if the run's settings are not `are_as_compiled`.
        config: the model.
        phase: its batch size is global.
        accumulation_steps: number of parts in which a replica computes its batch.
        generator: see `Plan`.
    """
    known = "not known; python -m tools.compile_for_tpu finds out"
    for plan in plans:
        same = type(plan.config) is type(config) and all(
            getattr(plan.config, name) == getattr(config, name) for name in _SIZES
        )
        if plan.length != phase.max_seq_length or not same:
            continue
        examples = -(-phase.batch_size // (plan.replicas * accumulation_steps))
        run = (examples, phase.max_predictions_per_seq, config.vocab_size, generator)
        compiled = (plan.examples, plan.predictions, plan.config.vocab_size, plan.generator)
        pairs = list(zip(run, compiled, strict=True))
        if plan.fits and all(mine <= its for mine, its in pairs):
            known = "fits"
        elif not plan.fits and all(mine >= its for mine, its in pairs):
            known = "does not fit"
        else:
            continue
        known += (
            f": {plan.gib:g} of {plan.limit:g} GiB a replica with {plan.examples} examples at once,"
            f" and this run has {examples}"
        )
        break
    return f"of length {phase.max_seq_length}: {known}"
