"""scikit-learn estimators that fine-tune a model on texts.

print(cross_val_score(bert_tf.BertClassifier("uncased_L-12_H-768_A-12"), texts, labels, cv=5))
"""

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from bert_tf.errors import UserError
from bert_tf.pretrained.loading import load
from bert_tf.pretrained.model import Pretrained
from bert_tf.tasks.arguments import has_order
from bert_tf.tasks.classification.rows import class_name
from bert_tf.tasks.rows import check_there, read_rows


class TextEstimator(BaseEstimator):
    """The base class of the estimators.

    X has texts, in a list, an array or a column; or pairs, in a list of tuples, or in two columns
    with the same names and order as in `fit`.

    Args:
        folder: the model to start from; see `bert_tf.load`.
        epochs: number of passes over the texts. None, here and below, for the program's default.
        learning_rate: the highest rate, at the end of the warm-up.
        batch_size: number of texts in a step.
        max_seq_length: longest text in word pieces, [CLS] and [SEP] included; see `Pretrained.fit`.
        random_state: the seed.
        options: other arguments of `Pretrained.fit`, such as `{"warmup_proportion": 0.0}`; not
            `output_dir`, where a second `fit` would find the first one's model.

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
        self.folder: Any = folder
        self.epochs, self.learning_rate = epochs, learning_rate
        self.batch_size, self.max_seq_length = batch_size, max_seq_length
        self.random_state, self.options = random_state, options

    def _train(self, model: Pretrained, X: Any, y: Any, sample_weight: Any) -> Self:
        names = ("epochs", "learning_rate", "batch_size", "max_seq_length")
        options = {name: getattr(self, name) for name in names} | {"seed": self.random_state}
        options |= {"verbose": 0, "sample_weight": sample_weight, **(self.options or {})}
        kept = options.get("output_dir"), getattr(options.get("settings"), "output_dir", None)
        if any(kept):
            raise UserError(
                "options must not set output_dir, directly or in settings: the next fit, such as"
                " another fold's, would find the model there. model_.save(FOLDER) keeps a model"
            )
        if rows := model._chosen:
            rows.inputs, rows.targets = "X", "y"  # their names in messages
        model.fit(_texts(X), y, **options)
        for name in ("feature_names_in_", "n_features_in_"):  # left by an earlier fit
            if hasattr(self, name):
                delattr(self, name)
        validate_data(self, X, skip_check_array=True)
        if not hasattr(self, "n_features_in_"):  # scikit-learn counts only the columns of tables
            self.n_features_in_ = _num_texts(X)
        self.model_ = model
        return self

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        if len(getattr(X, "shape", ())) == 2:
            validate_data(self, X, reset=False, skip_check_array=True)
        elif _num_texts(X) != self.n_features_in_:
            raise ValueError(
                f"X has {_num_texts(X)} features, but {type(self).__name__} is expecting"
                f" {self.n_features_in_} features as input: one text or a pair of texts"
                " per row"
            )
        outputs: NDArray[np.float64] = self.model_.predict(_texts(X))
        return outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array = True, True
        tags.input_tags.two_d_array, tags.no_validation = False, True
        return tags


class BertClassifier(ClassifierMixin, TextEstimator):
    """Classifies texts, or pairs of texts; for the arguments see `TextEstimator`."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on texts and their classes, which are names or numbers."""
        _, labels, _ = read_rows(_texts(X), y, None, "X", "y")
        for i, label in enumerate(labels):
            check_there(label, f"y[{i}]")
            if has_order(label):  # scikit-learn would take it for columns of 0 and 1
                class_name(label, f"y[{i}]")
        self.classes_ = unique_labels(labels)
        names = {label: str(label) for label in self.classes_.tolist()}  # 1 and 1.0 are one key
        model = load(self.folder).for_classification([*names.values()])
        y = [names[label] for label in np.asarray(labels).tolist()]
        return self._train(model, X, y, sample_weight)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Returns the probabilities of `classes_`, float [texts, classes]."""
        return self._outputs(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Returns the most likely class of each text."""
        best = np.argmax(self._outputs(X), axis=1)
        return self.classes_[best]


class BertRegressor(RegressorMixin, TextEstimator):
    """Predicts a number for each text, or pair of texts; for the arguments see `TextEstimator`."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on texts and their numbers."""
        return self._train(load(self.folder).for_regression(), X, y, sample_weight)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Returns the number of each text, float [texts]."""
        return self._outputs(X)


def _num_texts(X: Any) -> int:
    return 2 if isinstance(next(iter(X), ""), (tuple, list)) else 1


def _texts(X: Any) -> Any:
    """Returns the texts or pairs of a list, a tuple, or a table of one or two columns, in order."""
    shape: tuple[int, ...] = getattr(X, "shape", (0,))
    if len(shape) == 2 and shape[1] in (1, 2):
        rows = np.asarray(X, object)
        return rows[:, 0] if shape[1] == 1 else list(map(tuple, rows))
    return list(X) if isinstance(X, tuple) else X
