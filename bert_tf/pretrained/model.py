"""`load` a trained model from a folder, and use it: text in, answers out.

    model = bert_tf.load("uncased_L-12_H-768_A-12")
    model.fill_mask("Paris is the [MASK] of France.")

Every method takes one text, or a list of texts, and returns one result, or a list of results in the
same order. Long lists are sorted by length and computed in batches inside.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.heads import model_logits
from bert_tf.pretrained import answers as answering
from bert_tf.pretrained import entities, text_input
from bert_tf.pretrained.build import BUILDERS, build_model
from bert_tf.pretrained.folder import ModelFolder, read_folder
from bert_tf.pretrained.forward import Forward
from bert_tf.pretrained.pooling import POOLINGS, text_vectors
from bert_tf.pretrained.results import (
    Classification,
    Filling,
    TextAttention,
)
from bert_tf.tasks.squad.settings import AnswerSettings
from bert_tf.text import sequences

_INPUTS = ("input_ids", "input_mask", "segment_ids")
_MASK_INPUTS = (*_INPUTS, "masked_lm_positions")
_TRAINED_BY = {
    "masked_lm": "run_pretraining.py",
    "classification": "run_classifier.py",
    "squad": "run_squad.py",
    "tagging": "run_tagging.py",
}


def load(
    folder: str,
    *,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
) -> "Pretrained":
    """Loads a trained model.

    Args:
        folder: a released model's (`bert_config.json`, `vocab.txt`, `bert_model.ckpt.*`), an
            --output_dir or --export_dir of the programs, or one of Hugging Face's (`config.json`,
            `model.safetensors`, `vocab.txt` or `tokenizer.json`). Or the prefix of a checkpoint.
        bert_config_file, vocab_file: to take instead of those in the folder. The configuration of
            a model.safetensors is always its config.json.
        do_lower_case: whether text is lower-cased; None finds it out.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included; longer texts are
            cut, and contexts of `answer` into windows. None for the model's longest, or what
            sentence_bert_config.json says.

    Raises:
        UserError: the folder has no model or several, or its files do not fit each other.
    """
    return Pretrained(
        read_folder(folder, bert_config_file, vocab_file, do_lower_case, max_seq_length)
    )


class Pretrained:
    """A trained model that answers. `print` shows what it is.

    Attributes:
        config: sizes of the model, a BertConfig.
        tokenizer: `encode` converts texts to ids; `vocab` is token -> id.
        heads: what the model can do: `masked_lm`, `next_sentence`, `classification`, `regression`,
            `tagging`, `multiple_choice`, `squad`; each if the checkpoint has its weights.
        labels: the classes in the order of the logits; () without any.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included.
        model: the Keras model with the first of these heads.
    """

    def __init__(self, folder: ModelFolder):
        """Builds the model; `load` is the way to get one."""
        self._folder = folder
        self.config = folder.config
        self.tokenizer = folder.tokenizer
        self.heads = folder.heads
        self.labels = folder.labels
        self.max_seq_length = folder.max_seq_length
        self._models: dict[str, keras.Model] = {}
        self._forwards: dict[str, Forward] = {}
        self.model = self._model(next((head for head in self.heads if head in BUILDERS), ""))

    def __repr__(self) -> str:
        return f"<{self._folder}>"

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5) -> list:
        """Returns the most likely tokens for each [MASK] of each text, the best first.

        Args:
            texts: each with one [MASK] or more. It stands for one word piece.
            top_k: number of tokens for each mask.

        Returns:
            For each text a list with a list of `Filling` for each of its masks.

        Raises:
            UserError: the model has no masked-LM head, or a text has no [MASK].
        """
        model = self._model_with("masked_lm", "fill_mask")
        texts, single = text_input.as_list(texts)
        if not 1 <= top_k <= self.config.vocab_size:
            raise UserError(
                f"top_k must be between 1 and {self.config.vocab_size}, the size of the"
                f" vocabulary; received {quoted(top_k)}"
            )
        rows = text_input.encode_masks(texts, self.tokenizer, self.max_seq_length)

        def outputs(features):
            logits, _ = model(*(features[name] for name in _MASK_INPUTS))
            shape = tf.shape(features["masked_lm_positions"])
            return {"logits": tf.reshape(logits, [shape[0], shape[1], self.config.vocab_size])}

        found = self._run("masked_lm", outputs, rows, _MASK_INPUTS)
        results = [
            [self._fillings(logits, top_k) for logits in row["logits"][: len(masks)]]
            for row, masks in zip(found, (r["masked_lm_positions"] for r in rows), strict=True)
        ]
        return results[0] if single else results

    def _fillings(self, logits: np.ndarray, top_k: int) -> list[Filling]:
        probabilities = _softmax(logits)
        best = np.argsort(-logits, kind="stable")[:top_k]
        known, text_of = self.tokenizer.inv_vocab, self.tokenizer.text_of
        return [
            Filling(text_of([i]) if i in known else f"[{i}]", i, float(probabilities[i]))
            for i in best.tolist()
        ]

    def classify(self, texts: Any) -> Any:
        """Returns the class of each text, or the number that a regression gives it.

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either.

        Returns:
            A `Classification` for each text; a float for each where the model is a regression.

        Raises:
            UserError: the model has no classifier.
        """
        kind = "regression" if "regression" in self.heads else "classification"
        model = self._model_with(kind, "classify")
        texts, single = text_input.as_list(texts, pairs=True)
        rows = text_input.encode(texts, self.tokenizer, self.max_seq_length)
        found = self._run(kind, lambda features: {"logits": model_logits(model, features)}, rows)
        if kind == "regression":
            results = [float(row["logits"][0]) for row in found]
        else:
            results = [self._classification(_softmax(row["logits"])) for row in found]
        return results[0] if single else results

    def _classification(self, probabilities: np.ndarray) -> Classification:
        by_label = dict(zip(self.labels, probabilities.tolist(), strict=True))
        best = int(np.argmax(probabilities))
        return Classification(self.labels[best], float(probabilities[best]), by_label)

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
    ) -> Any:
        """Returns the answer to each question, a part of its context.

        Args:
            question: a question, or a list of questions.
            context: the text with the answer: one for all questions, or a list of as many. A long
                one is cut into windows.
            top_k: None for the best answer; a number for a list of the best answers.
            null_score_diff_threshold: None if every question has an answer, as in SQuAD 1.1.
                Otherwise the best answer is `text=""` if the score of no answer exceeds that of
                the best one by more than this (SQuAD 2.0); run_squad writes a good value to
                null_threshold.json.
            max_seq_length: longest window in word pieces, cut to the model's `max_seq_length`.
            doc_stride: word pieces between the starts of two windows; with
                `method="transformers"`, those that two windows share, as there.
            max_answer_length: in word pieces.
            method: "run_squad" ranks as the program does: the scores are the probabilities of its
                nbest_predictions.json. "transformers" ranks as the question-answering pipeline of
                that library; its scores can exceed 1.

        Returns:
            An `Answer` for each question, or a list of `Answer` for each.

        Raises:
            UserError: the model has no head for answers, or an argument does not fit.
        """
        model = self._model_with("squad", "answer")
        answering.check_method(method)
        if top_k is not None and top_k < 1:
            raise UserError(
                "top_k must be None, for the best answer alone, or at least 1; received"
                f" {quoted(top_k)}"
            )
        questions, single = text_input.as_list(question, name="question")
        contexts, one_context = text_input.as_list(context, name="context")
        if one_context or len(contexts) == 1:
            contexts = contexts[:1] * len(questions)
        if len(contexts) != len(questions):
            raise UserError(
                f"There must be a context for each question, or one for all; received"
                f" {len(questions)} questions and {len(contexts)} contexts"
            )
        max_seq_length = min(max_seq_length, self.max_seq_length)
        settings = AnswerSettings(
            doc_stride=doc_stride,
            max_query_length=max(1, min(64, max_seq_length // 2)),
            version_2_with_negative=null_score_diff_threshold is not None,
            n_best_size=max(20, top_k or 1),
            max_answer_length=max_answer_length,
            null_score_diff_threshold=null_score_diff_threshold or 0.0,
        )

        def outputs(features):
            start_logits, end_logits = model_logits(model, features)
            return {"start_logits": start_logits, "end_logits": end_logits}

        search_class = answering.SEARCHES[method]
        searches = [
            search_class(q, c, self.tokenizer, settings, max_seq_length, top_k or 1)
            for q, c in zip(questions, contexts, strict=True)
        ]
        for i, search in enumerate(searches):
            if not search.rows:
                raise UserError(f"context[{i}] must have a word; received {quoted(contexts[i])}")
        rows = [row for search in searches for row in search.rows]
        logits = iter(self._run("squad", outputs, rows))
        results = []
        for search in searches:
            found = search.find([next(logits) for _ in search.rows])
            results.append(found if top_k else found[0])
        return results[0] if single else results

    def tag(self, texts: str | Sequence[str], aggregation_strategy: str = "word") -> list:
        """Returns the entities of each text, in their order.

        Args:
            texts: sentences. A long one is cut into windows.
            aggregation_strategy: what gets a tag. "word": each run of characters without white
                space, as in run_tagging. As in transformers' pipeline: "first", each run without
                white space or punctuation; "simple", each word piece; "none", each word piece,
                and neighbours are not joined.

        Returns:
            A list of `Entity` for each text. Those of one word, or of neighbours with one type,
            are one, up to a `B-` tag.

        Raises:
            UserError: the model is no tagger, or the strategy is unknown.
        """
        model = self._model_with("tagging", "tag")
        entities.check_strategy(aggregation_strategy)
        texts, single = text_input.as_list(texts)
        rows, taken = [], []
        pieces = [self.tokenizer.pieces(text) for text in texts]
        for text, found in zip(texts, pieces, strict=True):
            windows = entities.cut(text, found, self.max_seq_length - 2)
            for window in windows:
                ids = [piece.token_id for piece in found[window.begin : window.end]]
                rows.append(sequences.pack_pair(ids, [], len(ids) + 2, self.tokenizer.layout))
            taken.append(windows)
        outputs = iter(
            self._run("tagging", lambda features: {"logits": model_logits(model, features)}, rows)
        )
        results = []
        for text, found, windows in zip(texts, pieces, taken, strict=True):
            probabilities = np.zeros([len(found), len(self.labels)])
            for window in windows:
                first = 1 + window.first - window.begin
                logits = next(outputs)["logits"][first : first + window.last - window.first]
                probabilities[window.first : window.last] = _softmax(logits)
            results.append(
                entities.join(text, found, probabilities, self.labels, aggregation_strategy)
            )
        return results[0] if single else results

    def encode(
        self, texts: Any, pooling: str | None = None, normalize: bool | None = None
    ) -> np.ndarray:
        """Returns a vector for each text, float32 [texts, H]; [H] for one text.

        Args:
            texts: a text, a pair of texts `(a, b)`, or a list of either.
            pooling: "mean" of the last layer over all tokens, [CLS] and [SEP] included; "cls", the
                last layer at [CLS]; "pooled", the pooler's output, on which classifiers are
                trained. None for what the folder says, else "mean".
            normalize: whether to divide each vector by its length. None for what the folder says,
                else no.

        Raises:
            UserError: the pooling is unknown, or the model has no pooler.
        """
        pooling = pooling or self._folder.pooling
        if pooling not in POOLINGS:
            raise UserError(
                f"pooling must be one of {', '.join(POOLINGS)}; received {quoted(pooling)}"
            )
        if pooling == "pooled" and "bert/pooler/dense/kernel" not in self._folder.shapes:
            raise UserError(
                f"{self._folder.path} has no pooler, so pooling must be mean or cls, not pooled"
            )
        texts, single = text_input.as_list(texts, pairs=True)
        rows = text_input.encode(texts, self.tokenizer, self.max_seq_length)
        bert = self.model.bert

        def outputs(features):
            output = bert(*(features[name] for name in _INPUTS))
            return {"vector": text_vectors(output, features["input_mask"], pooling)}

        found = self._run(pooling, outputs, rows)
        vectors = np.zeros([len(rows), self.config.hidden_size], np.float32)
        for vector, row in zip(vectors, found, strict=True):
            vector[:] = row["vector"]
        if self._folder.normalize if normalize is None else normalize:
            vectors = _unit(vectors)
        return vectors[0] if single else vectors

    def similarity(self, texts_a: Any, texts_b: Any, pooling: str | None = None) -> Any:
        """Returns the cosine of the vectors of each two texts, float32 [texts]; a float for two.

        For every text with every other, multiply matrices of `encode(..., normalize=True)`.

        Args:
            texts_a, texts_b: a text each, or lists of as many texts.
            pooling: see `encode`.

        Raises:
            UserError: the lists differ in length, or see `encode`.
        """
        (a, single), (b, _) = (
            text_input.as_list(texts, pairs=True, name=name)
            for texts, name in ((texts_a, "texts_a"), (texts_b, "texts_b"))
        )
        if len(a) != len(b):
            raise UserError(
                f"texts_a and texts_b must be of equal length; received {len(a)} and {len(b)} texts"
            )
        vectors = self.encode(a + b, pooling, normalize=True)
        cosines = np.einsum("nh,nh->n", vectors[: len(a)], vectors[len(a) :])
        return float(cosines[0]) if single else cosines

    def attention(self, text: str | tuple[str, str]) -> TextAttention:
        """Returns the attention of every layer and head within a text or a pair of texts."""
        texts, single = text_input.as_list(text, pairs=True, name="text")
        if not single:
            raise UserError(
                f"attention takes one text, or one pair of texts; received a list of {len(texts)}"
            )
        (row,) = text_input.encode(texts, self.tokenizer, self.max_seq_length)
        bert = self.model.bert

        def outputs(features):
            output = bert(*(features[name] for name in _INPUTS))
            return {"probabilities": tf.stack(output.attention_probs, axis=1)}

        (found,) = self._run("attention", outputs, [row])
        return TextAttention(
            tokens=sequences.unpadded_tokens(row, self.tokenizer.inv_vocab),
            segment_ids=np.array(row["segment_ids"], np.int32),
            probabilities=found["probabilities"],
        )

    def _model_with(self, head: str, method: str) -> keras.Model:
        """Returns the Keras model with a head; refuses one that the checkpoint does not have."""
        if head not in self.heads:
            raise UserError(
                f"{method} needs a model with the head that {_TRAINED_BY[head]} trains;"
                f" {self._folder.path} has {listed(self.heads) or 'no head'}"
            )
        return self._model(head)

    def _model(self, head: str) -> keras.Model:
        """Returns the Keras model with a head, its weights read; "" is BERT without a head."""
        if head not in self._models:
            self._models[head] = build_model(head, self._folder)
        return self._models[head]

    def _run(self, name: str, outputs, rows, inputs=_INPUTS) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of each row; what computes them is traced at its first use.

        Raises:
            UserError: the model has no embedding for a segment.
        """
        size = self.config.type_vocab_size
        segment = max((max(row["segment_ids"]) for row in rows), default=0)
        if segment >= size:
            raise UserError(
                f"{self._folder.path} takes no pairs of texts: the vocabulary gives the second text"
                f" the segment {segment}, and type_vocab_size of the model's configuration is"
                f" {size}. Give single texts, or a model for pairs"
            )
        if name not in self._forwards:
            self._forwards[name] = Forward(outputs, inputs)
        return self._forwards[name](rows)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities over the last axis, float64."""
    logits = logits.astype(np.float64)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
