"""Trains, evaluates and writes sentence vectors (run_sentence_similarity.py)."""

import functools
import zipfile
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.datasets.tables import table_path
from bert_tf.engine.correlation import pearson, spearman
from bert_tf.engine.prediction import Columns, join
from bert_tf.errors import UserError
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import model_options
from bert_tf.runs.folder import reporting
from bert_tf.runs.training.fine_tuning import FineTuner
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer, needed_sets
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences, read_sentences
from bert_tf.tasks.sentences.model import SentenceModel
from bert_tf.tasks.sentences.schema import COSINE, IN_BATCH_NEGATIVES, sentences_schema
from bert_tf.tasks.sentences.settings import SentenceSettings

# Name of a set of examples -> the name of its file, and what needs its columns.
_FILES = {
    "train": ("train", "Training"),
    "eval": ("dev", "Evaluation"),
    "predict": ("test", "Prediction"),
}
VECTORS_FILE = "test_vectors.npz"
# The arrays of VECTORS_FILE: of single texts the first one alone.
VECTOR_ARRAYS = ("vectors", "second_vectors")


def run_sentence_similarity(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: SentenceSettings,
) -> dict[str, float | int] | None:
    """Trains, evaluates and predicts; returns the results of the evaluation, if there is one.

    It writes to `output_dir`:
        train.tf_record, eval.tf_record, predict.tf_record: the examples.
        checkpoints.
        eval_results.txt: the correlations of the dev file's cosines with its scores.
        test_vectors.npz: a vector of length 1 for each text of the test file.
        test_results.tsv: the cosine of each pair of the test file.

    Raises:
        UserError: settings, files and checkpoint do not fit each other.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or gradient is not finite.
    """
    tokenizer = make_tokenizer(config, settings, settings.init_checkpoint, settings.output_dir)
    _check_batch(strategy, settings)
    # All files are read first, so that their errors show before anything is computed.
    sets = {name: _read(name, settings) for name in needed_sets(strategy, settings)}
    build = functools.partial(
        SentenceModel,
        config,
        settings.loss,
        settings.score_scale,
        settings.similarity_scale,
        **model_options(settings, strategy),
    )
    num_texts = 1 if settings.text_b_column is None else 2
    schema = sentences_schema(settings.max_seq_length, num_texts)

    metric = "eval_spearman"
    encoder = SentenceEncoder(tokenizer, settings.max_seq_length, num_texts)
    with FineTuner(config, build, strategy, settings, schema, metric) as tuner:
        num_examples = {
            name: write_records(tuner.record_file(name), examples, encoder)
            for name, examples in sets.items()
        }
        sets.clear()  # frees their memory

        def predictions(name: str, batch_size: int, outputs: Sequence[str]) -> Columns:
            """Returns some of the outputs; the vectors of a dev file would take much memory."""
            chunks = tuner.predict(name, num_examples[name], batch_size)
            return join({key: chunk[key] for key in outputs} for chunk in chunks)

        def evaluate() -> dict[str, float]:
            losses = ["per_example_loss"] if settings.loss == COSINE else []
            outputs = ["outputs", "label_ids", *losses]
            columns = predictions("eval", settings.eval_batch_size, outputs)
            results = {
                "eval_pearson": pearson(columns["label_ids"], columns["outputs"]),
                "eval_spearman": spearman(columns["label_ids"], columns["outputs"]),
            }
            for name in losses:
                results |= reporting.mean_losses(columns[name], settings.eval_batch_size)
            return results

        def predict() -> None:
            outputs = ["vectors"] if num_texts == 1 else ["vectors", "outputs"]
            columns = predictions("predict", settings.predict_batch_size, outputs)
            write_vectors(tuner.run.path(VECTORS_FILE), columns["vectors"])
            if "outputs" in columns:
                path = tuner.run.path("test_results.tsv")
                reporting.write_probabilities(path, columns["outputs"])

        return tuner.train_evaluate_predict(num_examples.get("train"), evaluate, predict)


def _check_batch(strategy: tf.distribute.Strategy, settings: SentenceSettings) -> None:
    """Checks that a batch has negatives on every replica."""
    replicas = strategy.num_replicas_in_sync
    if settings.do_train and settings.loss == IN_BATCH_NEGATIVES:
        if settings.train_batch_size < 2 * replicas:
            raise UserError(
                f"--train_batch_size must be at least {2 * replicas}, two pairs for each replica,"
                f" with --loss={IN_BATCH_NEGATIVES}, since the negatives of a pair are the other"
                f" pairs of its replica; got {settings.train_batch_size}"
            )


def _read(name: str, settings: SentenceSettings) -> list[Sentences]:
    """Returns the examples of a set, "train", "eval" or "predict", that are of use."""
    file_name, needed_by = _FILES[name]
    path = table_path(file_name, settings.data_dir)
    chosen = name == "train" and settings.min_positive_score is not None
    columns = {"text_a_column": settings.text_a_column}
    if name != "predict" or settings.text_b_column is not None:
        columns["text_b_column"] = settings.text_b_column
    if name == "eval" or chosen or (name == "train" and settings.loss == COSINE):
        columns["label_column"] = settings.label_column
    examples = read_sentences(
        path,
        columns,
        settings.has_header,
        settings.delimiter,
        needed_by,
        score_scale=settings.score_scale if settings.loss == COSINE else None,
        refuse_empty_rows=name == "predict",
    )
    if not chosen:
        return examples
    positive = [x for x in examples if x.score >= settings.min_positive_score]
    logging.info("%s: %d of %d pairs are positive", path, len(positive), len(examples))
    if not positive:
        raise UserError(
            f"{path} must have a pair with a score of --min_positive_score="
            f"{settings.min_positive_score:g} or more; its highest is"
            f" {max(x.score for x in examples):g}. Lower the flag"
        )
    return positive


def write_vectors(path: str, vectors: np.ndarray) -> None:
    """Writes a NumPy archive of vectors, which `numpy.load` reads.

    Its arrays are `vectors` and, of pairs, `second_vectors`, each float32 [examples, H].

    Args:
        path: the file.
        vectors: float32 [examples, texts, H], of one or two texts.

    Raises:
        UserError: the file cannot be written.
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    logging.info("Writing vectors to: %s", path)
    with UnfinishedFile(path) as file:
        with zipfile.ZipFile(file, "w") as archive:
            for i in range(vectors.shape[1]):
                with archive.open(f"{VECTOR_ARRAYS[i]}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.ascontiguousarray(vectors[:, i]))
        file.finish()
