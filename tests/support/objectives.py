"""Models with random weights, and their losses and predictions for a batch."""

from tests.support import numpy_bert


def set_random_weights(model, seed=0):
    """Gives a model random weights; returns them by name."""
    weights = numpy_bert.random_weights({v.path: v.shape for v in model.variables}, seed)
    for variable in model.variables:
        variable.assign(weights[variable.path])
    return weights


def compute(objective, features, training=False, dropout_seed=None):
    """Returns the loss and the metrics of a whole batch; the model of a task is an objective."""
    outputs = objective(features, training=training, dropout_seed=dropout_seed)
    return objective.loss_and_metrics(outputs, features, objective.normalizers(features))


def predict(model, features):
    return model.predictions(model(features), features)


class OtherObjective:
    """Base class of an objective whose loss is not the model's."""

    def __init__(self, model):
        self.model = model
        self.layers = model.layers
        self.trainable_variables = model.trainable_variables

    def normalizers(self, features):
        return {}
