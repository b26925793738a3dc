"""The course of a training run: its phases, and the legs that each phase is divided into."""

import dataclasses
from collections.abc import Callable, Iterator

from bert_tf.engine.distribution import InputShard
from bert_tf.engine.input_pipeline import TrainingInput

# Even a run shorter than --iterations_per_loop logs about this many lines.
LOG_LINES = 20


@dataclasses.dataclass(frozen=True)
class Work:
    """What a step of a phase computes, to report its speed.

    sequences: number of sequences in a step, over all replicas.
    length: length of the padded sequences, unless the batch is cut to a bucket's length.
    flops: length -> floating point operations of the model's matrix products in a step, if known.
    """

    sequences: int
    length: int
    flops: Callable[[int], float] | None = None


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of training in which all batches have the same shape.

    batch_size: records in a step, over all replicas.
    open_input: (seed, shard) -> the batches that the shard's host reads, from the start of the
        order that the seed gives.
    examples_per_record: mean number of examples in a record; more than 1 if records are packed.
    num_examples: number of examples in the input, for the log; `estimated` or exact.
    """

    num_steps: int
    batch_size: int
    open_input: Callable[[int, InputShard], TrainingInput]
    examples_per_record: float = 1.0
    num_examples: float | None = None
    estimated: bool = False
    work: Work | None = None

    def describe_input(self, timed: bool) -> str | None:
        """Describes the number of examples, and of epochs or, if `timed`, of steps in an epoch."""
        if not self.num_examples:
            return None
        count = f"{self.num_examples:,.0f} example{'s' * (round(self.num_examples) != 1)}"
        steps = self.num_examples / (self.batch_size * self.examples_per_record)  # of an epoch
        text = f"{'about ' * self.estimated}{count} in the input"
        if timed:
            return f"{text}; an epoch has {_rounded(steps)} steps"
        return (
            f"{text}; the {self.num_steps:,} steps make {_rounded(self.num_steps / steps)} epochs"
        )


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


@dataclasses.dataclass(frozen=True)
class Leg:
    """Steps of one phase that run without returning to Python.

    stop: the number of steps made in the whole run when the leg ends.
    saves, evaluates: whether to save a checkpoint at the end, and then to evaluate.
    """

    phase: int
    stop: int
    saves: bool
    evaluates: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """When a run stops, saves and evaluates: a pure function of step and settings.

    phase_steps: number of steps of each phase.
    iterations_per_loop: maximum number of steps in a leg.
    stops: further steps after which a leg must end, in order.
    """

    phase_steps: tuple[int, ...]
    save_checkpoints_steps: int
    evaluate_every_steps: int
    iterations_per_loop: int
    stops: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.phase_steps)

    def legs(self, step: int) -> Iterator[Leg]:
        """Yields the legs of a run that starts at `step`, which must be less than `total`.

        The first leg has no steps; after it a new run saves, and a resumed run evaluates, since the
        previous run may have stopped before it evaluated. In each phase the first leg with steps
        has only one step, during which the step is compiled.
        """
        report = -(-self.total // LOG_LINES)
        intervals = (self.save_checkpoints_steps, self.evaluate_every_steps, report)
        start, end = step, 0
        for phase, num_steps in enumerate(self.phase_steps):
            end += num_steps
            if step == start < end:
                yield self._leg(phase, step)
            compiled = False
            while step < end:
                nexts = [step + interval - step % interval for interval in intervals if interval]
                nexts += [stop for stop in self.stops if stop > step][:1]
                stop = min(end, step + self.iterations_per_loop, *nexts)
                if not compiled and step + 1 < stop:
                    yield self._leg(phase, step + 1)
                compiled = True
                yield self._leg(phase, stop)
                step = stop

    def _leg(self, phase: int, stop: int) -> Leg:
        every = self.evaluate_every_steps
        saves = stop % self.save_checkpoints_steps == 0 or stop == self.total
        return Leg(phase, stop, saves, bool(every) and stop > 0 and stop % every == 0)
