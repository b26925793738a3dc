"""`load` a trained model from a folder, and use it: text in, answers out.

    model = bert_tf.load("uncased_L-12_H-768_A-12")
    model.fill_mask("Paris is the [MASK] of France.")

Every method takes one text and returns one result, or takes a list of texts and returns a list of
results in the same order. Long lists are sorted by length and computed in batches.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack, overload

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bert_tf.errors import UserError, quoted
from bert_tf.pretrained import entities, forking, text_input
from bert_tf.pretrained.answers import AnswerOptions, find_all, make_searches
from bert_tf.pretrained.arguments import SWITCH, WHOLE_NUMBER, as_list, check_type
from bert_tf.pretrained.build import BUILDERS, INPUTS, Outputs, Tensors, build_model, head_outputs
from bert_tf.pretrained.folder import ModelFolder, read_folder
from bert_tf.pretrained.forward import Forward, Row, sigmoid, softmax
from bert_tf.pretrained.pooling import similarities, text_vectors
from bert_tf.pretrained.results import Answer, Classification, Entity, Filling, TextAttention
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer

Text = str | tuple[str, str]  # a text, or a pair of texts
Path = str | os.PathLike[str]


def load(
    folder: Path,
    *,
    bert_config_file: Path | None = None,
    vocab_file: Path | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
) -> "Pretrained":
    """Loads a trained model.

    Args:
        folder: a released model's (`bert_config.json`, `vocab.txt`, `bert_model.ckpt.*`), an
            --output_dir or --export_dir of the programs, or one of Hugging Face's (`config.json`,
            `model.safetensors`, `vocab.txt` or `tokenizer.json`). Or the prefix of a checkpoint.
        bert_config_file: overrides the folder's configuration. The configuration of a
            model.safetensors is always its config.json.
        vocab_file: overrides the folder's vocabulary.
        do_lower_case: whether text is lower-cased; None detects it.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included; longer texts are
            truncated, and longer contexts of `answer` are split into windows. None for the length
            that the model was fine-tuned with or, in a folder of sentence-transformers, that of its
            files; if neither is known, for the model's limit.

    Raises:
        UserError: the folder has no model or several, or its files do not fit together.
    """
    forking.check_process()
    return Pretrained(
        read_folder(folder, bert_config_file, vocab_file, do_lower_case, max_seq_length)
    )


def _load_again(source: dict[str, Any], max_seq_length: int) -> "Pretrained":
    """Returns the model that a pickle names."""
    if forking.is_forked():  # let its methods raise: an error here would hang a process pool
        return Pretrained.__new__(Pretrained)
    return Pretrained(read_folder(**source, max_seq_length=max_seq_length))


class Pretrained:
    """A trained model: text in, answers out. `print` describes it.

    A pickle or a copy has only the path of the folder, and loads the model again.

    Attributes:
        config: the model's BertConfig.
        tokenizer: `encode` converts texts to ids; `vocab` is token -> id.
        heads: what the model can do: `masked_lm`, `next_sentence`, `classification`, `regression`,
            `tagging`, `multiple_choice`, `squad`; each if the checkpoint has its weights.
        labels: the classes in the order of the logits; () without classes.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included.
        model: the Keras model with the first of `heads`.
    """

    def __init__(self, folder: ModelFolder):
        """Builds the model; users call `load` instead."""
        forking.mark_loaded()
        self._own_folder = folder
        self.config = folder.config
        self.tokenizer = folder.tokenizer
        self.heads = folder.heads
        self.labels = folder.labels
        self.max_seq_length = folder.max_seq_length
        self._model: Callable[[str], keras.Model] = functools.cache(
            lambda head: build_model(head, folder)
        )
        self._forwards: dict[str, Forward] = {}
        self.model = self._model(next((head for head in self.heads if head in BUILDERS), ""))

    @property
    def _folder(self) -> ModelFolder:
        """What the folder holds; every method needs it. Raises UserError in a forked process."""
        forking.check_process()
        return self._own_folder

    def __repr__(self) -> str:
        return f"<{vars(self).get('_own_folder', 'a model in a forked process')}>"

    def __reduce__(self) -> tuple[Callable[..., "Pretrained"], tuple[Any, ...]]:
        self._folder.check_unchanged(self.model)
        return _load_again, (self._folder.source, self.max_seq_length)

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
        check_type("top_k", top_k, WHOLE_NUMBER)
        texts, single = as_list(texts)
        if not 1 <= top_k <= self.config.vocab_size:
            raise UserError(
                f"top_k must be between 1 and {self.config.vocab_size}, the size of the"
                f" vocabulary; received {quoted(top_k)}"
            )
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

    @overload
    def answer(
        self, question: str, context: str, *, top_k: None = None, **options: Unpack[AnswerOptions]
    ) -> Answer: ...
    @overload
    def answer(
        self, question: str, context: str, *, top_k: int, **options: Unpack[AnswerOptions]
    ) -> list[Answer]: ...
    @overload
    def answer(
        self,
        question: Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: None = None,
        **options: Unpack[AnswerOptions],
    ) -> list[Answer]: ...
    @overload
    def answer(
        self,
        question: Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: int,
        **options: Unpack[AnswerOptions],
    ) -> list[list[Answer]]: ...
    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: int | None = None,
        null_score_diff_threshold: float | None = None,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_answer_length: int = 30,
        method: str = "run_squad",
    ) -> Answer | list[Answer] | list[list[Answer]]:
        """Returns the answer to each question, a part of its context.

        Args:
            question: a question, or a list of questions.
            context: the text with the answer: one for all questions, or a list with one for each.
                A long context is split into windows.
            top_k: None for the best answer; a number for a list of at most that many answers.
            null_score_diff_threshold: None if every question has an answer, as in SQuAD 1.1.
                Otherwise the best answer is `text=""` if the score of no answer exceeds the score
                of the best answer by more than this (SQuAD 2.0); run_squad writes a good value to
                null_threshold.json.
            max_seq_length: longest window in word pieces; at most the model's `max_seq_length`.
            doc_stride: word pieces between the starts of two windows; with
                `method="transformers"`, word pieces that two windows share, as in transformers.
            max_answer_length: maximum length of an answer in word pieces.
            method: "run_squad" ranks like the program: the scores are the probabilities in its
                nbest_predictions.json. "transformers" ranks like the question-answering
                pipeline of transformers 4; its scores can exceed 1.

        Raises:
            UserError: the model has no head for answers, or an argument does not fit.
        """
        self._folder.check_head("squad", "answer")
        check_type("max_seq_length", max_seq_length, WHOLE_NUMBER)
        searches, single = make_searches(
            question,
            context,
            self.tokenizer,
            top_k=top_k,
            null_score_diff_threshold=null_score_diff_threshold,
            max_seq_length=min(max_seq_length, self.max_seq_length),
            doc_stride=doc_stride,
            max_answer_length=max_answer_length,
            method=method,
        )
        rows = [row for search in searches for row in search.rows]
        found = find_all(searches, self._run("squad", rows))
        if top_k:
            return found[0] if single else found
        best = [answers[0] for answers in found]
        return best[0] if single else best

    @overload
    def tag(self, texts: str, aggregation_strategy: str = "word") -> list[Entity]: ...
    @overload
    def tag(
        self, texts: Sequence[str], aggregation_strategy: str = "word"
    ) -> list[list[Entity]]: ...
    def tag(
        self, texts: str | Sequence[str], aggregation_strategy: str = "word"
    ) -> list[Entity] | list[list[Entity]]:
        """Returns the entities of each text, in order.

        Neighbours of the same type form one entity, until a `B-` tag begins a new one. Classes that
        are all BILOU or IOBES tags are read as such: `U-` and `S-` are an entity of one word, `L-`
        and `E-` end one. An entity is not empty and has no white space at its ends.

        Args:
            texts: sentences. A long sentence is split into windows.
            aggregation_strategy: what gets a tag. "word": each run of characters without white
                space, as in run_tagging. As in transformers' pipeline: "first", "average" and
                "max", each word by its first piece, its pieces' mean or its surest piece (runs
                without white space or punctuation; with RoBERTa and ALBERT, runs without a space);
                "simple", each word piece; "none", each word piece, and neighbours are not joined.

        Raises:
            UserError: the model is not a tagger, or the strategy is unknown.
        """
        self._folder.check_head("tagging", "tag")
        entities.check_strategy(aggregation_strategy)
        texts, single = as_list(texts)
        cuts = [entities.TaggedText(text, self.tokenizer, self.max_seq_length) for text in texts]
        logits = iter(self._run("tagging", [row for cut in cuts for row in cut.rows]))
        found = [
            cut.join([next(logits)["logits"] for _ in cut.rows], self.labels, aggregation_strategy)
            for cut in cuts
        ]
        return found[0] if single else found

    def encode(
        self,
        texts: Text | Sequence[Text],
        pooling: str | None = None,
        normalize: bool | None = None,
    ) -> NDArray[np.float32]:
        """Returns a vector for each text, float32 [texts, H]; [H] for one text.

        In a folder of sentence-transformers, its prompt is put before each text, and its
        lower-casing and its truncation of vectors apply; with P poolings a vector has P*H elements.

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either.
            pooling: "mean" of the last layer over all tokens, [CLS] and [SEP] included; "cls", the
                last layer at [CLS]; "pooled", the pooler's output, on which classifiers are
                trained; or another of sentence-transformers' poolings. None for the folder's
                setting, or else "mean".
            normalize: whether to divide each vector by its length. None for the folder's setting,
                or else False.

        Raises:
            UserError: the pooling is unknown, or the model has no pooler.
        """
        settings, poolings = self._folder.vectors, self._folder.poolings(pooling)
        check_type("normalize", normalize, SWITCH, "for the folder's setting")
        texts, single = as_list(texts, pairs=True)
        prepared = [settings.prepared(text) for text in texts]
        rows = text_input.encode(prepared, self._vector_tokenizer, self.max_seq_length)
        bert, num_skipped = self.model.bert, self._num_skipped

        def outputs(features: Tensors) -> dict[str, tf.Tensor]:
            output = bert(*(features[name] for name in INPUTS))
            mask = features["input_mask"]
            return {"vector": text_vectors(output, mask, poolings, num_skipped)}

        found = [row["vector"] for row in self._run("+".join(poolings), rows, outputs)]
        width = len(poolings) * self.config.hidden_size
        vectors = np.array(found, np.float32).reshape(len(rows), width)
        if settings.normalize and normalize is None:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors[:, : settings.truncate_dim]
        if normalize:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors[0] if single else vectors

    @functools.cached_property
    def _vector_tokenizer(self) -> Tokenizer:
        """The tokenizer for texts that become vectors."""
        lowers = self._folder.vectors.do_lower_case
        return self.tokenizer.after_lowering() if lowers else self.tokenizer

    @functools.cached_property
    def _num_skipped(self) -> int:
        """Number of tokens at the beginning of a text that its vector does not include."""
        settings = self._folder.vectors
        if settings.include_prompt or not settings.prompt:
            return 0
        prompt = settings.prepared("")
        (row,) = text_input.encode([prompt], self._vector_tokenizer, self.max_seq_length)
        return len(row["input_ids"]) - 1  # without [SEP]

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
            UserError: the lists differ in length, or see `encode`.
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
        """Returns the attention of every layer and head within a text or a pair of texts."""
        texts, single = as_list(text, pairs=True, name="text")
        if not single:
            raise UserError(
                f"attention takes one text, or one pair of texts; received a list of {len(texts)}"
            )
        (row,) = text_input.encode(texts, self._folder.tokenizer, self.max_seq_length)
        bert = self.model.bert

        def outputs(features: Tensors) -> dict[str, tf.Tensor]:
            output = bert(*(features[name] for name in INPUTS))
            return {"probabilities": tf.stack(output.attention_probs, axis=1)}

        (found,) = self._run("attention", [row], outputs)
        return TextAttention(
            tokens=sequences.unpadded_tokens(row, self.tokenizer.inv_vocab),
            segment_ids=np.array(row["segment_ids"], np.int32),
            probabilities=found["probabilities"],
        )

    def _run(
        self, name: str, rows: Sequence[Row], outputs: Outputs | None = None
    ) -> list[dict[str, NDArray[Any]]]:
        """Returns the outputs of each row, computed by the head `name`, or by `outputs` if given.

        The function is traced at its first use, and found by `name` afterwards.
        """
        if not rows:
            return []
        self._folder.check_segment(max(max(row["segment_ids"]) for row in rows))
        if name not in self._forwards:
            outputs = outputs or head_outputs(name, self._model(name))
            self._forwards[name] = Forward(outputs, [*rows[0]])
        return self._forwards[name](rows)
