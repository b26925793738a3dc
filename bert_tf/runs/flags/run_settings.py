"""Settings of a training run's checkpoints, traces and watchdog."""

import dataclasses
import re

from bert_tf.errors import UserError, quoted
from bert_tf.runs.flags.setting_fields import Group, Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Settings):
    """Checkpoints, traces, and the watchdog of a training run."""

    save_checkpoints_steps: int = Group.OUTPUT.setting(
        1000,
        help="Write a checkpoint every N steps, and at the start and end of training.",
        at_least=1,
    )
    keep_checkpoint_max: int = Group.OUTPUT.setting(
        5, help="Number of checkpoints to keep: the newest N; 0: all.", at_least=0
    )
    keep_checkpoint_every_steps: int = Group.OUTPUT.setting(
        0,
        help="Also keep the checkpoint of every N-th step for good; a multiple of"
        " --save_checkpoints_steps. 0: off.",
        at_least=0,
    )
    profile_steps: str | None = Group.OUTPUT.setting(
        None,
        help="FIRST:END, such as 100:105: write a trace of these steps, END not included, to"
        " --output_dir. TensorBoard's profiler (XProf) shows it.",
    )
    skip_steps_above_norm: float | None = Group.TRAINING.setting(
        None,
        help="Skip the update of a step if the norm of its gradients is larger than this, as"
        " with a bad batch; see gradient_norm in the log. A norm that is not finite still ends the"
        " run. Default: skip none.",
        above=0.0,
    )
    hang_minutes: float = Group.COMPUTATION.setting(
        0.0,
        help="End the program with status 75, and print what its threads are doing, if a training"
        " step or a save takes this long, as when another machine of the run hangs. Compiling and"
        " evaluating may take longer. 0: never.",
        at_least=0.0,
    )

    def __post_init__(self):
        super().__post_init__()
        kept, saved = self.keep_checkpoint_every_steps, self.save_checkpoints_steps
        if kept % saved:
            raise UserError(
                f"--keep_checkpoint_every_steps={kept} must be a multiple of"
                f" --save_checkpoints_steps ({saved}): other steps have no checkpoint"
            )
        if self.profile_steps is not None and not self.profiled:
            raise UserError(
                f"--profile_steps={quoted(self.profile_steps)} must be FIRST:END, the number of a"
                " step and a larger one, such as 100:105"
            )

    @property
    def profiled(self) -> range:
        """Steps to trace, 0-based."""
        found = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", self.profile_steps or "0:0")
        return range(int(found[1]), int(found[2])) if found else range(0)
