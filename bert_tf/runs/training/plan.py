"""The course of a training run: its phases, and the legs in which it goes through them."""

import dataclasses
from collections.abc import Callable, Iterator

from bert_tf.engine.distribution import InputShard
from bert_tf.engine.input_pipeline import TrainingInput

# A run shorter than a few --iterations_per_loop still logs about this many lines.
LOG_LINES = 20


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training on batches of one shape.

    num_steps: number of steps.
    batch_size: records a step, over all replicas.
    open_input: (seed, shard) -> the batches that the shard's host reads, from the beginning of the
        order that the seed gives.
    examples_per_record: the mean; more than 1 if records are packed.
    """

    num_steps: int
    batch_size: int
    open_input: Callable[[int, InputShard], TrainingInput]
    examples_per_record: float = 1.0


@dataclasses.dataclass(frozen=True)
class Leg:
    """Steps of one phase that are made without coming back to Python.

    phase: number of the phase, from 0.
    stop: the step that the leg ends at. Steps are counted from 0, and a step has its number when
        it is done.
    saves: whether a checkpoint is saved there.
    evaluates: whether an evaluation is due there, after the save.
    """

    phase: int
    stop: int
    saves: bool
    evaluates: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """When a run stops, saves and evaluates: a pure function of step and settings.

    phase_steps: number of steps of each phase.
    save_checkpoints_steps: a checkpoint is saved at multiples of it and at the end.
    evaluate_every_steps: an evaluation is due at multiples of it; 0 for never.
    iterations_per_loop: most steps of a leg.
    """

    phase_steps: tuple[int, ...]
    save_checkpoints_steps: int
    evaluate_every_steps: int
    iterations_per_loop: int

    @property
    def total(self) -> int:
        """Number of steps of all phases."""
        return sum(self.phase_steps)

    def legs(self, step: int) -> Iterator[Leg]:
        """Yields the legs of a run that starts at `step`, which must be less than `total`.

        The first leg has no steps. It stops at `step`, where a new run saves, and where a resumed
        run evaluates because the run before may have been stopped before it evaluated. In each
        phase the first leg with steps has one step: the step that is compiled.
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
