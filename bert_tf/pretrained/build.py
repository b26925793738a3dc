"""Builds the Keras model with a given head from the weights in a folder."""

import keras

from bert_tf.errors import UserError, listed
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.seeds import reading_weights
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel

# Head -> its Keras model, built from a configuration and a number of classes.
BUILDERS = {
    "masked_lm": lambda config, num_labels: PretrainingModel(config),
    "classification": ClassificationModel,
    "regression": ClassificationModel,
    "tagging": TaggingModel,
    "multiple_choice": lambda config, num_labels: MultipleChoiceModel(config),
    "squad": lambda config, num_labels: SquadModel(config),
    "": lambda config, num_labels: FeaturesModel(config),
}
# Weights that a checkpoint may lack if no answer depends on them, and heads that need all weights.
_OPTIONAL = ("bert/pooler/", "cls/seq_relationship/")
_WITH_POOLER = ("classification", "regression", "multiple_choice")


def build_model(head: str, folder: ModelFolder) -> keras.Model:
    """Returns the Keras model with a head, its weights read from a folder.

    Args:
        head: a name in `BUILDERS`; "" for BERT without a head.
        folder: the folder with the weights.

    Raises:
        UserError: weights that answers depend on are missing or have the wrong shape.
    """
    with reading_weights():
        model = BUILDERS[head](folder.config, max(1, len(folder.labels)))
    optional = () if head in _WITH_POOLER else _OPTIONAL
    wrong = []
    for variable in model.variables:
        shape = folder.shapes.get(variable.path)
        if shape is None and variable.path.startswith(optional):
            continue
        if shape is None or list(shape) != list(variable.shape):
            found = "missing" if shape is None else f"{list(shape)}"
            wrong.append(f"{variable.path}: {found}, not {list(variable.shape)}")
            continue
        variable.assign(folder.read(variable.path))
    if wrong:
        raise UserError(
            f"{folder.path} must have the weights of the model that its configuration describes;"
            f" {len(wrong)} are missing or have the wrong shape: {listed(wrong[:3])}"
        )
    return model
