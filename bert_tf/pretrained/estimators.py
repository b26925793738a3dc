"""Estimators of scikit-learn that fine-tune a model on texts.

print(cross_val_score(bert_tf.BertClassifier("uncased_L-12_H-768_A-12"), texts, labels, cv=5))
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bert_tf.errors import UserError
from bert_tf.pretrained.kinds.rows import check_there, read_rows
from bert_tf.pretrained.model import Pretrained, load


class TextEstimator(BaseEstimator):
    """The base class of the estimators.

    X is a list, an array or a column of texts; or of pairs: a list of tuples, or two columns.

    Args:
        folder: the model to start from; see `bert_tf.load`.
        epochs: number of passes over the texts; None for the program's default, here and below.
        learning_rate: the highest rate, at the end of the warm-up.
        batch_size: number of texts in a step.
        max_seq_length: longest text in word pieces, [CLS] and [SEP] included; see `Pretrained.fit`.
        random_state: the seed.
        options: other arguments of `Pretrained.fit`, such as `{"warmup_proportion": 0.0}`.

    Attributes:
        model_: the trained model. `model_.save(FOLDER)` keeps it for other programs.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_seq_length: int | None = None,
        random_state: int | None = None,
        options: Mapping[str, Any] | None = None,
    ):
        self.folder, self.epochs, self.learning_rate = folder, epochs, learning_rate
        self.batch_size, self.max_seq_length = batch_size, max_seq_length
        self.random_state, self.options = random_state, options

    def _load(self) -> Pretrained:
        if self.folder is None:
            raise UserError("folder must name the model to start from; received None")
        return load(self.folder)

    def _train(self, model: Pretrained, X: Any, y: Any, sample_weight: Any) -> Self:
        names = ("epochs", "learning_rate", "batch_size", "max_seq_length")
        options = {name: getattr(self, name) for name in names} | {"seed": self.random_state}
        options |= {"verbose": 0, "sample_weight": sample_weight, **(self.options or {})}
        vars(model._chosen).update(inputs="X", targets="y")  # their names in messages
        model.fit(_texts(X), y, **options)
        self.model_ = model
        return self

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        outputs: NDArray[np.float64] = self.model_.predict(_texts(X))
        return outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array = True, True
        tags.input_tags.two_d_array, tags.no_validation = False, True
        return tags


class BertClassifier(ClassifierMixin, TextEstimator):
    """Gives texts, or pairs of texts, classes; for the arguments see `TextEstimator`."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on texts and their classes, names or numbers."""
        self.classes_ = _classes(read_rows(_texts(X), y, None, "X", "y")[1])
        labels = np.asarray(y).ravel()
        model = self._load().for_classification([str(label) for label in self.classes_])
        return self._train(model, X, [str(label) for label in labels], sample_weight)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Returns the probabilities of `classes_`, float [texts, classes]."""
        return self._outputs(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Returns the most likely class of each text."""
        best = np.argmax(self._outputs(X), axis=1)
        return self.classes_[best]


class BertRegressor(RegressorMixin, TextEstimator):
    """Gives texts, or pairs of texts, numbers; for the arguments see `TextEstimator`."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on texts and their numbers."""
        return self._train(self._load().for_regression(), X, y, sample_weight)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Returns the number of each text, float [texts]."""
        return self._outputs(X)


def _classes(labels: Sequence[Any]) -> NDArray[Any]:
    """Returns the classes, sorted; raises UserError if there are fewer than two."""
    for i, label in enumerate(labels):
        check_there(label, f"y[{i}]")
        if not isinstance(label, str | int) and not (isinstance(label, float) and label % 1 == 0):
            raise UserError(
                f"y[{i}] must be a class, a name or a whole number; received {label!r}. For numbers"
                " to predict use BertRegressor"
            )
        if isinstance(label, str) != isinstance(labels[0], str):
            raise UserError(
                f"y must have names or numbers, not both: y[0] is {labels[0]!r} and y[{i}] is"
                f" {label!r}"
            )
    classes = np.unique(labels)
    if len(classes) < 2:
        raise UserError(f"y must have at least two classes; all are {labels[0]!r}")
    return classes


def _texts(X: Any) -> Any:
    """Returns texts or pairs; the rows of a table with one or two columns. A tuple is a list."""
    shape: tuple[int, ...] = getattr(X, "shape", (0,))
    if len(shape) == 2 and shape[1] in (1, 2):
        rows = np.asarray(X, object)
        return rows[:, 0] if shape[1] == 1 else list(map(tuple, rows))
    return list(X) if isinstance(X, tuple) else X
