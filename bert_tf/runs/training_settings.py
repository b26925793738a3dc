"""What every program that trains is told, whatever the task."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What every program that trains is told; each field is the flag of that name."""

    output_dir: str
    init_checkpoint: str | None = None
    do_train: bool = False
    learning_rate: float = 5e-5
    evaluate_every_steps: int = 0
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    iterations_per_loop: int = 1000
    gradient_accumulation_steps: int = 1
    gradient_reduction: str = "local_clip_sum"
    random_seed: int = 12345
