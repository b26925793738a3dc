"""From a file of texts to a file of vectors: the one call of extract_features."""

import bisect
import collections
import contextlib
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import tokenization
from bert_tf.engine.length_buckets import Buckets, parse_lengths
from bert_tf.engine.prediction import CHUNK_BATCHES, Predictor, check_prediction
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.settings import model_options
from bert_tf.tasks.extraction import data, schema, writers
from bert_tf.tasks.extraction.model import FeaturesTask
from bert_tf.tasks.extraction.settings import ExtractionSettings
from bert_tf.text.casing import check_casing
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sequences import REQUIRED_TOKENS

_MEMORY = 512 << 20  # bytes of results that are held at a time


def extract_features(
    config: BertConfig, strategy: tf.distribute.Strategy, settings: ExtractionSettings
) -> int:
    """Returns the number of lines for which it has written what the model makes of them.

    Args:
        config: of the model.
        strategy: where it is computed.
        settings: see its fields.

    Raises:
        UserError: flags, text, vocabulary, checkpoint and configuration do not fit together. All
            that can be checked is before the first batch.
    """
    config.check_seq_length(settings.max_seq_length)
    lengths = parse_lengths(settings.length_buckets, settings.max_seq_length)
    layers = schema.parse_layers(settings.layers, config.num_hidden_layers)
    outputs = schema.parse_outputs(settings.outputs)
    check_prediction(strategy, settings.batch_size, "batch_size")
    tokenizer = FastTokenizer(settings.vocab_file, settings.do_lower_case, REQUIRED_TOKENS)
    check_casing(
        settings.do_lower_case, tokenizer.vocab, settings.vocab_file, settings.init_checkpoint
    )
    tokenization.check_vocab_size(tokenizer.vocab, config.vocab_size, settings.vocab_file)
    num_lines = data.count_lines(settings.input_file)

    task = FeaturesTask(config, layers, outputs, **model_options(settings, strategy))
    with strategy.scope():
        model = task.build_model()
    _initialize(model, settings.init_checkpoint, outputs)
    buckets = None
    if len(lengths) > 1:
        buckets = Buckets.of_schema(lengths, schema.features_schema(settings.max_seq_length))
    waiting: collections.deque[data.Example] = collections.deque()
    examples = data.read_examples(settings.input_file, tokenizer, settings.max_seq_length)

    def windows() -> Iterator[dict[str, np.ndarray]]:
        for window in _windows(examples, config, layers, outputs, settings.batch_size, lengths):
            waiting.extend(window)
            yield {
                name: np.array([example.features[name] for example in window], np.int32)
                for name in window[0].features
            }

    predictor = Predictor(task, model, strategy)
    with _open_writer(settings, layers, outputs, tokenizer) as write:
        for columns in predictor.predict(windows(), settings.batch_size, buckets, num_lines):
            for i in range(len(columns[outputs[0]])):
                example = waiting.popleft()
                tokens = slice(len(example.tokens))
                values = {
                    name: columns[name][i][(tokens,) * schema.SEQUENCE_AXES.get(name, 0)]
                    for name in outputs
                }
                write(example.linex_index, example.tokens, values)
    logging.info("%s: %d lines", settings.output_file, num_lines)
    return num_lines


def _initialize(model: keras.Model, init_checkpoint: str, outputs: list[str]) -> None:
    """Sets all weights that the outputs depend on."""
    weights = {variable.path: variable.value for variable in model.variables}
    missing = weights.keys() - set(checkpoints.initialize(weights, init_checkpoint))
    if "pooled_vector" not in outputs:
        missing = {name for name in missing if not name.startswith("bert/pooler/")}
    if missing:
        raise UserError(
            f"--init_checkpoint={init_checkpoint} must have every weight that --outputs depends on;"
            f" it lacks {', '.join(sorted(missing))}"
        )


def _windows(
    examples: Iterator[data.Example],
    config: BertConfig,
    layers: list[int],
    outputs: list[str],
    batch_size: int,
    lengths: Sequence[int],
) -> Iterator[list[data.Example]]:
    """Yields whole batches of examples together, so many that their results fit into memory.

    Each result is as long as what its example is padded to, one of `lengths` or more.
    """
    window: list[data.Example] = []
    num_bytes = 0
    for example in examples:
        window.append(example)
        length = lengths[bisect.bisect_left(lengths, len(example.tokens))]
        numbers = len(layers) * config.hidden_size * (length if "token_vectors" in outputs else 1)
        if "attention_probs" in outputs:
            numbers += length**2 * len(layers) * config.num_attention_heads
        num_bytes += 4 * numbers
        full = num_bytes >= _MEMORY or len(window) >= CHUNK_BATCHES * batch_size
        if full and len(window) % batch_size == 0:
            yield window
            window, num_bytes = [], 0
    if window:
        yield window


def _open_writer(
    settings: ExtractionSettings, layers: list[int], outputs: list[str], tokenizer: FastTokenizer
) -> contextlib.AbstractContextManager[writers.Write]:
    if settings.output_format == "json":
        return writers.write_json(settings.output_file, layers)
    if settings.output_format == "tfrecord":
        return writers.write_tfrecord(settings.output_file, layers)
    longest_token = max(map(len, tokenizer.vocab))
    return writers.write_npz(settings.output_file, layers, outputs, longest_token)
