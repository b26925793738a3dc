"""When a training run stops, saves, evaluates and reports: a pure function of step and settings."""

import dataclasses

# About so many log lines tell of a run that is too short for --iterations_per_loop to end loops.
LOG_LINES = 20


@dataclasses.dataclass(frozen=True)
class Stretch:
    """The steps of one phase, from `first` to before `end`; `phase` is its number from 0."""

    phase: int
    first: int
    end: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """The course of a run. Steps are counted from 0, and a step has its number when it is done.

    phase_steps: number of steps of each phase.
    save_checkpoints_steps: a checkpoint is saved at multiples of it and at the end.
    evaluate_every_steps: an evaluation is due at multiples of it; 0 for never.
    iterations_per_loop: most steps that are made without coming back to Python.
    endless: whether something else than the number of steps ends the run.
    """

    phase_steps: tuple[int, ...]
    save_checkpoints_steps: int
    evaluate_every_steps: int
    iterations_per_loop: int
    endless: bool = False

    @property
    def total(self) -> int:
        """Number of steps of all phases."""
        return sum(self.phase_steps)

    def remaining(self, step: int) -> list[Stretch]:
        """Returns the phases that end after `step`, in order."""
        stretches = []
        first = 0
        for number, num_steps in enumerate(self.phase_steps):
            end = first + num_steps
            if step < end:
                stretches.append(Stretch(number, first, end))
            first = end
        return stretches

    def next_stop(self, step: int, end: int) -> int:
        """Returns the step at which a loop that begins at `step` comes back to Python.

        Args:
            step: the present step.
            end: of the phase.
        """
        report = -(-self.total // LOG_LINES)
        intervals = (self.save_checkpoints_steps, self.evaluate_every_steps, report)
        stops = [end, step + self.iterations_per_loop]
        stops += [step + interval - step % interval for interval in intervals if interval]
        return min(stops)

    def saves_at(self, step: int) -> bool:
        """Returns whether a checkpoint is saved when `step` is reached."""
        return step % self.save_checkpoints_steps == 0 or step == self.total

    def evaluates_at(self, step: int) -> bool:
        """Returns whether an evaluation is due when `step` is reached."""
        every = self.evaluate_every_steps
        return bool(every) and step > 0 and step % every == 0
