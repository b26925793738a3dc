"""Sentence vectors as a fine-tuning task, with evaluation and a teacher."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.measures import Ranking, mean_measures, pearson, spearman
from bert_tf.engine.prediction import Columns, join
from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import example_weights
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings, check_mean_vectors
from bert_tf.runs.folder import reporting
from bert_tf.runs.training.fine_tuning_checks import (
    check_hidden_sizes,
    checked_teacher_files,
    load_teacher,
)
from bert_tf.runs.training.trainer import model_options
from bert_tf.tasks.distilled import TaughtStudent
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences
from bert_tf.tasks.sentences.model import SentenceModel, check_sizes
from bert_tf.tasks.sentences.settings import (
    COSINE,
    IN_BATCH_NEGATIVES,
    TEACHER,
    SentenceOptions,
    SentenceSettings,
)
from bert_tf.tasks.task import Chunks, Evaluated, ExampleSet, FineTuningTask, Start
from bert_tf.text.base_tokenizer import Tokenizer

RECALL_AT = (1, 10, 100)


def retrieval_scores(
    queries: np.ndarray,
    texts: Iterable[np.ndarray],
    relevant: Sequence[Mapping[int, float]],
    sizes: Sequence[int] = (),
    itself: Sequence[int] = (),
) -> dict[str, float]:
    """Returns `eval_NAME` for recall, MRR@10 and nDCG@10 by the cosines of queries and texts.

    Scores of vectors truncated to `sizes` are `eval_NAME_SIZE`. Only the nearest texts are kept.

    Args:
        queries: float32 [queries, H], vectors of length 1.
        texts: chunks of vectors, float32 [texts, H] each.
        relevant, itself: see `Corpus`; a query's own text never counts as found, as in BEIR.
    """
    nearest = {size: _Nearest(len(relevant)) for size in (None, *sizes)}
    done = 0
    for vectors in texts:
        gains = np.zeros([len(queries), len(vectors)], np.float32)
        for query, of_query in enumerate(relevant):
            for text, gain in of_query.items():
                if done <= text < done + len(vectors):
                    gains[query, text - done] = gain
        own = [(q, text - done) for q, text in enumerate(itself) if 0 <= text - done < len(vectors)]
        done += len(vectors)
        for size, found in nearest.items():
            cosines = _truncated(queries, size) @ _truncated(vectors, size).T
            for query, text in own:
                gains[query, text], cosines[query, text] = 0.0, -np.inf
            found.add(gains, cosines)
    results = {}
    every_gain = [np.array([*of_query.values()]) for of_query in relevant]
    for size, found in nearest.items():
        rankings = map(Ranking.of_gains, found.gains, every_gain)
        measures = mean_measures([*rankings], recall_at=RECALL_AT)
        del measures["map"]  # needs the whole ranking
        end = "" if size is None else f"_{size}"
        results |= {f"eval_{name}{end}": value for name, value in measures.items()}
    return results


def _check_negatives(examples: Sequence[Sentences]) -> None:
    """Warns if no text of the pairs has a negative, so that nothing can be learned."""
    if not examples or len(examples[0].texts) > 2:
        return
    pairs = {x.texts for x in examples}
    firsts, seconds = ({*side} for side in zip(*pairs, strict=True))
    if len(firsts) * len(seconds) > 3 * len(pairs):  # some are unrelated
        return
    related = {*pairs, *((b, a) for a, b in pairs), *((text, text) for text in firsts)}
    if sum(a in firsts and b in seconds for a, b in related) == len(firsts) * len(seconds):
        logging.warning(
            "No text of the %d training examples has a negative, since each first text is in a pair"
            " with each second text, so the model learns nothing",
            len(examples),
        )


def _truncated(vectors: np.ndarray, size: int | None) -> np.ndarray:
    if size is None:
        return vectors
    vectors = vectors[:, :size]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class _Nearest:
    """The gains and cosines of the texts nearest to each query, the nearest first."""

    def __init__(self, num_queries: int):
        self.gains = np.zeros([num_queries, 0], np.float32)
        self._cosines = np.zeros([num_queries, 0], np.float32)

    def add(self, gains: np.ndarray, cosines: np.ndarray) -> None:
        """Adds more texts; both float32 [queries, texts]. Ties are broken as in `ranked_groups`."""
        gains = np.concatenate([self.gains, gains], axis=1)
        cosines = np.concatenate([self._cosines, cosines], axis=1)
        order = np.lexsort((gains, -cosines), axis=1)[:, : max(RECALL_AT)]
        self.gains = np.take_along_axis(gains, order, axis=1)
        self._cosines = np.take_along_axis(cosines, order, axis=1)


class TaughtVectors(TaughtStudent):
    """A student that learns a teacher's sentence vectors.

    Loss: https://arxiv.org/abs/2004.09813, section 2, and sentence-transformers' MSELoss.
    """

    def __call__(
        self, features: Features, *, training: bool, dropout_seed: tf.Tensor | None
    ) -> Any:
        """Returns the student's and the teacher's vectors, float32 [B, T, H] each."""
        student = self.student(features, training=training, dropout_seed=dropout_seed)
        return student, tf.stop_gradient(self.teacher(features, training=False))

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean squared difference of the elements of all vectors, float32 []."""
        student, teacher = outputs
        losses = tf.reduce_mean(tf.square(student - teacher), axis=[1, 2])
        loss = tf.reduce_sum(example_weights(features) * losses)
        return tf.math.divide_no_nan(loss, normalizers["examples"]), {}


def read_teacher(
    settings: SentenceSettings, start: Start, strategy: tf.distribute.Strategy
) -> SentenceModel:
    files = checked_teacher_files(settings, start.config, start.tokenizer)
    check_mean_vectors(files.home)
    check_hidden_sizes(start.config, files.config, "Choose a different teacher")
    options = model_options(settings, strategy) | {"recompute_activations": False}
    build = functools.partial(SentenceModel, files.config, **options)
    return load_teacher(build, files, strategy, unneeded=["bert/pooler/"])[0]


@dataclasses.dataclass(eq=False)
class Queries(ExampleSet):
    """The queries of a retrieval set."""

    vectors: np.ndarray | None = None  # float32 [queries, H], from the last evaluation


@dataclasses.dataclass(eq=False)
class Corpus(ExampleSet):
    """The texts of a retrieval set, which are evaluated after its queries."""

    queries: Queries | None = None
    relevant: Sequence[Mapping[int, float]] = ()  # for each query, text number -> relevance
    itself: Sequence[int] = ()  # for each query, the number of the text with its _id; -1 for none


class SentenceTask(FineTuningTask):
    """The task of sentence vectors, whose cosine tells how similar two texts are in meaning."""

    options = SentenceOptions
    best_metric = "eval_spearman"

    def __init__(self, settings: SentenceOptions):
        super().__init__(settings)
        length = settings.max_seq_length
        self.vector_settings = VectorSettings(normalize=True, max_seq_length=length)

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Checks the sizes of vectors, and that a batch has negatives."""
        settings = self.settings
        check_sizes(settings.sizes, config)
        needs_negatives = settings.do_train and settings.loss == IN_BATCH_NEGATIVES
        if needs_negatives and settings.train_batch_size < 2:
            raise UserError(
                f"--train_batch_size must be at least 2 with --loss={IN_BATCH_NEGATIVES}, since the"
                " negatives of a pair are the other pairs of its batch; got"
                f" {settings.train_batch_size}"
            )

    def key(self, example: Sentences) -> tuple[None, str]:
        return None, "\n".join(example.texts)

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: None) -> None:
        examples = [x for training in sets.get("train", ()) for x in training.examples]
        if self.settings.loss == COSINE:
            self.check_differ(x.score for x in examples)
        if self.settings.loss == IN_BATCH_NEGATIVES:
            counts = collections.Counter(text for x in examples for text in {*x.texts[:2]})
            if several := sum(count > 1 for count in counts.values()):
                logging.info(
                    "%d of %d texts are in several pairs; a text's partners are not its negatives",
                    *(several, len(counts)),
                )
            _check_negatives(examples)

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: None
    ) -> SentenceEncoder:
        num_texts = len(example_set.examples[0].texts)
        return SentenceEncoder(tokenizer, self.settings.max_seq_length, num_texts)

    def build(self, config: BertConfig, labels: None, **options) -> SentenceModel:
        settings = self.settings
        return SentenceModel(
            config,
            COSINE if settings.loss == TEACHER else settings.loss,  # `TaughtVectors` has its own
            settings.score_scale,
            settings.similarity_scale,
            settings.triplet_margin,
            settings.sizes,
            **options,
        )

    def teaching(
        self, start: Start, labels: None, strategy: tf.distribute.Strategy
    ) -> dict[str, Callable]:
        if self.settings.loss != TEACHER:
            return {}
        teacher = read_teacher(self.settings, start, strategy)
        return {"objective": lambda student: TaughtVectors(student, teacher)}

    def evaluate(self, example_set: ExampleSet, predictions: Chunks) -> Evaluated:
        if isinstance(example_set, Queries):
            example_set.vectors = join(predictions, "vectors")["vectors"][:, 0]
            return Evaluated({})
        if isinstance(example_set, Corpus):
            vectors = (chunk["vectors"][:, 0] for chunk in predictions)
            queries, sizes = example_set.queries.vectors, self.settings.sizes
            return Evaluated(
                retrieval_scores(queries, vectors, example_set.relevant, sizes, example_set.itself)
            )
        losses = ["per_example_loss"] if self.settings.loss == COSINE else []
        sizes = [f"_{size}" for size in self.settings.sizes]
        outputs = [f"outputs{size}" for size in sizes]
        # The large vectors are not needed.
        columns = join(predictions, "outputs", "label_ids", *outputs, *losses)
        results = {}
        for size in ("", *sizes):
            found = columns["label_ids"], columns[f"outputs{size}"]
            results |= {f"eval_pearson{size}": pearson(*found)}
            results |= {f"eval_spearman{size}": spearman(*found)}
        for name in losses:
            results |= reporting.mean_losses(columns[name], self.settings.eval_batch_size)
        return Evaluated(results, columns)

    def predict(self, example_set: ExampleSet, predictions: Chunks) -> Columns:
        """Returns the `vectors` of the texts and, for pairs, the cosines as `outputs`."""
        is_pair = example_set.encoder.num_texts == 2
        return join(predictions, "vectors", *(["outputs"] if is_pair else []))
