"""`rank`: passages in the order of their relevance to a query."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError, listed, quoted
from bert_tf.pretrained.forward import sigmoid
from bert_tf.pretrained.methods.base import LoadedModel
from bert_tf.pretrained.results import RankedPassage
from bert_tf.tasks.arguments import STRING, as_list, check_count, check_type


class Rank(LoadedModel):
    """Methods of cross-encoders: models that read a query and a passage together."""

    def rank(
        self,
        query: str,
        passages: Sequence[str],
        top_k: int | None = None,
        positive: str | None = None,
        long_text: str | None = None,
        window_stride: int | None = None,
    ) -> list[RankedPassage]:
        """Returns the passages, the most relevant one first; equal ones keep their order.

        The model reads pairs `(query, passage)`: a regression, whose number is the relevance, or a
        classifier, with the probability of `positive`. In a folder of Hugging Face the score of a
        regression is what the class CrossEncoder of sentence-transformers makes of the number: its
        sigmoid, or the number itself if the folder says so.

        Args:
            query: the text to find passages for.
            passages: a list of texts, such as what a search has found.
            top_k: number of passages to return. None for all.
            positive: the class of relevant passages; not for a regression.
            long_text: what becomes of a passage that is too long beside the query. "cut" leaves its
                end out. "mean" and "max" split it into overlapping windows, see `classify`; its
                score comes from the mean or the maximum of the windows' numbers, or log odds of
                `positive`. With "max" the best window decides. None for what the model was trained
                with, or else "cut".
            window_stride: see `classify`.

        Raises:
            UserError: the model is no classifier of texts, or has several classes and `positive` is
                none of them.
        """
        is_number = "regression" in self._folder.heads
        kind = "regression" if is_number else "classification"
        self._folder.check_head(kind, "rank")
        column = self._column(positive)
        check_type("query", query, STRING)
        check_count("top_k", top_k, 1, default="for all passages")
        texts, single = as_list(passages, name="passages")
        if single:
            raise UserError("passages must be a list of texts; received a single text")
        pairs = [(query, text) for text in texts]
        self._folder.warn_of_other_input(pairs)
        windows = self._windows(pairs, long_text, window_stride)
        found = [row["logits"] for row in self._run(kind, windows.rows)]
        logits = np.array(found, np.float64).reshape([len(found), max(1, len(self.labels))])
        value = logits[:, column]  # orders better than its sigmoid, which rounds to 1
        if not (is_number or self.config.is_multi_label):  # log odds: the sigmoid is the softmax
            others = np.delete(logits, column, axis=1)
            value = value - np.logaddexp.reduce(others, axis=1)
        value = windows.join(value)
        scores = value if is_number and not self._folder.has_sigmoid else sigmoid(value)
        order = np.argsort(-value, kind="stable")
        return [RankedPassage(i, float(scores[i]), texts[i]) for i in order[:top_k].tolist()]

    def _column(self, positive: Any) -> int:
        """Returns the number of the output that is the relevance."""
        check_type("positive", positive, STRING, "for a model that gives a number")
        if positive is None and len(self.labels) < 2:
            return 0
        if not self.labels:
            raise UserError(
                f"{self._folder.path} gives a number, not classes, so positive must be left out;"
                f" received {quoted(positive)}"
            )
        if positive not in self.labels:
            raise UserError(
                "positive must be the class of relevant passages, one of"
                f" {listed(self.labels)}: rank(query, passages, positive={self.labels[-1]!r});"
                f" received {positive if positive is None else quoted(positive)}"
            )
        return self.labels.index(positive)
