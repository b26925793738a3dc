"""Groups of flags that programs share, with their validators. Called by programs and tools."""

import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from absl import app, flags, logging

from bert_tf.engine import distribution, interrupts
from bert_tf.errors import UserError

# EX_DATAERR, EX_SOFTWARE and EX_IOERR of sysexits.h.
DIVERGED_STATUS = 65
UNEXPECTED_STATUS = 70
IO_ERROR_STATUS = 74

T = TypeVar("T")

# What the functions below define counts as the calling program's own in its --help.
flags.disclaim_key_flags()


def run_program(main: Callable[[], None]) -> None:
    """Parses the command line, refuses stray words, and runs `main`.

    An error that the user can mend ends the program with its message and status 1; with
    --verbosity=1 its traceback is shown, too. The status is 65 where training diverged. What may
    pass by itself has other statuses, so that a job can be started again: 74 where reading or
    writing failed, 70 for what nobody expected. An interrupt ends the program politely: what is
    begun is saved or removed. The status is then 130 for Ctrl-C and 75 for SIGTERM, which is what a
    machine that is taken away sends.
    """

    def guarded(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(
                "flags are written --name=value (--noname for a false one); received the stray"
                f" words {' '.join(argv[1:])!r}"
            )
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.INFO)
            # TensorFlow's own account of devices and collectives, each line twice.
            tf.get_logger().setLevel(logging.converter.ABSL_TO_STANDARD[logging.WARNING])
        interrupts.raise_on_sigterm()
        try:
            main()
            interrupts.ignore_sigterm()
        except (UserError, OSError, FloatingPointError) as error:
            if logging.level_debug():
                raise
            print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
            if isinstance(error, FloatingPointError):
                sys.exit(DIVERGED_STATUS)
            sys.exit(IO_ERROR_STATUS if isinstance(error, OSError) else 1)
        except Exception:
            traceback.print_exc()
            sys.exit(UNEXPECTED_STATUS)
        except KeyboardInterrupt as interrupt:
            sys.exit(interrupts.exit_status(interrupt))

    app.run(guarded)


def define_model_flags() -> None:
    """Defines --bert_config_file, --output_dir, --init_checkpoint and how the model computes."""
    flags.DEFINE_string(
        "bert_config_file", None, "The model's configuration: a bert_config.json.", required=True
    )
    flags.DEFINE_string(
        "output_dir",
        None,
        "Where checkpoints and results are written. If it has a checkpoint, the run goes on from"
        " there.",
        required=True,
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Checkpoint with the initial weights: the prefix of its files, or a directory with a file"
        " `checkpoint`. Not read where --output_dir has a checkpoint.",
    )
    define_computation_flags()
    flags.DEFINE_integer(
        "random_seed",
        12345,
        "Seed of initial weights, dropout and the order of the input.",
        lower_bound=0,
        upper_bound=2**31 - 1,
    )


def define_computation_flags() -> None:
    """Defines --dtype and --use_one_hot_embeddings."""
    flags.DEFINE_enum(
        "dtype",
        None,
        ["float32", "bfloat16"],
        "What matrix products are computed in. By default bfloat16 on TPUs, float32 elsewhere.",
    )
    flags.DEFINE_bool(
        "use_one_hot_embeddings",
        None,
        "Whether word embeddings are looked up by a matrix product with one-hot ids instead of a"
        " gather. By default on TPUs only.",
    )


def define_text_flags() -> None:
    """Defines --vocab_file and --do_lower_case."""
    flags.DEFINE_string(
        "vocab_file", None, "The vocabulary that the model was trained on.", required=True
    )
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Whether to lower-case the text: True for uncased models, False for cased ones.",
    )


def define_training_flags() -> None:
    """Defines the flags of the training loop."""
    flags.DEFINE_bool("do_train", False, "Whether to train.")
    _define_count("train_batch_size", 32, "Examples in a training step.")
    flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate of Adam.")
    flags.register_validator(
        "learning_rate",
        lambda rate: math.isfinite(rate) and rate >= 0.0,
        "it must be a finite number of at least 0",
    )
    _define_count(
        "save_checkpoints_steps",
        1000,
        "A checkpoint is written every so many steps, at the start and at the end.",
    )
    _define_count(
        "keep_checkpoint_max", 5, "How many of the newest checkpoints are kept; 0 for all.", 0
    )
    _define_count(
        "iterations_per_loop", 1000, "Steps made on the devices without coming back to Python."
    )
    _define_count(
        "gradient_accumulation_steps",
        1,
        "Parts in which a batch is computed one after another, to save memory. The update is that"
        " of the whole batch.",
    )
    flags.DEFINE_enum(
        "gradient_reduction",
        distribution.GRADIENT_REDUCTIONS[0],
        distribution.GRADIENT_REDUCTIONS,
        "How the gradients of several replicas become one. local_clip_sum: each clips its own to"
        " norm 1, and they are summed (the original). global_mean_clip: their mean is clipped.",
    )
    flags.DEFINE_bool(
        "recompute_activations",
        False,
        "Whether the backward pass computes each encoder layer again instead of keeping its"
        " activations: less memory, more time.",
    )


def define_eval_flags() -> None:
    """Defines --do_eval and --eval_batch_size."""
    flags.DEFINE_bool("do_eval", False, "Whether to evaluate (after training, if both).")
    _define_count("eval_batch_size", 8, "Examples in an evaluation step.")


def define_predict_flags() -> None:
    """Defines --do_predict and --predict_batch_size."""
    flags.DEFINE_bool("do_predict", False, "Whether to predict (after training, if both).")
    _define_count("predict_batch_size", 8, "Examples in a prediction step.")


def define_fine_tuning_flags() -> None:
    """Defines the flags of a fine-tuning run."""
    define_text_flags()
    _define_count(
        "max_seq_length",
        128,
        "Longest sequence in word pieces; longer ones are cut, shorter ones padded.",
    )
    flags.DEFINE_float("num_train_epochs", 3.0, "Times that training sees all examples.")
    flags.register_validator(
        "num_train_epochs",
        lambda epochs: math.isfinite(epochs) and epochs > 0.0,
        "it must be a finite number above 0",
    )
    flags.DEFINE_float(
        "warmup_proportion",
        0.1,
        "Share of the training steps over which the learning rate rises from 0.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.DEFINE_string(
        "length_buckets",
        "auto",
        "Lengths that batches are padded to in place of --max_seq_length, such as 32,64,128: auto"
        " for up to eight evenly spaced ones, none for --max_seq_length alone. Evaluation and"
        " prediction sort by length; results and their order stay the same.",
    )
    flags.DEFINE_bool(
        "group_by_length",
        False,
        "Whether training makes its batches of examples of like length, which is faster.",
    )
    flags.DEFINE_string(
        "freeze_layers",
        "",
        "What keeps its pre-trained weights: all, or a list such as embeddings,0-5,pooler.",
    )
    _define_count(
        "evaluate_every_steps", 0, "Evaluate every so many steps of training; 0 for never.", 0
    )
    flags.DEFINE_bool(
        "keep_best",
        False,
        "Whether to keep the checkpoint with the best evaluation (OUTPUT_DIR/best), and to evaluate"
        " and predict with it. In training it needs --evaluate_every_steps.",
    )
    _define_count(
        "early_stopping_patience",
        0,
        "Stop training after so many evaluations without a better one; 0 for never. It needs"
        " --evaluate_every_steps, and keeps the best as --keep_best does.",
        0,
    )
    flags.DEFINE_string(
        "export_dir",
        None,
        "Where to write the trained weights without optimizer slots, with configuration,"
        " vocabulary and labels.txt: a folder like those of the released models.",
    )


def settings_from_flags(settings: type[T], **others: Any) -> T:
    """Returns an instance of a dataclass whose fields are flags, but for `others`."""
    names = settings.__dataclass_fields__.keys() - others.keys()
    return settings(**{name: flags.FLAGS[name].value for name in names}, **others)


def computation_options(on_tpu: bool) -> dict[str, bool | str]:
    """Returns how the model computes: by the flags, else as suits a TPU or anything else."""
    one_hot = flags.FLAGS.use_one_hot_embeddings
    return {
        "use_one_hot_embeddings": on_tpu if one_hot is None else one_hot,
        "dtype": flags.FLAGS.dtype or ("bfloat16" if on_tpu else "float32"),
    }


def model_options(on_tpu: bool) -> dict[str, bool | str]:
    """Returns how a model that is trained computes."""
    recompute = flags.FLAGS.recompute_activations
    return {**computation_options(on_tpu), "recompute_activations": recompute}


def _define_count(name: str, default: int, help_text: str, least: int = 1) -> None:
    flags.DEFINE_integer(name, default, help_text, lower_bound=least)


def define_device_flags() -> None:
    """Defines --tpu, the original's flags around it, and those for several GPUs and machines."""
    flags.DEFINE_string(
        "tpu",
        None,
        "The TPU to run on: `local` for this machine's own, a name, or grpc://ADDRESS:8470. Short"
        " for --use_tpu --tpu_name=...",
    )
    flags.DEFINE_bool("use_tpu", False, "Whether to run on a TPU.")
    flags.DEFINE_string("tpu_name", None, "As --tpu, but of effect with --use_tpu only.")
    flags.DEFINE_string("tpu_zone", None, "Zone of the TPU, if it cannot be found out.")
    flags.DEFINE_string("gcp_project", None, "Project of the TPU, if it cannot be found out.")
    flags.DEFINE_string("master", None, "Address of the TPU (grpc://...) if it has no name.")
    flags.DEFINE_integer(
        "num_tpu_cores",
        None,
        "How many cores the TPU must have; by default whatever there is.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "distribution_strategy",
        distribution.STRATEGIES[0],
        distribution.STRATEGIES,
        "Without a TPU: one GPU or CPU, every GPU of this machine, or every GPU of several machines"
        " that the environment variable TF_CONFIG lists. Batch sizes are over all of them.",
    )
    flags.DEFINE_integer(
        "num_cpu_devices",
        1,
        "With --distribution_strategy=mirrored: make this machine's CPU appear as so many devices,"
        " to try several replicas without GPUs.",
        lower_bound=1,
    )


def get_strategy(path_flags: Sequence[str]) -> tuple[tf.distribute.Strategy, bool]:
    """Returns the strategy that the device flags ask for, and whether it is one on a TPU.

    Args:
        path_flags: the flags (no dashes) with the paths that the devices' hosts read and write.

    Raises:
        UserError: flags contradict each other; the TPU cannot be reached, has another number of
            cores, or is another machine's, which does not see the paths.
    """
    values = flags.FLAGS
    if not (values.use_tpu or values.tpu):
        strategy = distribution.get_strategy(values.distribution_strategy, values.num_cpu_devices)
        interrupts.raise_on_sigterm()  # TensorFlow's cluster service has put itself there
        return strategy, False
    for name in ("distribution_strategy", "num_cpu_devices"):
        if values[name].present:
            raise UserError(f"--{name} is of use without a TPU only; leave it or --tpu out")
    tpu = values.tpu or values.tpu_name or values.master or os.environ.get("TPU_NAME", "local")
    distribution.check_paths(tpu, {name: values[name].value for name in path_flags})
    strategy = distribution.get_tpu_strategy(
        tpu, values.tpu_zone, values.gcp_project, values.num_tpu_cores
    )
    interrupts.raise_on_sigterm()  # in case the TPU's driver has
    return strategy, True
