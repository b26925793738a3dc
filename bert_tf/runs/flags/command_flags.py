"""Defines flags from settings and runs a program's main function. For programs and tools."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging as python_logging
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from absl import app, flags, logging

from bert_tf.engine import distribution, interrupts
from bert_tf.errors import UserError, as_line, quoted
from bert_tf.files import storage
from bert_tf.runs.flags import command_line
from bert_tf.runs.flags.command_line import help_page
from bert_tf.runs.flags.setting_fields import (
    REQUIRED,
    Group,
    Settings,
    flags_of,
    help_text,
    rule_of,
)
from bert_tf.runs.flags.settings import DeviceSettings
from bert_tf.runs.folder import flags_file, goodput
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.start import quiet_start

if TYPE_CHECKING:
    from bert_tf.model.configuration import BertConfig

# 65, 70 and 74.
DIVERGED_STATUS, UNEXPECTED_STATUS, IO_ERROR_STATUS = os.EX_DATAERR, os.EX_SOFTWARE, os.EX_IOERR

T = TypeVar("T", bound=Settings)

_groups: dict[str, Group] = {}
_settings: list[type[Settings]] = []  # given to `define_flags`

# So that --help lists the flags defined below under the calling program, not under this module.
flags.disclaim_key_flags()

if multiprocessing.current_process().name != "MainProcess":
    # A worker process gets settings and no command line; without this, absl would warn.
    flags.FLAGS.mark_as_parsed()


def run_program(
    main: Callable[..., None],
    takes_words: bool = False,
    takes_others: bool = False,
    check_words: Callable[[list[str]], None] = lambda words: None,
) -> None:
    """Parses and checks the command line, imports TensorFlow without noise, and runs `main`.

    --help prints the program's docstring and flags, and exits with status 0. Other exit statuses: 1
    for an error that the user can fix, with the message on one line (with --verbosity=1 also the
    traceback); 65 if training diverged; 74 if reading or writing failed and 70 for an unexpected
    exception, both worth a retry; 130 after Ctrl-C and 75 after SIGTERM (preemption), both after
    work in progress is saved or removed.

    Args:
        takes_words: call `main` with the list of words that are not flags, or that follow `--`. By
            default such words are an error.
        takes_others: like `takes_words`, but the words include unknown flags (a library's).
        check_words: raises UserError if `main` cannot use these words.
    """
    takes_words = takes_words or takes_others

    def guarded(argv: list[str]) -> None:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.INFO)
            # TensorFlow logs lines about devices and collectives, each twice.
            python_logging.getLogger("tensorflow").setLevel(python_logging.WARNING)
        _warn_of_empty_values()
        interrupts.raise_on_sigterm()
        interrupts.raise_on_ctrl_c()
        goodput.count_from_process_start()
        try:
            check_words(argv[1:])
            settings = [settings_from_flags(cls) for cls in _settings]
            check_model_named(settings, flags.FLAGS.flag_values_dict())
            quiet_start.import_tensorflow()
            gc.freeze()  # modules are never garbage
            main(*([argv[1:]] if takes_words else []))
            interrupts.ignore_sigterm()
        except KeyboardInterrupt as interrupt:
            distribution.fail(interrupts.exit_status(interrupt))
        except Exception as error:
            if interrupt := interrupts.raised():  # C++ turned the interrupt into this error
                distribution.fail(interrupts.exit_status(interrupt))
            status, message = _explain(error)
            if message is None:
                traceback.print_exc()
            elif logging.level_debug():
                raise
            else:
                _print_error(message)
            distribution.fail(status)

    with _checked_output():
        app.run(guarded, flags_parser=lambda argv: _parse(argv, takes_words, takes_others))


def _warn_of_empty_values() -> None:
    """Warns of flags such as --init_checkpoint=$MODEL whose variable is not set."""
    given = {name: flags.FLAGS[name] for name in flags.FLAGS if flags.FLAGS[name].present}
    for name in (name for name, x in given.items() if x.value == "" and x.default is None):
        logging.warning(
            "--%s= has no value. Leave it out, or set the shell variable that it comes from",
            name,
        )


def _explain(error: Exception) -> tuple[int, str | None]:
    """Returns the exit status, and the message or, for an unexpected exception, None."""
    if isinstance(error, FloatingPointError):
        return DIVERGED_STATUS, str(error)
    if isinstance(error, UserError | OSError):
        return IO_ERROR_STATUS if isinstance(error, OSError) else 1, str(error)
    text = quoted(storage.error_text(getattr(error, "message", str(error))))
    if isinstance(error, tf.errors.OpError) and storage.tells_of_storage(error.message):
        return IO_ERROR_STATUS, text
    if "File system scheme" in str(error):
        return 1, f"{text}; use files on this machine or in gs://"
    of_jax = "RESOURCE_EXHAUSTED" in str(error)
    if of_jax or isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return 1, (
            f"this machine or device ran out of memory ({text}); lower the batch size or the"
            " sequence length, or use a smaller model"
        )
    return UNEXPECTED_STATUS, None


def _print_error(message: str) -> None:
    print(as_line(f"{os.path.basename(sys.argv[0])}: {message}"), file=sys.stderr)


@contextlib.contextmanager
def _checked_output() -> Iterator[None]:
    """Ends the program if its standard output cannot be written, as on a full disk."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again
        _print_error(f"the standard output cannot be written: {error.strerror}")
        sys.exit(IO_ERROR_STATUS)


def _parse(argv: list[str], takes_words: bool = False, takes_others: bool = False) -> list[str]:
    for name in ("help", "helpshort"):
        flags.FLAGS[name] = _HelpFlag(name)
    try:
        return [argv[0], *command_line.parse(argv[1:], takes_words, takes_others)]
    except command_line.CommandLineError as error:
        _print_error(f"{error} (--help lists the flags)")
        sys.exit(1)


# Type in a field's hint -> absl's function that defines the flag; the first match counts.
_DEFINE = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    Sequence[str]: flags.DEFINE_list,
    str: flags.DEFINE_string,
}


class _HelpFlag(flags.BooleanFlag):
    def __init__(self, name: str):
        short_name = "?" if name == "help" else "h"
        super().__init__(name, False, "Show this help.", short_name, allow_override=True)

    def parse(self, argument: str | bool) -> None:
        if self.parser.parse(argument):
            own = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
            docstring = sys.modules["__main__"].__doc__ or ""  # none with python -OO
            print(help_page(docstring, own, _groups), end="")
            sys.exit(0)


def define_flags(*settings: type[Settings]) -> None:
    """Defines a flag for each field that `Group.setting` made."""
    _settings.extend(settings)
    for cls in settings:
        hints = get_type_hints(cls)
        for field in flags_of(cls):
            _define_flag(field, hints[field.name], help_text(cls, field))
            _groups[field.name] = rule_of(field).group


def _define_flag(field: dataclasses.Field, hint: Any, text: str) -> None:
    rule, name, required = rule_of(field), field.name, field.default is REQUIRED
    default = None if required else field.default
    if rule.choices is not None:
        flags.DEFINE_enum(name, default, rule.choices, text, required=required)
    else:
        define = next(_DEFINE[kind] for kind in _DEFINE if kind in (*get_args(hint), hint))
        default = list(default) if isinstance(default, tuple) else default
        define(name, default, text, required=required)

    def validate(value: Any) -> bool:
        if problem := rule.problem(value):
            raise flags.ValidationError(problem)
        return True

    flags.register_validator(name, validate)


def settings_from_flags(settings: type[T]) -> T:
    given = {name for name in flags.FLAGS if flags.FLAGS[name].present}
    return settings.from_flags(flags.FLAGS.flag_values_dict(), given)


def model_from_flags(*settings: type[Settings]) -> BertConfig | None:
    """Returns the model's configuration; sets the flags that `follow_model` finds."""
    given = {name for name in flags.FLAGS if flags.FLAGS[name].present}
    values = flags.FLAGS.flag_values_dict()
    config, found = follow_model([*map(settings_from_flags, settings)], values, given)
    for name, value in found.items():
        setattr(flags.FLAGS, name, value)
    return config


def get_strategy() -> tf.distribute.Strategy:
    """Returns the strategy that the device flags name; sets the global seed to --random_seed."""
    if "random_seed" in flags.FLAGS:
        # tf.data's shuffles depend on the global seed. The library never sets it: callers do.
        tf.random.set_seed(flags.FLAGS.random_seed)
    devices = settings_from_flags(DeviceSettings)
    if devices.use_tpu or devices.tpu:
        strategy = _tpu_strategy(devices)
    else:
        strategy = distribution.get_strategy(devices.distribution_strategy, devices.num_cpu_devices)
    words = {x.serialize(): x.present for x in _own_flags() if x.value is not None}
    flags_file.note([word if given else f"# {word}" for word, given in sorted(words.items())])
    if devices.coordinator and distribution.several_processes(strategy):
        strategy.check_same(_common_flags())
    # TensorFlow's cluster service replaces SIGTERM's handler, and the TPU's driver may replace it.
    interrupts.raise_on_sigterm()
    return strategy


_OF_PROCESS = "coordinator process_index input_file output_dir compilation_cache_dir".split()


def _own_flags() -> list[flags.Flag]:
    """Returns the flags that absl does not define."""
    modules = flags.FLAGS.flags_by_module_dict().items()
    own = [flag for module, of in modules if not module.startswith("absl") for flag in of]
    return [*{flag.name: flag for flag in own}.values()]


def _common_flags() -> list[str]:
    """Returns the flags, as --NAME=VALUE, that must be the same in all processes.

    Leaves out `_OF_PROCESS`: machines may have copies of the input and different names for the
    coordinator, and tools.try_devices gives each process its own folder.
    """
    return sorted(f"--{x.name}={x.value}" for x in _own_flags() if x.name not in _OF_PROCESS)


def _tpu_strategy(devices: DeviceSettings) -> tf.distribute.Strategy:
    names = {name: getattr(devices, name) for name in ("tpu", "tpu_name", "master")}
    flag, tpu = next(((k, v) for k, v in names.items() if v), ("tpu", "local"))
    pjrt = tpu == distribution.PJRT
    for name in ("distribution_strategy", *(() if pjrt else ("num_cpu_devices",))):
        if flags.FLAGS[name].present:
            raise UserError(f"--{name} is for runs without a TPU; leave out --{name} or --tpu")
    if pjrt:
        from bert_tf.engine.pjrt import connect  # imports TensorFlow

        cpus = devices.num_cpu_devices if flags.FLAGS["num_cpu_devices"].present else None
        processes = (devices.coordinator, devices.num_processes, devices.process_index)
        output = flags.FLAGS.output_dir if "output_dir" in flags.FLAGS else None
        cache = os.path.join(output, "compilation_cache") if output else None
        return connect(cpus, devices.num_tpu_cores, processes, devices.compilation_cache_dir, cache)
    return distribution.get_tpu_strategy(tpu, devices.num_tpu_cores, flag)


CONFIG, VOCABULARY, CASING, LENGTH = OF_MODEL = (
    "bert_config_file",
    "vocab_file",
    "do_lower_case",
    "max_seq_length",
)


def check_model_named(settings: Collection[Settings], values: Mapping[str, Any]) -> None:
    """Raises UserError if no flag says where the model is; arguments as for `follow_model`."""
    output_dir = values.get("output_dir") or ""
    needed = _asked(settings, values)[-1]
    may_resume = "://" in output_dir or os.path.isdir(output_dir)
    if needed and not values.get("init_checkpoint") and not may_resume:
        raise _no_model(needed)


def _asked(
    settings: Collection[Settings], values: Mapping[str, Any]
) -> tuple[set[str], list[str], list[str]]:
    """Returns the flags that a folder may decide, the files to look for, and the required files."""
    follows = {x.name for one in settings for x in flags_of(type(one)) if rule_of(x).of_model}
    asked = [name for name in (CONFIG, VOCABULARY) if name in follows and not values[name]]
    if any(getattr(one, "needs_vocabulary", False) for one in settings):
        return follows, asked, asked
    if CONFIG not in asked:
        return follows, [], []  # the original pre-trains without a vocabulary
    return follows, asked, [CONFIG]


def _no_model(needed: Collection[str]) -> UserError:
    return UserError(
        "--init_checkpoint=FOLDER must be given, the folder of a model with its configuration and"
        f" vocabulary; or, without such a model, {' and '.join(f'--{name}' for name in needed)}"
    )


def follow_model(
    settings: Collection[Settings], values: Mapping[str, Any], given: Collection[str]
) -> tuple[BertConfig | None, dict[str, Any]]:
    """Returns a model's configuration, and the values of flags that its folder decides.

    The folder is --init_checkpoint's or, without that flag, --output_dir if that has a checkpoint.
    It decides the flags in `OF_MODEL` that are not `given` on the command line and that the
    settings let it decide (`FieldRule.of_model`); casing and length only together with the
    vocabulary. The configuration is None if the program does not take --bert_config_file.
    """
    # Here, because these import TensorFlow, which `check_model_named` does not need.
    from bert_tf.files.checkpoint_directory import CheckpointDirectory
    from bert_tf.model.family import read_config
    from bert_tf.model_folder.reader import ModelFiles

    follows, asked, needed = _asked(settings, values)
    config = read_config(values[CONFIG]) if values.get(CONFIG) else None
    place, flag = values.get("init_checkpoint"), "init_checkpoint"
    if not place and asked and CheckpointDirectory(values.get("output_dir") or "").latest():
        place, flag = values["output_dir"], "output_dir"
    if needed and not place:
        raise _no_model(needed)
    if not asked or not place:
        return config, {}
    files = ModelFiles.of_flag(place, flag)
    if config and not files.is_hugging_face:
        files = ModelFiles.of_flag(place, flag, values[CONFIG])
    found: dict[str, Any] = {}
    if CONFIG in asked:
        config, found[CONFIG] = files.config, files.config_file
    if VOCABULARY in asked and (VOCABULARY in needed or files.vocab_file):
        tokenizer = files.tokenizer()
        decided = {
            VOCABULARY: files.vocab_file,
            CASING: tokenizer.do_lower_case,
            LENGTH: files.usual_length(values.get(LENGTH)),
        }
        told = {*given} - {VOCABULARY}  # an empty --vocab_file= is ignored
        found |= {name: decided[name] for name in (follows & decided.keys()) - told}
    taken = [f"--{name}={found[name]}" for name in OF_MODEL if name in found]
    logging.info("From --%s=%s: %s", flag, place, " ".join(taken))
    return config, found
