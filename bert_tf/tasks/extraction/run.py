"""Writes BERT's vectors for each line of a text (extract_features.py)."""

import bisect
import collections
import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.length_buckets import Buckets, parse_lengths
from bert_tf.engine.prediction import CHUNK_BATCHES, Columns, Predictor, check_prediction
from bert_tf.errors import UserError, quoted
from bert_tf.files import checkpoints, records
from bert_tf.files.paths import check_overwrites
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import check_mean_vectors
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.runs.training.trainer import model_options
from bert_tf.seeds import reading_weights
from bert_tf.tasks.extraction import lines
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.extraction.settings import (
    SEQUENCE_AXES,
    ExtractionSettings,
    parse_layers,
    parse_outputs,
)
from bert_tf.tasks.long_text import join_windows
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.tokenizers import vocabulary_files

# The number of a line, its tokens, and its outputs by name.
Row = tuple[int, list[str], dict[str, np.ndarray]]


def extract_features(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: ExtractionSettings,
    max_bytes: int = 512 << 20,
) -> int:
    """Writes each line's outputs; returns the line count. For `max_bytes` see `make_chunks`."""
    lengths = parse_lengths(settings.length_buckets, settings.max_seq_length)
    layers = parse_layers(settings.layers, config.num_layer_outputs)
    outputs = parse_outputs(settings.outputs)
    tokenizer = _open_tokenizer(config, strategy, settings, outputs)
    length, batch_size, stride = settings.max_seq_length, settings.batch_size, settings.stride
    num_lines = lines.count_lines(settings.input_file)
    with strategy.scope(), reading_weights():
        model = FeaturesModel(config, layers, outputs, **model_options(settings, strategy))
    _initialize(model, settings.init_checkpoint, outputs)
    buckets = None
    if len(lengths) > 1:
        buckets = Buckets.of_schema(lengths, records.model_inputs([length]))
    examples = lines.read_examples(settings.input_file, tokenizer, length, stride)
    chunks = make_chunks(examples, config, layers, outputs, batch_size, lengths, max_bytes)
    predict = functools.partial(
        Predictor(model, strategy).predict,
        batch_size=batch_size,
        buckets=buckets,
        num_examples=num_lines if stride is None else None,  # the number of windows is unknown
    )
    with _open_writer(settings, layers, outputs, tokenizer) as write:
        for row in join_lines(_predicted(chunks, predict, outputs), settings.long_text):
            write(*row)
    logging.info("%s: %d lines", settings.output_file, num_lines)
    return num_lines


def _open_tokenizer(
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: ExtractionSettings,
    outputs: Sequence[str],
) -> Tokenizer:
    """Checks the settings, and returns the tokenizer."""
    config.check_seq_length(settings.max_seq_length)
    if settings.stride is not None and not {*outputs} <= {"mean_vector", "pooled_vector"}:
        raise UserError(
            f"--long_text={settings.long_text} combines the windows of a line into one vector, so"
            " --outputs must be mean_vector, pooled_vector or both; received"
            f" {quoted(settings.outputs)}"
        )
    check_prediction(strategy, settings.batch_size, "batch_size")
    if "mean_vector" in outputs:
        check_mean_vectors(checkpoints.folder_of(settings.init_checkpoint))
    tokenizer = make_tokenizer(config, settings, settings.init_checkpoint)
    tokenizer.layout.check_length(settings.max_seq_length, 0)
    read = {
        "input_file": settings.input_file,
        "vocab_file": vocabulary_files(settings.vocab_file).values(),
        "init_checkpoint": ModelFiles.of_flag(settings.init_checkpoint).weight_paths,
    }
    check_overwrites([settings.output_file], "output_file", read)
    return tokenizer


def _predicted(
    chunks: Iterable[list[lines.Example]],
    predict: Callable[[Iterator[dict[str, np.ndarray]]], Iterator[Columns]],
    outputs: Sequence[str],
) -> Iterator[Row]:
    """Yields the row of each example, its outputs without padding."""
    computed: collections.deque[list[lines.Example]] = collections.deque()

    def features() -> Iterator[dict[str, np.ndarray]]:
        for chunk in chunks:
            computed.append(chunk)
            yield {
                name: np.array([example.features[name] for example in chunk], np.int32)
                for name in chunk[0].features
            }

    for columns in predict(features()):
        for i, example in enumerate(computed.popleft()):
            tokens = slice(len(example.tokens))
            values = {
                name: columns[name][i][(tokens,) * SEQUENCE_AXES.get(name, 0)] for name in outputs
            }
            yield example.linex_index, example.tokens, values


def join_lines(rows: Iterable[Row], long_text: str) -> Iterator[Row]:
    """Yields one row for each line: joins the vectors and the tokens of a line's windows."""
    for index, group in itertools.groupby(rows, key=operator.itemgetter(0)):
        _, tokens, values = zip(*group, strict=True)
        if len(values) == 1:
            yield index, tokens[0], values[0]
            continue
        vectors = {name: np.stack([one[name] for one in values]) for name in values[0]}
        joined = {name: join_windows(x, [len(x)], long_text)[0] for name, x in vectors.items()}
        yield index, list(itertools.chain.from_iterable(tokens)), joined


def _initialize(model: keras.Model, init_checkpoint: str, outputs: list[str]) -> None:
    weights = {variable.path: variable.value for variable in model.variables}
    reader = ModelFiles.of_flag(init_checkpoint).weights
    pooled = "pooled_vector" in outputs
    needed = [name for name in weights if pooled or not name.startswith("bert/pooler/")]
    checkpoints.initialize(weights, init_checkpoint, reader=reader, needed=needed)


def make_chunks(
    examples: Iterable[lines.Example],
    config: BertConfig,
    layers: Sequence[int],
    outputs: Sequence[str],
    batch_size: int,
    lengths: Sequence[int],
    max_bytes: int,
) -> Iterator[list[lines.Example]]:
    """Yields the examples in chunks of whole batches whose outputs fit into memory.

    A chunk ends with the batch in which the chunk's outputs, padding included, reach `max_bytes`,
    or after `CHUNK_BATCHES` batches. Examples are padded to one of the ascending `lengths`.
    """
    chunk: list[lines.Example] = []
    num_bytes = 0
    for example in examples:
        chunk.append(example)
        length = lengths[bisect.bisect_left(lengths, len(example.tokens))]
        numbers = len(layers) * config.hidden_size * (length if "token_vectors" in outputs else 1)
        if "attention_probs" in outputs:
            numbers += length**2 * len(layers) * config.num_attention_heads
        num_bytes += 4 * numbers  # float32
        full = num_bytes >= max_bytes or len(chunk) >= CHUNK_BATCHES * batch_size
        if full and len(chunk) % batch_size == 0:
            yield chunk
            chunk, num_bytes = [], 0
    if chunk:
        yield chunk


def _open_writer(
    settings: ExtractionSettings, layers: list[int], outputs: list[str], tokenizer: Tokenizer
) -> contextlib.AbstractContextManager[lines.Write]:
    if settings.output_format == "json":
        return lines.write_json(settings.output_file, layers)
    if settings.output_format == "tfrecord":
        return lines.write_tfrecord(settings.output_file, layers)
    longest_token = max(map(len, tokenizer.vocab))
    return lines.write_npz(settings.output_file, layers, outputs, longest_token)
