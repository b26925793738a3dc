"""Sentence vectors as a task of fine-tuning (run_sentence_similarity.py)."""

import dataclasses
import zipfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.datasets.retrieval import read_retrieval_set
from bert_tf.datasets.tables import find_table, place_of, table_path
from bert_tf.engine.correlation import pearson, spearman
from bert_tf.errors import UserError
from bert_tf.files.checkpoints import folder_of
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.hugging_face.vector_settings import VectorSettings, check_mean_vectors
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.results.kept_rows import Cell
from bert_tf.runs.results.tables import write_predictions
from bert_tf.tasks.sentences import retrieval, review
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences, read_sentences
from bert_tf.tasks.sentences.distillation import TaughtVectors
from bert_tf.tasks.sentences.model import SentenceModel, check_sizes
from bert_tf.tasks.sentences.schema import COSINE, IN_BATCH_NEGATIVES, TEACHER
from bert_tf.tasks.sentences.settings import SentenceSettings
from bert_tf.tasks.sentences.teacher import read_teacher
from bert_tf.tasks.task import ExampleSet, FineTuningTask, PredictionColumns, check_differ
from bert_tf.text.tokenizers import Tokenizer

# Purpose -> the name of its file, and what needs its columns.
_FILES = {
    "train": ("train", "Training"),
    "eval": ("dev", "Evaluation"),
    "predict": ("test", "Prediction"),
}


@dataclasses.dataclass(eq=False)
class _Queries(ExampleSet):
    """The queries of a retrieval set.

    vectors: float32 [queries, H], of the last evaluation.
    """

    vectors: np.ndarray | None = None


@dataclasses.dataclass(eq=False)
class _Corpus(ExampleSet):
    """The texts of a retrieval set, which are evaluated after its queries."""

    queries: _Queries | None = None
    relevant: Sequence[Mapping[int, float]] = ()  # of each query, by the text's number


class SentenceTask(FineTuningTask):
    """Turns sentences into vectors whose cosine tells how similar they are in meaning.

    Predictions go to test_vectors.npz, a vector of length 1 for each text of the test file, and to
    test_results.tsv, the cosine of each pair; in predictions.tsv it stands beside the texts.
    """

    def __init__(self, settings: SentenceSettings):
        super().__init__(settings)
        length = settings.max_seq_length
        self.vector_settings = VectorSettings(normalize=True, max_seq_length=length)
        self.best_metric = "eval_ndcg@10" if settings.retrieval_dir else "eval_spearman"

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Checks the model's kind of vectors, and that a batch has negatives."""
        settings = self.settings
        check_sizes(settings.sizes, config)
        if settings.init_checkpoint:
            check_mean_vectors(folder_of(settings.init_checkpoint))
        needs_negatives = settings.do_train and settings.loss == IN_BATCH_NEGATIVES
        if needs_negatives and settings.train_batch_size < 2:
            raise UserError(
                f"--train_batch_size must be at least 2 with --loss={IN_BATCH_NEGATIVES}, since the"
                " negatives of a pair are the other pairs of its batch; got"
                f" {settings.train_batch_size}"
            )

    def read(self, purpose: str) -> list[Sentences]:
        settings = self.settings
        file_name, needed_by = _FILES[purpose]
        path = table_path(file_name, settings.data_dir)
        chosen = purpose == "train" and settings.min_positive_score is not None
        columns = {"text_a_column": settings.text_a_column}
        may_be_single = purpose == "predict" or (purpose == "train" and settings.loss == TEACHER)
        if not may_be_single or settings.text_b_column is not None:
            columns["text_b_column"] = settings.text_b_column
        if purpose == "train" and settings.negative_column is not None:
            columns["negative_column"] = settings.negative_column
        if purpose == "eval" or chosen or (purpose == "train" and settings.loss == COSINE):
            columns["label_column"] = settings.label_column
        examples = read_sentences(
            path,
            columns,
            settings.has_header,
            settings.delimiter,
            needed_by,
            score_scale=settings.score_scale if settings.loss == COSINE else None,
            refuse_empty=purpose == "predict",
        )
        if not chosen:
            return examples
        positive = [x for x in examples if x.score >= settings.min_positive_score]
        logging.info("%s: %d of %d pairs are positive", path, len(positive), len(examples))
        if not positive:
            raise UserError(
                f"{place_of(path)} must have a pair with a score of --min_positive_score="
                f"{settings.min_positive_score:g} or more; its highest is"
                f" {max(x.score for x in examples):g}. Lower --min_positive_score"
            )
        return positive

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        """Returns the set for a purpose; for an evaluation the retrieval set, too."""
        settings = self.settings
        if purpose != "eval" or settings.retrieval_dir is None:
            return super().read_sets(purpose)
        found = read_retrieval_set(settings.retrieval_dir, "retrieval_dir")
        queries, texts = (
            [Sentences((x,)) for x in texts] for texts in (found.queries, found.texts)
        )
        sets = super().read_sets(purpose) if settings.label_column else []
        sets.append(_Queries("queries", queries))
        return [*sets, _Corpus("corpus", texts, queries=sets[-1], relevant=found.relevant)]

    def dev_set(self) -> str | None:
        return find_table(_FILES["eval"][0], self.settings.data_dir)

    def key(self, example: Sentences) -> tuple[None, str]:
        return None, "\n".join(example.texts)

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: None) -> None:
        if self.settings.loss == COSINE:
            check_differ(x.score for training in sets.get("train", ()) for x in training.examples)

    def row(self, example: Sentences, purpose: str, number: int) -> dict[str, Cell] | None:
        if len(example.texts) != 2:
            return None
        text_a, text_b = example.texts
        label = example.score if purpose == "eval" else None
        return {"id": f"{purpose}-{number}", "text_a": text_a, "text_b": text_b, "label": label}

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
        self,
        config: BertConfig,
        tokenizer: Tokenizer,
        labels: None,
        strategy: tf.distribute.Strategy,
    ) -> dict[str, Callable]:
        if self.settings.loss != TEACHER:
            return {}
        teacher = read_teacher(self.settings, config, tokenizer, strategy)
        return {"objective": lambda student: TaughtVectors(student, teacher)}

    def evaluate(self, example_set: ExampleSet, predictions: PredictionColumns) -> dict[str, float]:
        if isinstance(example_set, _Queries):
            example_set.vectors = predictions.join("vectors")["vectors"][:, 0]
            return {}
        if isinstance(example_set, _Corpus):
            vectors = (chunk["vectors"][:, 0] for chunk in predictions)
            queries, relevant = example_set.queries.vectors, example_set.relevant
            return retrieval.evaluate(queries, vectors, relevant, self.settings.sizes)
        losses = ["per_example_loss"] if self.settings.loss == COSINE else []
        sizes = [f"_{size}" for size in self.settings.sizes]
        outputs = [f"outputs{size}" for size in sizes]
        # Without the large vectors.
        columns = predictions.join("outputs", "label_ids", *outputs, *losses)
        example_set.answers = columns
        results = {}
        for size in ("", *sizes):
            found = columns["label_ids"], columns[f"outputs{size}"]
            results |= {f"eval_pearson{size}": pearson(*found)}
            results |= {f"eval_spearman{size}": spearman(*found)}
        for name in losses:
            results |= reporting.mean_losses(columns[name], self.settings.eval_batch_size)
        return results

    def write_review(self, example_set: ExampleSet) -> None:
        if example_set.rows:  # pairs
            found = (example_set.answers[name] for name in ("label_ids", "outputs"))
            review.write_review(self.settings.output_dir, example_set.rows, *found)

    def write_predictions(self, example_set: ExampleSet, predictions: PredictionColumns) -> None:
        is_pair = self.settings.text_b_column is not None
        columns = predictions.join("vectors", *(["outputs"] if is_pair else []))
        _write_vectors(self.path("test_vectors.npz"), columns["vectors"])
        if is_pair:
            reporting.write_probabilities(self.path("test_results.tsv"), columns["outputs"])
            found = {"prediction": list(columns["outputs"])}
            write_predictions(self.path("predictions.tsv"), example_set.rows, found)


def _write_vectors(path: str, vectors: np.ndarray) -> None:
    """Writes float32 [examples, texts, H] as a NumPy archive, which `numpy.load` reads.

    Its arrays are `vectors` and, for pairs, `second_vectors`, each float32 [examples, H].
    """
    logging.info("Writing vectors to: %s", path)
    with UnfinishedFile(path) as file:
        with zipfile.ZipFile(file, "w") as archive:
            for i, name in enumerate(("vectors", "second_vectors")[: vectors.shape[1]]):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.ascontiguousarray(vectors[:, i]))
        file.finish()
