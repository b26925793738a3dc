"""Makes a fine-tuning program: defines a task's settings as flags, and `main`."""

from collections.abc import Callable

from absl import flags

from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import DeviceSettings, ModelSettings
from bert_tf.tasks.registry import TASKS

run = command_flags.run_program

# --help lists the flags under the calling program.
flags.disclaim_key_flags()


def main_of(name: str) -> Callable[[], None]:
    """Defines the flags of the program for a task of `registry.TASKS`; returns its `main`."""
    settings_classes = TASKS[name].settings_classes()
    command_flags.define_flags(*settings_classes, ModelSettings, DeviceSettings)

    def main() -> None:
        # Imported late: --help and errors in flags should not wait for TensorFlow.
        from bert_tf.tasks.fine_tuning import run_fine_tuning

        config = command_flags.model_from_flags(*settings_classes, ModelSettings)
        settings = map(command_flags.settings_from_flags, settings_classes)
        task = TASKS[name].files_class().from_settings(*settings)
        strategy = command_flags.get_strategy()
        run_fine_tuning(task, config, strategy)

    return main
