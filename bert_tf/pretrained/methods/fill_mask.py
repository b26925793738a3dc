"""`fill_mask`: the tokens that a masked language model expects."""

from collections.abc import Sequence
from typing import overload

import numpy as np

from bert_tf.pretrained import text_input
from bert_tf.pretrained.forward import softmax
from bert_tf.pretrained.methods.base import LoadedModel
from bert_tf.pretrained.results import Filling
from bert_tf.tasks.arguments import as_list, check_count


class FillMask(LoadedModel):
    """Methods of the masked language model."""

    @overload
    def fill_mask(self, texts: str, top_k: int = 5) -> list[list[Filling]]: ...
    @overload
    def fill_mask(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Filling]]]: ...
    def fill_mask(
        self, texts: str | Sequence[str], top_k: int = 5
    ) -> list[list[Filling]] | list[list[list[Filling]]]:
        """Returns the most likely tokens for each [MASK] of each text: lists, the best first.

        Args:
            texts: each with at least one [MASK]. A [MASK] stands for one word piece.
            top_k: number of tokens for each mask.

        Raises:
            UserError: the model has no masked-LM head, or a text has no [MASK].
        """
        self._folder.check_head("masked_lm", "fill_mask")
        check_count("top_k", top_k, 1, self.config.vocab_size, "the size of the vocabulary")
        texts, single = as_list(texts)
        rows = text_input.encode_masks(texts, self.tokenizer, self.max_seq_length)
        results = [
            [
                self._fillings(logits, top_k)
                for logits in found["logits"][: len(row["masked_lm_positions"])]
            ]
            for row, found in zip(rows, self._run("masked_lm", rows), strict=True)
        ]
        return results[0] if single else results

    def _fillings(self, logits: np.ndarray, top_k: int) -> list[Filling]:
        probabilities = softmax(logits)
        best = np.argsort(-logits, kind="stable")[:top_k]
        known, text_of = self.tokenizer.inv_vocab, self.tokenizer.text_of
        return [
            Filling(text_of([i]) if i in known else f"[{i}]", i, float(probabilities[i]))
            for i in best.tolist()
        ]
