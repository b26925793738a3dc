"""Settings that several programs share. Each field is the flag of that name."""

import dataclasses
import re
from typing import ClassVar

from bert_tf import optimizer_defaults as defaults
from bert_tf.engine.distribution import GRADIENT_REDUCTIONS, PJRT, STRATEGIES
from bert_tf.errors import UserError, as_given
from bert_tf.runs.flags.run_settings import RunOptions
from bert_tf.runs.flags.setting_fields import Group, Settings

# Far above anything published, and low enough that a program can start.
MAX_LENGTH = 2**20  # also the limit of `max_position_embeddings`
MAX_BATCH = 2**20  # the largest batch of the LAMB paper is 2**16
AUTO = "auto"  # the value of --coordinator for which JAX finds the processes


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """The model's configuration."""

    bert_config_file: str | None = Group.MODEL.setting(
        None, help="Configuration of the model: a bert_config.json.", of_model=True
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """The vocabulary, and how text is prepared for it."""

    needs_vocabulary: ClassVar[bool] = True
    vocab_file: str | None = Group.DATA.setting(
        None,
        help="Vocabulary that the model was trained with: a vocab.txt; a SentencePiece model,"
        " whose name ends in .model (ALBERT) or in .bpe.model (XLM-RoBERTa and CamemBERT); or"
        " RoBERTa's vocab.json, with merges.txt beside it.",
        of_model=True,
    )
    do_lower_case: bool = Group.DATA.setting(
        True,
        help="Lower-case text and strip accents: true for uncased models, false for cased ones.",
        of_model=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions(Settings):
    """The flags of `TextSettings`; a model in memory does not need a `vocab_file`."""

    vocab_file: str = ""
    do_lower_case: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputationSettings(Settings):
    """How a model computes; `model_options` replaces None by the device's default."""

    dtype: str | None = Group.COMPUTATION.setting(
        None,
        help="Type of matrix products and of the activations between them. Default: bfloat16 on"
        " TPUs, float32 elsewhere.",
        choices=("float32", "bfloat16"),
    )
    use_one_hot_embeddings: bool | None = Group.COMPUTATION.setting(
        None,
        help="Look up word embeddings by a matrix product with one-hot ids instead of a gather."
        " Default: true on TPUs, false elsewhere.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(ComputationSettings, RunOptions):
    """How a model is trained, by a program or from Python."""

    amount_of_training: ClassVar[str] = "the number of steps"  # what messages say to increase
    output_dir: str = ""  # flags in `RunFiles`
    init_checkpoint: str | None = None
    do_train: bool = Group.TRAINING.setting(False, help="Train.")
    learning_rate: float = Group.TRAINING.setting(5e-5, help="Peak learning rate.", at_least=0.0)
    optimizer: str = Group.TRAINING.setting(
        defaults.OPTIMIZERS[0],
        help="adamw: Adam with decoupled weight decay (BERT). lamb: the same, with the update of"
        " each variable scaled to the variable's norm, for large batches (ALBERT).",
        choices=defaults.OPTIMIZERS,
    )
    lamb_bias_correction: bool = Group.TRAINING.setting(
        False,
        help="Correct the bias of the moments, as in MLPerf's and NVIDIA's LAMB but not ALBERT's.",
        needs=("optimizer", "lamb"),
    )
    beta_1: float = Group.TRAINING.setting(
        defaults.BETA_1,
        help="The optimizer's decay rate of the mean of gradients.",
        at_least=0.0,
        below=1.0,
    )
    beta_2: float = Group.TRAINING.setting(
        defaults.BETA_2,
        help="The optimizer's decay rate of the mean of squared gradients.",
        at_least=0.0,
        below=1.0,
    )
    epsilon: float = Group.TRAINING.setting(
        defaults.EPSILON, help="The optimizer's term that avoids division by 0.", above=0.0
    )
    weight_decay_rate: float = Group.TRAINING.setting(
        defaults.WEIGHT_DECAY_RATE,
        help="Weight decay per step, times the learning rate; biases and LayerNorm get none.",
        at_least=0.0,
    )
    clip_norm: float = Group.TRAINING.setting(
        defaults.CLIP_NORM,
        help="Scale a step's gradients down to this norm if theirs is larger; 0: never.",
        at_least=0.0,
    )
    random_seed: int = Group.TRAINING.setting(
        12345, help="Seed of initial weights, dropout and the order of the examples.", at_least=0
    )
    evaluate_every_steps: int = Group.EVALUATION.setting(
        0, help="Evaluate every N training steps; 0: never.", at_least=0, needs="do_train"
    )
    iterations_per_loop: int = Group.COMPUTATION.setting(
        1000,
        help="Training steps to run on the device before control returns to Python.",
        at_least=1,
    )
    gradient_accumulation_steps: int = Group.COMPUTATION.setting(
        1,
        help="Split each batch into N parts and compute them one after another, to save memory. The"
        " update is the same as for the whole batch.",
        at_least=1,
    )
    gradient_reduction: str = Group.TRAINING.setting(
        GRADIENT_REDUCTIONS[0],
        help="How to combine the gradients of several replicas. local_clip_sum: clip each"
        " replica's gradient to --clip_norm, then sum (the original). global_mean_clip: average,"
        " then clip.",
        choices=GRADIENT_REDUCTIONS,
    )
    recompute_activations: bool = Group.COMPUTATION.setting(
        False,
        help="Recompute the activations of each encoder layer in the backward pass instead of"
        " storing them: less memory, more time.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles(Settings):
    """The folder of a run, and the model that it starts from."""

    output_dir: str = Group.OUTPUT.setting(
        help="Folder for checkpoints and results. If it has a checkpoint, the run resumes from it.",
        not_empty=True,
    )
    init_checkpoint: str | None = Group.MODEL.setting(
        None,
        help="Model with the initial weights: its folder, also Hugging Face's, or the prefix of its"
        " checkpoint. Ignored if --output_dir has a checkpoint.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(RunFiles, TrainingOptions):
    """Settings of every program that trains."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningFiles(RunFiles, TextSettings):
    """The files that every fine-tuning program names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions, TextOptions):
    """How a model is fine-tuned, by a program or from Python."""

    amount_of_training: ClassVar[str] = "--num_train_epochs"
    do_eval: ClassVar[bool] = False  # flags in `EvaluationOptions`
    do_predict: ClassVar[bool] = False
    max_seq_length: int = Group.DATA.setting(
        128,
        help="Maximum length of a sequence in word pieces, with [CLS] and [SEP]. Longer sequences"
        " are cut, shorter ones padded.",
        at_least=1,
        at_most=MAX_LENGTH,
        of_model=True,
    )
    train_batch_size: int = Group.TRAINING.setting(
        32, help="Examples in a training step, over all replicas.", at_least=1, at_most=MAX_BATCH
    )
    num_train_epochs: float = Group.TRAINING.setting(
        3.0, help="Passes over the training examples.", above=0.0, at_most=10_000
    )
    warmup_proportion: float = Group.TRAINING.setting(
        0.1,
        help="Share of the training steps in which the learning rate rises from 0 to its peak.",
        at_least=0.0,
        at_most=1.0,
    )
    loss_reduction: str = Group.TRAINING.setting(
        "mean",
        help="mean: the loss of a batch is the mean of its losses. sum: it is their sum, as in"
        " ELECTRA, so that almost every gradient is clipped to the same norm.",
        choices=("mean", "sum"),
    )
    length_buckets: str = Group.COMPUTATION.setting(
        "auto",
        help="Lengths to pad batches to instead of --max_seq_length, such as 32,64,128. auto: up to"
        " eight evenly spaced lengths. none: --max_seq_length only. Evaluation and prediction sort"
        " examples by length; results and their order stay the same.",
    )
    group_by_length: bool = Group.COMPUTATION.setting(
        False,
        help="Put training examples of similar length into one batch, which is faster. Needs"
        " several --length_buckets.",
    )
    freeze_layers: str = Group.TRAINING.setting(
        "",
        help="Layers that keep their pre-trained weights: all, or a list such as"
        " embeddings,0-5,pooler.",
    )
    layerwise_lr_decay: float = Group.TRAINING.setting(
        1.0,
        help="Factor of the learning rate from each layer to the one below, as in ELECTRA: the"
        " task's head has --learning_rate, the pooler --learning_rate * factor, the last layer"
        " --learning_rate * factor^2, and so on down to the embeddings. 1: one rate for all.",
        above=0.0,
        at_most=1.0,
    )
    keep_best: bool = Group.EVALUATION.setting(
        False,
        help="Keep the checkpoint with the best evaluation in OUTPUT_DIR/best, and use it for"
        " evaluation and prediction. With --do_train it needs --evaluate_every_steps.",
    )
    early_stopping_patience: int = Group.EVALUATION.setting(
        0,
        help="Stop training after N evaluations without an improvement; 0: never. Needs"
        " --evaluate_every_steps and implies --keep_best.",
        at_least=0,
    )
    export_dir: str | None = Group.OUTPUT.setting(
        None,
        help="Folder to export the trained model to, with the files of a released model: weights"
        " without optimizer slots, configuration, vocabulary, and labels.txt.",
        not_empty=True,
        needs="do_train",
        because="the model is written after training",
    )

    def __post_init__(self):
        super().__post_init__()
        # Without training, --keep_best evaluates the best checkpoint of an earlier run.
        compares = self.keep_best or self.early_stopping_patience
        if compares and self.do_train and not self.evaluate_every_steps:
            raise UserError(
                "--keep_best and --early_stopping_patience compare evaluations during training; set"
                " how often to evaluate with --evaluate_every_steps"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationOptions(FineTuningOptions):
    """How a model is fine-tuned, evaluated and asked for predictions."""

    do_eval: bool = Group.EVALUATION.setting(
        False, help="Evaluate; with --do_train, after training."
    )
    do_predict: bool = Group.EVALUATION.setting(
        False, help="Predict; with --do_train, after training."
    )
    dev_fraction: float = Group.DATA.setting(
        0.0,
        help="Share of the training examples, and of each class, to hold out and evaluate on, where"
        " there is no dev set. The texts alone decide, so every run holds out the same examples.",
        at_least=0.0,
        at_most=0.5,
    )
    eval_batch_size: int = Group.EVALUATION.setting(
        8, help="Examples in an evaluation step, over all replicas.", at_least=1, at_most=MAX_BATCH
    )
    predict_batch_size: int = Group.EVALUATION.setting(
        8, help="Examples in a prediction step, over all replicas.", at_least=1, at_most=MAX_BATCH
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherCheckpoint(Settings):
    """The teacher of a distillation."""

    teacher_checkpoint: str | None = Group.MODEL.setting(
        None,
        help="Model that teaches: its folder, also Hugging Face's, or its checkpoint's prefix.",
    )
    teacher_config_file: str | None = Group.MODEL.setting(
        None,
        help="Configuration of the teacher. Default: what the folder of --teacher_checkpoint says.",
        needs="teacher_checkpoint",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherSettings(TeacherCheckpoint):
    """The teacher of a distillation, and how the student is compared with the teacher."""

    losses: ClassVar[tuple[str, ...]]  # NAME of each --alpha_NAME
    temperature: float = Group.TRAINING.setting(
        2.0,
        help="Temperature of the soft targets: divides both models' logits.",
        above=0.0,
        needs="teacher_checkpoint",
    )
    alpha_cos: float = Group.TRAINING.setting(
        1.0,
        help="Weight of the cosine loss, which turns the last layer's vectors in the direction of"
        " the teacher's. Both models must have the same hidden_size.",
        at_least=0.0,
        needs="teacher_checkpoint",
    )
    cos_all_layers: bool = Group.TRAINING.setting(
        False,
        help="Let --alpha_cos compare all of the student's layers, each with the teacher's layer at"
        " the same relative depth (TinyBERT): for 3 and 6 layers, the student's layers 1, 2 and 3"
        " with the teacher's 2, 4 and 6. Default: only the last layers are compared (DistilBERT).",
        needs=["teacher_checkpoint", "alpha_cos"],
        because="it says which layers the cosine loss compares",
    )

    @property
    def alphas(self) -> dict[str, float]:
        return {name: getattr(self, f"alpha_{name}") for name in self.losses}

    def __post_init__(self):
        super().__post_init__()
        if not any(self.alphas.values()):
            *first, last = (f"--alpha_{name}" for name in self.losses)
            raise UserError(
                f"At least one of {', '.join(first)} and {last} must be above 0; all are 0, so"
                " there is no loss to train with"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSettings(Settings):
    """The devices to run on."""

    tpu: str | None = Group.DEVICES.setting(
        None,
        help="TPU to run on: `local` for this machine's TPU, run by TensorFlow. `pjrt` runs on all"
        " devices that JAX finds: TPUs of all generations, or --num_cpu_devices.",
    )
    use_tpu: bool = Group.DEVICES.setting(False, help="Run on a TPU.")
    tpu_name: str | None = Group.DEVICES.setting(
        None,
        help="Name of a TPU node. Google ended TPU nodes in April 2025.",
        needs="use_tpu",
        excludes="tpu",
    )
    tpu_zone: str | None = Group.DEVICES.setting(
        None, help="Zone of a TPU node: ignored. Google ended TPU nodes in April 2025."
    )
    gcp_project: str | None = Group.DEVICES.setting(
        None, help="Project of a TPU node: ignored. Google ended TPU nodes in April 2025."
    )
    master: str | None = Group.DEVICES.setting(
        None,
        help="Address of a TPU node. Google ended TPU nodes in April 2025.",
        needs="use_tpu",
        excludes=["tpu", "tpu_name"],
    )
    num_tpu_cores: int | None = Group.DEVICES.setting(
        None, help="Number of cores that the TPU must have. Default: any.", at_least=1
    )
    coordinator: str | None = Group.DEVICES.setting(
        None,
        help="With --tpu=pjrt on several machines, which all run this command: HOST:PORT of"
        " process 0, with --num_processes and --process_index; or `auto` on Cloud TPU, where JAX"
        " finds the machines by itself.",
        needs=("tpu", PJRT),
    )
    num_processes: int | None = Group.DEVICES.setting(
        None,
        help="Number of processes that --coordinator waits for.",
        at_least=1,
        needs="coordinator",
    )
    process_index: int | None = Group.DEVICES.setting(
        None,
        help="Number of this process, from 0, among --num_processes.",
        at_least=0,
        needs="coordinator",
    )
    compilation_cache_dir: str | None = Group.DEVICES.setting(
        None,
        help="Folder, or gs:// folder, where --tpu=pjrt keeps compiled steps, so that a run that"
        " starts again does not compile them again. Default: compilation_cache in --output_dir on a"
        " TPU, otherwise none.",
        needs=("tpu", PJRT),
    )
    distribution_strategy: str = Group.DEVICES.setting(
        STRATEGIES[0],
        help="Devices to use without a TPU. one_device: one GPU, or the CPU. mirrored: all GPUs of"
        " this machine. multi_worker_mirrored: all GPUs of the machines listed in the environment"
        " variable TF_CONFIG. Batch sizes are over all devices.",
        choices=STRATEGIES,
    )
    num_cpu_devices: int = Group.DEVICES.setting(
        1,
        help="Split this machine's CPU into N devices, to try several replicas without GPUs. Needs"
        " --distribution_strategy=mirrored or --tpu=pjrt.",
        at_least=1,
        at_most=64,  # each is traced and compiled
    )

    def __post_init__(self):
        super().__post_init__()
        address, number, index = self.coordinator, self.num_processes, self.process_index
        if not address:
            return
        if address == AUTO:
            if (number, index) != (None, None):
                raise UserError(
                    f"--coordinator={AUTO} finds the processes by itself: leave --num_processes and"
                    " --process_index out, or give the HOST:PORT of process 0"
                )
        elif not _is_address(address):
            raise UserError(
                f"--coordinator={as_given(address)} must be the HOST:PORT of process 0, the port"
                f" from 1 to 65535, or {AUTO}"
            )
        elif number is None or index is None:
            raise UserError(
                f"--coordinator={as_given(address)} needs --num_processes and --process_index; only"
                f" --coordinator={AUTO} needs neither"
            )
        elif index >= number:
            raise UserError(
                f"--process_index={index} must be from 0 to {number - 1}, because"
                f" --num_processes={number}"
            )


def _is_address(value: str) -> bool:
    found = re.fullmatch(r"\S+:([0-9]{1,5})", value)
    return found is not None and 0 < int(found[1]) < 2**16
