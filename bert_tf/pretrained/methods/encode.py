"""`fill_mask`, `encode`, `similarity` and `attention`: what a pre-trained model can do."""

import functools
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from bert_tf.errors import UserError, listed, quoted
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings
from bert_tf.pretrained import text_input
from bert_tf.pretrained.forward import softmax
from bert_tf.pretrained.methods.base import LoadedModel, Text
from bert_tf.pretrained.pooling import similarities
from bert_tf.pretrained.results import Filling, TextAttention
from bert_tf.pretrained.text_input import TextRows
from bert_tf.tasks.arguments import STRING, SWITCH, as_list, check_count, check_type
from bert_tf.tasks.long_text import CUT
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer


class Encode(LoadedModel):
    """Methods of the encoder, which every model has, and of the masked language model."""

    @overload
    def fill_mask(self, texts: str, top_k: int = 5) -> list[list[Filling]]: ...
    @overload
    def fill_mask(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Filling]]]: ...
    def fill_mask(
        self, texts: str | Sequence[str], top_k: int = 5
    ) -> list[list[Filling]] | list[list[list[Filling]]]:
        """For each [MASK] of each text, returns a list of the most likely tokens, the best first.

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

    def encode(
        self,
        texts: Text | Sequence[Text],
        pooling: str | None = None,
        normalize: bool | None = None,
        long_text: str = CUT,
        window_stride: int | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> NDArray[np.float32]:
        """Returns a vector for each text, float32 [texts, H]; [H] for one text.

        If the folder comes from sentence-transformers, its prompt, its lower-casing and its
        truncation of vectors apply. With P poolings a vector has P*H elements.

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either.
            pooling: "mean" of the last layer over all tokens, [CLS] and [SEP] included; "cls", the
                last layer at [CLS]; "pooled", the pooler's output, on which classifiers are
                trained; or any other pooling of sentence-transformers. None for the folder's
                setting, or else "mean".
            normalize: whether to divide each vector by its length. None for the folder's setting,
                or else False.
            long_text: what to do with a text of more word pieces than `max_seq_length`. "cut"
                drops its end. "mean" and "max" split it into overlapping windows; the mean or
                the maximum of their vectors, element by element, is then normalized and truncated.
                For pairs see `classify`.
            window_stride: word pieces from the start of a window to the start of the next one.
                None for half of the pieces that fit in a window.
            prompt: the name of one of the folder's prompts, such as "query", or a text to put
                before each text, such as "query: "; "" for no prompt. None for the folder's
                default.
            truncate_dim: number of leading elements to keep of each vector, as models trained with
                `--matryoshka_dims` allow. None for the folder's setting, or else all.

        Raises:
            UserError: the pooling or the prompt is unknown, `truncate_dim` is out of range, or the
                model has no pooler.
        """
        poolings = self._folder.poolings(pooling)
        width = len(poolings) * self.config.hidden_size
        settings = self._vector_settings(prompt, truncate_dim, width)
        check_type("normalize", normalize, SWITCH, "for the folder's setting")
        texts, single = as_list(texts, pairs=True)
        prepared = [settings.prepared(text) for text in texts]
        windows = TextRows(
            *(prepared, self._vector_tokenizer, self.max_seq_length, long_text, window_stride),
            num_first=self._num_pieces(settings.prompt) if long_text != CUT else 0,
        )
        num_skipped = 0
        if settings.prompt and not settings.include_prompt:
            num_skipped = 1 + self._num_pieces(settings.prompt)

        name = "+".join(poolings) + (f" after {num_skipped}" if num_skipped else "")
        make = functools.partial(self._runtime.vectors, poolings, num_skipped)
        found = [row["vector"] for row in self._run(name, windows.rows, make)]
        vectors = windows.join(np.array(found, np.float32).reshape(len(found), width))
        if settings.normalize and normalize is None:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors[:, : settings.truncate_dim]
        if normalize:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors[0] if single else vectors

    @functools.cached_property
    def _vector_tokenizer(self) -> Tokenizer:
        lowers = self._folder.vectors.do_lower_case
        return self.tokenizer.after_lowering() if lowers else self.tokenizer

    def _num_pieces(self, prompt: str) -> int:
        if not prompt:
            return 0
        (row,) = text_input.encode([prompt], self._vector_tokenizer, self.max_seq_length)
        return len(row["input_ids"]) - 2  # without [CLS] and [SEP]

    def _vector_settings(
        self, prompt: str | None, truncate_dim: int | None, width: int
    ) -> VectorSettings:
        """Returns the folder's settings, overridden by `encode`'s checked arguments."""
        settings = self._folder.vectors
        check_type("prompt", prompt, STRING, "for the folder's default")
        size = "the size of the vectors"
        check_count("truncate_dim", truncate_dim, 1, width, size, "for the folder's setting")
        if prompt is not None:
            prompts = settings.named_prompts
            if prompt.isidentifier() and prompt not in prompts:
                raise UserError(
                    f"prompt must be the name of one of the folder's prompts, {listed(prompts)}, or"
                    " a text that ends in space or punctuation, since it is put right before each"
                    f" text; received {quoted(prompt)}"
                )
            settings = settings._replace(prompt=prompts.get(prompt, prompt))
        if truncate_dim is not None:
            settings = settings._replace(truncate_dim=int(truncate_dim))
        return settings

    @overload
    def similarity(self, texts_a: Text, texts_b: Text, pooling: str | None = None) -> float: ...
    @overload
    def similarity(
        self, texts_a: Sequence[Text], texts_b: Sequence[Text], pooling: str | None = None
    ) -> NDArray[np.float32]: ...
    def similarity(
        self,
        texts_a: Text | Sequence[Text],
        texts_b: Text | Sequence[Text],
        pooling: str | None = None,
    ) -> float | NDArray[np.float32]:
        """Returns the cosine of texts_a[i]'s and texts_b[i]'s vectors, float32 [texts], or a float.

        To compare every text with every other, multiply matrices of `encode(..., normalize=True)`.
        A folder of sentence-transformers may choose the dot product or a negative distance instead.

        Args:
            texts_a: a text, or a list of texts.
            texts_b: the text to compare with, or a list of the same length.
            pooling: see `encode`.

        Raises:
            UserError: the lists differ in length, or `encode` raises one.
        """
        a, single = as_list(texts_a, pairs=True, name="texts_a")
        b, _ = as_list(texts_b, pairs=True, name="texts_b")
        if len(a) != len(b):
            raise UserError(
                f"texts_a and texts_b must be of equal length; received {len(a)} and {len(b)} texts"
                ". To compare one text with several, repeat it: [text] * len(texts_b)"
            )
        name = self._folder.vectors.similarity
        vectors = self.encode(a + b, pooling, normalize=True if name == "cosine" else None)
        found = similarities(vectors[: len(a)], vectors[len(a) :], name)
        return float(found[0]) if single else found

    def attention(self, text: Text) -> TextAttention:
        """Returns the attention of every layer and head within a text or a pair of texts.

        Raises:
            UserError: `text` is a list of texts.
        """
        texts, single = as_list(text, pairs=True, name="text")
        if not single:
            raise UserError(
                f"attention takes one text, or one pair of texts; received a list of {len(texts)}"
            )
        (row,) = text_input.encode(texts, self._folder.tokenizer, self.max_seq_length)
        (found,) = self._run("attention", [row], self._runtime.attention)
        return TextAttention(
            tokens=sequences.unpadded_tokens(row, self.tokenizer.inv_vocab),
            segment_ids=np.array(row["segment_ids"], np.int32),
            probabilities=found["probabilities"],
        )
