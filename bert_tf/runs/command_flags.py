"""Flags from settings, and how a program runs. For programs and tools."""

import dataclasses
import functools
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args, get_type_hints

import tensorflow as tf
from absl import app, flags, logging

from bert_tf.engine import distribution, interrupts
from bert_tf.errors import UserError
from bert_tf.runs.setting_fields import REQUIRED, FieldRule, Settings, rule_of
from bert_tf.runs.settings import DeviceSettings

# EX_DATAERR, EX_SOFTWARE and EX_IOERR of sysexits.h.
DIVERGED_STATUS = 65
UNEXPECTED_STATUS = 70
IO_ERROR_STATUS = 74

T = TypeVar("T", bound=Settings)

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


def define_flags(*settings: type[Settings]) -> None:
    """Defines a flag for each field of the settings that was made by `setting`."""
    for cls in settings:
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            rule = rule_of(field)
            if rule is not None:
                _define_flag(field, rule, hints[field.name])


def _define_flag(field: dataclasses.Field, rule: FieldRule, hint: Any) -> None:
    name, required = field.name, field.default is REQUIRED
    default = None if required else field.default
    kinds = {kind for kind in (*get_args(hint), hint) if kind is not type(None)}
    if rule.choices is not None:
        flags.DEFINE_enum(name, default, rule.choices, rule.help, required=required)
    elif bool in kinds:
        flags.DEFINE_bool(name, default, rule.help, required=required)
    elif int in kinds:
        bounds = {"lower_bound": rule.at_least, "upper_bound": rule.at_most}
        flags.DEFINE_integer(name, default, rule.help, required=required, **bounds)
    elif float in kinds:
        flags.DEFINE_float(name, default, rule.help, required=required)
        flags.register_validator(name, functools.partial(_validate, rule))
    elif hint == Sequence[str] or Sequence[str] in kinds:
        default = None if default is None else list(default)
        flags.DEFINE_list(name, default, rule.help, required=required)
    elif str in kinds:
        flags.DEFINE_string(name, default, rule.help, required=required)
    else:
        raise TypeError(f"{name}: no flag can be made for {hint}")


def _validate(rule: FieldRule, value: Any) -> bool:
    problem = rule.problem(value)
    if problem:
        raise flags.ValidationError(problem)
    return True


def settings_from_flags(settings: type[T], **others: Any) -> T:
    """Returns settings with the values of their flags.

    Args:
        settings: a class that `define_flags` has defined the flags of.
        **others: the fields that are no flags.
    """
    names = [field.name for field in dataclasses.fields(settings) if rule_of(field)]
    return settings(**{name: flags.FLAGS[name].value for name in names}, **others)


def given(settings: type[Settings]) -> set[str]:
    """Returns the names of the settings' flags that the command line or a flagfile gives."""
    names = [field.name for field in dataclasses.fields(settings) if rule_of(field)]
    return {name for name in names if flags.FLAGS[name].present}


def get_strategy(path_flags: Sequence[str]) -> tf.distribute.Strategy:
    """Returns the strategy for the devices in the flags of `DeviceSettings`.

    Args:
        path_flags: names of the flags with paths that the hosts of the devices read or write.

    Raises:
        UserError: flags contradict each other; the TPU cannot be reached, has another number of
            cores, or is another machine's, which does not see the paths.
    """
    devices = settings_from_flags(DeviceSettings)
    if not (devices.use_tpu or devices.tpu):
        strategy = distribution.get_strategy(devices.distribution_strategy, devices.num_cpu_devices)
        interrupts.raise_on_sigterm()  # TensorFlow's cluster service has put itself there
        return strategy
    for name in ("distribution_strategy", "num_cpu_devices"):
        if name in given(DeviceSettings):
            raise UserError(f"--{name} is for runs without a TPU; leave it or --tpu out")
    tpu = devices.tpu or devices.tpu_name or devices.master or os.environ.get("TPU_NAME", "local")
    distribution.check_paths(tpu, {name: flags.FLAGS[name].value for name in path_flags})
    strategy = distribution.get_tpu_strategy(
        tpu, devices.tpu_zone, devices.gcp_project, devices.num_tpu_cores
    )
    interrupts.raise_on_sigterm()  # in case the TPU's driver has
    return strategy
