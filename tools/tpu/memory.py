"""Looks up in tpu/memory.txt whether a pre-training step fits a TPU slice, and its cycles."""

import dataclasses
import importlib.metadata
import os
from collections.abc import Iterator

from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import read_config
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.settings import RecordBatches

from .. import ROOT

PLANS = os.path.join(ROOT, "tpu", "memory.txt")
MODELS = os.path.join(ROOT, "flags", "models")
# The sizes that a model's memory depends on. A smaller vocabulary takes less.
_SIZES = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    "embedding_width",
)
# The optimizer and the model's options with which the plans were made.
_OPTIMIZER = "adamw"
_OPTIONS = {"use_one_hot_embeddings": True, "dtype": "bfloat16", "recompute_activations": False}
# ELECTRA's settings that have their default values in all plans.
_DEFAULTS = (
    *("electra_objective", "generator_layers", "untied_generator", "untied_generator_embeddings"),
    "uniform_generator",
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The compiler's plan of a step, one line of tpu/memory.txt. That file explains the columns."""

    accelerator: str  # the slice for which it was compiled
    libtpu: str  # the compiler, from the header above the line
    replicas: int  # of the run's slice
    limit: float
    config: BertConfig
    length: int
    predictions: int
    examples: int
    gib: float
    generator: float = 0.0  # hidden size of an ELECTRA's generator, as a share of `config`'s
    cycles: float | None = None  # of a step on a replica's whole batch
    parts: int = 1  # in which the batch was computed

    @property
    def fits(self) -> bool:
        return self.gib <= self.limit

    def compare(
        self, config: BertConfig, phase: RecordBatches, accumulation_steps: int, generator: float
    ) -> list[tuple[float, float]] | None:
        """Returns pairs of sizes, the phase's and the plan's, or None for a different model.

        The first pair counts the examples that a replica computes at once.
        """
        same = type(self.config) is type(config) and all(
            getattr(self.config, name) == getattr(config, name) for name in _SIZES
        )
        if self.length != phase.max_seq_length or not same:
            return None
        examples = -(-phase.batch_size // (self.replicas * accumulation_steps))
        run = (examples, phase.max_predictions_per_seq, config.vocab_size, generator)
        compiled = (self.examples, self.predictions, self.config.vocab_size, self.generator)
        return list(zip(run, compiled, strict=True))


def read_table(path: str) -> Iterator[list[str]]:
    """Yields the cells of each row of a table in tpu/; lines that begin with # are comments."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                yield line.split()


def are_as_compiled(settings: ElectraSettings, options: dict[str, bool | str]) -> bool:
    """Returns whether the plans apply to a run with these settings and options of the model."""
    own = {name for name in _DEFAULTS if getattr(settings, name) != getattr(ElectraSettings, name)}
    return not own and (options, settings.optimizer) == (_OPTIONS, _OPTIMIZER)


def read_plans(accelerator: str, path: str = PLANS) -> list[Plan]:
    """Returns the plans for a slice; [] if nothing was compiled for its generation.

    A replica takes as much memory on a larger slice as on the slice that was compiled.
    """
    plans, libtpu = [], ""
    generation, _, size = accelerator.partition("-")
    for name, replicas, *others in read_table(path):
        if name == "libtpu":  # a header
            libtpu = " ".join((name, replicas, *others))
            continue
        limit, model, *numbers = others
        its_generation, _, its_size = name.partition("-")
        if its_generation == generation:
            model, _, share = model.partition("/")
            kind = "albert" if model.startswith("albert") else "bert"
            config = read_config(os.path.join(MODELS, model, f"{kind}_config.json"))
            count = int(replicas) * int(size) // int(its_size)
            sizes, gib = map(int, numbers[:3]), float(numbers[3])
            plan = Plan(name, libtpu, count, float(limit), config, *sizes, gib, float(share or 0))
            if numbers[4:]:
                millions, _, parts = numbers[4].partition("/")
                cycles = float(millions) * 1e6
                plan = dataclasses.replace(plan, cycles=cycles, parts=int(parts or 1))
            plans.append(plan)
    return plans


def look_up(
    plans: list[Plan],
    config: BertConfig,
    phase: RecordBatches,
    accumulation_steps: int = 1,
    generator: float = 0.0,
) -> tuple[str, float | None]:
    """Returns a line that says whether a phase's step fits, and the compiler's cycles if known.

    A step with fewer examples takes no more memory, and a step with more takes no less. The cycles
    are for exactly this step. `plans` must be [] if the run's settings are not `are_as_compiled`.
    The phase's batch size is global, and a replica computes its share in `accumulation_steps`
    parts. For `generator` see `Plan`.
    """
    known, cycles = "", None
    for plan in plans:
        pairs = plan.compare(config, phase, accumulation_steps, generator)
        if pairs is None:
            continue
        if plan.parts == accumulation_steps and all(mine == its for mine, its in pairs):
            cycles = cycles or plan.cycles
        if known or not all(mine <= its if plan.fits else mine >= its for mine, its in pairs):
            continue
        known = (
            f"{'fits' if plan.fits else 'does not fit'}: {plan.gib:g} of {plan.limit:g} GiB a"
            f" replica with {plan.examples} examples at once, and this run has {pairs[0][0]};"
            f" compiled for {plan.accelerator} by {plan.libtpu}"
        )
        for found in importlib.metadata.distributions(name="libtpu"):
            if plan.libtpu != f"libtpu {found.version}":
                known += f", and libtpu {found.version} is installed"
    known = known or "not known; python -m tools.compile_for_tpu finds out"
    return f"of length {phase.max_seq_length}: {known}", cycles
