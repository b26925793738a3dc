"""Fine-tuning of a model in memory, on examples in memory: what takes the place of files."""

import dataclasses
from collections.abc import Mapping

from bert_tf.errors import UserError
from bert_tf.files.model_input import ModelInput
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.runs.training.trainer import Start
from bert_tf.runs.training.watch import CallbackWatch
from bert_tf.tasks.task import ExampleSet
from bert_tf.text.tokenizers import Tokenizer


@dataclasses.dataclass(kw_only=True)
class InMemory:
    """A model to start from, and examples.

    tokenizer: the model's.
    start: sets a new model's variables to the weights of the model; see `Trainer`.
    sets: the examples by purpose.
    watch: calls Keras's callbacks in training; None in a run that does not train.
    saves: whether --output_dir gets checkpoints. If not, it is for this run only.
    model_input, config: after training, what the model was trained on, and its configuration.
    """

    tokenizer: Tokenizer
    start: Start
    sets: Mapping[str, ExampleSet]
    watch: CallbackWatch | None = None
    saves: bool = False
    model_input: ModelInput = ModelInput()
    config: BertConfig | None = None

    def wanted(self, settings: FineTuningSettings) -> dict[str, bool]:
        """Returns whether a run evaluates: on the examples for it, whenever there are some.

        Raises:
            UserError: the settings ask for an evaluation, but there are no examples for it.
        """
        there = "eval" in self.sets or bool(getattr(settings, "dev_fraction", 0.0))
        for name in ("evaluate_every_steps", "do_eval"):
            if getattr(settings, name) and not there:
                raise UserError(f"--{name} needs validation_data or --dev_fraction; give one")
        return {"eval": there}
