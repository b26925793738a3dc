"""`classify`: the class of a text."""

from collections.abc import Sequence
from typing import overload

import numpy as np

from bert_tf.pretrained import text_input
from bert_tf.pretrained.arguments import as_list
from bert_tf.pretrained.forward import sigmoid, softmax
from bert_tf.pretrained.methods.base import LoadedModel, Text
from bert_tf.pretrained.results import Classification


class Classify(LoadedModel):
    """Methods of classifiers and regressions."""

    @overload
    def classify(self, texts: Text) -> Classification | float: ...
    @overload
    def classify(self, texts: Sequence[Text]) -> list[Classification] | list[float]: ...
    def classify(
        self, texts: Text | Sequence[Text]
    ) -> Classification | float | list[Classification] | list[float]:
        """Returns the class of each text; if the model is a regression, a float for each.

        If a text can have several classes (`config.is_multi_label`), the class is the most likely
        one, and `probabilities` do not add up to 1: take the classes above a threshold, such as
        0.5.

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either.

        Raises:
            UserError: the model has no classifier.
        """
        kind = "regression" if "regression" in self._folder.heads else "classification"
        self._folder.check_head(kind, "classify")
        texts, single = as_list(texts, pairs=True)
        self._folder.warn_of_other_input(texts)
        rows = text_input.encode(texts, self.tokenizer, self.max_seq_length)
        found = self._run(kind, rows)
        if kind == "regression":
            numbers = [float(row["logits"][0]) for row in found]
            return numbers[0] if single else numbers
        probabilities = sigmoid if self.config.is_multi_label else softmax
        classes = [self._classification(probabilities(row["logits"])) for row in found]
        return classes[0] if single else classes

    def _classification(self, probabilities: np.ndarray) -> Classification:
        by_label = dict(zip(self.labels, probabilities.tolist(), strict=True))
        best = int(np.argmax(probabilities))
        return Classification(self.labels[best], float(probabilities[best]), by_label)
