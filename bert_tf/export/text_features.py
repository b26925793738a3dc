"""`TextFeatures`: makes inputs from texts for models that take ids, such as ONNX models."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bert_tf.errors import UserError, quoted
from bert_tf.export.settings import ENCODER, HEADS
from bert_tf.export.signatures import DEFAULT_SIGNATURE
from bert_tf.files.whole_folders import Unreplaced
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings
from bert_tf.pretrained import text_input
from bert_tf.pretrained.build import INPUTS
from bert_tf.pretrained.exported import DESCRIPTION_FILE, reading, vector_settings
from bert_tf.pretrained.folder import read_folder
from bert_tf.pretrained.forward import padded
from bert_tf.tasks.arguments import PATH, as_list, check_count, check_type, is_list
from bert_tf.tasks.squad.settings import AnswerSettings
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.tokenizers import VOCABULARY_FILES, load_tokenizer


class TextFeatures:
    """Makes the inputs of a model from texts: the same ids that it was trained on.

        features = bert_tf.TextFeatures("output/serving/onnx")
        outputs = session.run(None, features(["the cat sat.", "A dog."]))

    It does not need ONNX or LiteRT, and does not read weights.

    Args:
        folder: a folder that tools.export wrote, or that `bert_tf.load` takes.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included; longer inputs are
            truncated, with a warning. None for the folder's length.

    Attributes:
        tokenizer: converts texts to ids.
        head: the model's head, as in `tools.export --head`.
        max_seq_length: see above.

    Raises:
        UserError: the folder has no model, or `max_seq_length` is too large.
    """

    tokenizer: Tokenizer
    head: str
    max_seq_length: int

    def __init__(self, folder: str | os.PathLike[str], max_seq_length: int | None = None):
        check_type("folder", folder, PATH)
        folder = os.fspath(folder)
        with Unreplaced(folder, (DESCRIPTION_FILE, *VOCABULARY_FILES), folder):
            self._read(folder, max_seq_length)

    def _read(self, folder: str, max_seq_length: int | None) -> None:
        path = os.path.join(folder, DESCRIPTION_FILE)
        self._length: int | None = None  # of every row; None for the longest row's
        if not tf.io.gfile.exists(path):
            found = read_folder(folder, max_seq_length=max_seq_length)
            self.head = next(head for head in HEADS if head in (*found.heads, ENCODER))
            self.max_seq_length = found.max_seq_length
            tokenizer, vectors = found.tokenizer, found.vectors
        else:
            with reading(folder) as (described, vocab_file):
                longest, self.head = described["max_seq_length"], described["head"]
                do_lower_case, signatures = described["do_lower_case"], described["signatures"]
                inputs = signatures.get("ids", signatures[DEFAULT_SIGNATURE])["inputs"]
                self._length = inputs["input_ids"]["shape"][-1]
                vectors = vector_settings(described.get("vectors", {}))
            what, none = f"the max_seq_length of {path}", "for the folder's"
            check_count("max_seq_length", max_seq_length, 4, longest, what, none)
            self.max_seq_length = max_seq_length or longest
            tokenizer = load_tokenizer(vocab_file, do_lower_case)
        self._vectors = vectors if self.head == ENCODER else VectorSettings()
        self.tokenizer = tokenizer.after_lowering() if self._vectors.do_lower_case else tokenizer

    def __call__(self, texts: Any) -> dict[str, NDArray[np.int32]]:
        """Returns `input_ids`, `input_mask` and `segment_ids`, int32 [texts, S], padded with 0.

        S is the length of the longest row, or the exported model's fixed length. A masked LM
        also gets `masked_lm_positions`, [texts, masks]. For multiple choice the shape is [texts,
        choices, S].

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either. For question answering,
                pairs `(question, context)`; for multiple choice, a list of `(context, [choice,
                choice, ...])`; for the masked language model, texts with [MASK].

        Raises:
            UserError: `texts` is something else.
        """
        if self.head == "multiple_choice":
            return self._choices(texts)
        found, _ = as_list(texts, pairs=self.head not in ("masked_lm", "tagging"))
        if not found:
            mask = self.tokenizer.mask_token
            one = self([(mask, mask) if self.head == "squad" else mask])
            return {name: x[:0] for name, x in one.items()}
        if self.head == "masked_lm":
            return self._padded(text_input.encode_masks(found, self.tokenizer, self.max_seq_length))
        if self.head == "squad":
            return self._padded([self._question(text) for text in found])
        prepared = [self._vectors.prepared(text) for text in found]
        return self._padded(text_input.encode(prepared, self.tokenizer, self.max_seq_length))

    def _question(self, pair: str | tuple[str, str]) -> dict[str, list[int]]:
        """Returns the row of a question and its context, which is truncated."""
        if isinstance(pair, str):
            raise UserError(
                f"This model answers questions: pass pairs (question, context), not {quoted(pair)}"
            )
        layout = self.tokenizer.layout
        room = self.max_seq_length - layout.num_special(is_pair=True)
        question, context = (self.tokenizer.encode([text])[0].tolist() for text in pair)
        question = question[: min(AnswerSettings().max_query_length, room)]
        return sequences.pack_pair(question, context[: room - len(question)], 0, layout)

    def _choices(self, texts: Any) -> dict[str, NDArray[np.int32]]:
        rows = list(texts) if isinstance(texts, list) else []
        counts = {_num_choices(*row) if isinstance(row, tuple) else 0 for row in rows}
        if len(counts) != 1 or counts == {0}:
            raise UserError(
                "texts must be a list of (context, [choice, choice, ...]), with the same number"
                f" of choices in each; received {quoted(texts)}"
            )
        (count,) = counts
        pairs = [(context, choice) for context, choices in rows for choice in choices]
        checked, _ = as_list(pairs, pairs=True)
        found = self._padded(text_input.encode(checked, self.tokenizer, self.max_seq_length))
        return {name: x.reshape(len(rows), count, -1) for name, x in found.items()}

    def _padded(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, NDArray[np.int32]]:
        return {
            name: padded([row[name] for row in rows], self._length if name in INPUTS else None)
            for name in rows[0]
        }


def _num_choices(context: Any = None, choices: Any = None, *more: Any) -> int:
    return len(choices) if is_list(choices) and not more else 0
