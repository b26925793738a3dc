"""The tables of run_sentence_similarity.py, and the files that it writes."""

import os
import zipfile

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.datasets.retrieval import read_retrieval_set
from bert_tf.datasets.tables import find_table, place_of, table_path
from bert_tf.engine.measures import ranks
from bert_tf.engine.prediction import Columns
from bert_tf.errors import UserError
from bert_tf.files.checkpoints import folder_of
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import check_mean_vectors
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import Cell, KeptRows
from bert_tf.tasks.sentences.data import Sentences, read_sentences
from bert_tf.tasks.sentences.settings import (
    COSINE,
    IN_BATCH_NEGATIVES,
    TEACHER,
    TRIPLET,
    SentenceSettings,
)
from bert_tf.tasks.sentences.task import Corpus, Queries, SentenceTask
from bert_tf.tasks.task import Evaluated, ExampleSet, TaskFiles

_FILES = {"train": "train", "eval": "dev", "predict": "test"}  # purpose -> the file's name


class SentenceFiles(TaskFiles, SentenceTask):
    """Reads tables of pairs and triplets.

    Predictions: test_vectors.npz has a vector of length 1 for each text of the test file,
    test_results.tsv the cosine of each pair, and predictions.tsv cosines beside the texts.
    """

    def __init__(self, settings: SentenceSettings):
        super().__init__(settings)
        if settings.retrieval_dir:
            self.best_metric = "eval_ndcg@10"

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        """Also checks that the vectors of --init_checkpoint are means over the tokens."""
        if self.settings.init_checkpoint:
            check_mean_vectors(folder_of(self.settings.init_checkpoint))
        super().check(config, strategy)

    def read(self, purpose: str) -> list[Sentences]:
        settings = self.settings
        path = table_path(_FILES[purpose], settings.data_dir)
        chosen = purpose == "train" and settings.min_positive_score is not None
        columns = {"text_a_column": settings.text_a_column}
        may_be_single = purpose == "predict" or (purpose == "train" and settings.loss == TEACHER)
        if not may_be_single or settings.text_b_column is not None:
            columns["text_b_column"] = settings.text_b_column
        if purpose == "train" and settings.negative_column is not None:
            columns["negative_column"] = settings.negative_column
        means_same = settings.loss in (IN_BATCH_NEGATIVES, TRIPLET)
        ignored = purpose == "train" and means_same and not chosen
        if purpose == "eval" or chosen or (purpose == "train" and settings.loss == COSINE):
            columns["label_column"] = settings.label_column
        examples = read_sentences(
            path,
            columns,
            settings.has_header,
            settings.delimiter,
            score_scale=settings.score_scale if settings.loss == COSINE else None,
            refuse_empty=purpose == "predict",
            unread_scores=settings.label_column if ignored else None,
            loss=settings.loss,
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
        """Returns the set for a purpose; for an evaluation also the retrieval set."""
        settings = self.settings
        if purpose != "eval" or settings.retrieval_dir is None:
            return super().read_sets(purpose)
        found = read_retrieval_set(settings.retrieval_dir, "retrieval_dir")
        queries, texts = (
            [Sentences((x,)) for x in texts] for texts in (found.queries, found.texts)
        )
        sets = super().read_sets(purpose) if settings.label_column else []
        sets.append(Queries("queries", queries))
        if own := sum(number >= 0 for number in found.itself):
            logging.info(
                "%d of %d queries have the _id of a text in the corpus; a query's own text never"
                " counts as found",
                *(own, len(queries)),
            )
        corpus = Corpus("corpus", texts, queries=sets[-1])
        corpus.relevant, corpus.itself = found.relevant, found.itself
        return [*sets, corpus]

    def dev_set(self) -> str | None:
        return find_table(_FILES["eval"], self.settings.data_dir)

    def row(self, example: Sentences, purpose: str, number: int) -> dict[str, Cell] | None:
        if len(example.texts) != 2:
            return None
        text_a, text_b = example.texts
        label = example.score if purpose == "eval" else None
        return {"id": f"{purpose}-{number}", "text_a": text_a, "text_b": text_b, "label": label}

    def write_review(self, example_set: ExampleSet, evaluated: Evaluated) -> None:
        if example_set.rows:  # pairs
            found = (evaluated.found[name] for name in ("label_ids", "outputs"))
            write_review(self.settings.output_dir, example_set.rows, *found)

    def write_predictions(
        self, example_set: ExampleSet, outputs: Columns, global_step: int
    ) -> None:
        path, vectors = self.path("test_vectors.npz"), outputs["vectors"]
        logging.info("Writing vectors to: %s", path)
        with UnfinishedFile(path) as file:
            with zipfile.ZipFile(file, "w") as archive:
                for i, name in enumerate(("vectors", "second_vectors")[: vectors.shape[1]]):
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, np.ascontiguousarray(vectors[:, i]))
            file.finish()
        if "outputs" in outputs:
            reporting.write_probabilities(self.path("test_results.tsv"), outputs["outputs"])
            found = {"prediction": list(outputs["outputs"])}
            tables.write_predictions(self.path("predictions.tsv"), example_set.rows, found)


def write_review(output_dir: str, rows: KeptRows, scores: np.ndarray, cosines: np.ndarray) -> None:
    """Writes eval_predictions.tsv and errors.tsv (wrongly ranked pairs, the worst first).

    Scores and cosines, float [pairs], are compared by rank, as in the Spearman correlation:
    `rank_difference` is a pair's rank by cosine minus its rank by score, as a fraction of all
    pairs: negative if the cosine ranks the pair too low.
    """
    differences = ((ranks(cosines) - ranks(scores)) / len(scores)).astype(np.float32)
    found = {"prediction": list(cosines), "rank_difference": list(differences)}
    order = tables.surest_first(differences != 0, np.abs(differences))
    for name, numbers in ((tables.EVALUATED, None), ("errors", order)):
        tables.write_predictions(os.path.join(output_dir, f"{name}.tsv"), rows, found, numbers)
