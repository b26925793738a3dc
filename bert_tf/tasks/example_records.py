"""Turns a task's examples into records, with the task's `ExampleEncoder`, and writes them."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.errors import percent
from bert_tf.files import records
from bert_tf.progress import Progress
from bert_tf.text import sequences
from bert_tf.text.base_tokenizer import Tokenizer

_EXAMPLES_PER_CALL = 2048  # examples in one call of the tokenizer

Record = dict[str, list]


class ExampleEncoder:
    """Base class of a task's encoder, which turns examples into records."""

    unit = "examples"  # the word for examples in progress bars and warnings
    length_flag = "max_seq_length"  # the flag that bounds `length_needed`
    # Number of examples to log; original: file_based_convert_examples_to_features.
    num_logged = 5

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, schema: records.Schema):
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.max_length = max_seq_length  # the value of `length_flag`
        self.schema = schema

    def texts(self, example: Any) -> list[str]:
        """Returns the texts to tokenize."""
        raise NotImplementedError

    def records(self, example: Any, ids: list[list[int]]) -> Iterable[Record]:
        """Returns the records of an example, from the token ids of each text."""
        raise NotImplementedError

    def length_needed(self, ids: list[list[int]]) -> int:
        """Returns the lowest `length_flag` that cuts nothing, from the token ids of each text."""
        raise NotImplementedError

    def about_cut(self, longest: int) -> str:
        """Returns the end of the warning about cut examples; `longest` would fit them all."""
        return f". Uncut, the longest needs {longest}"

    def describe(self, example: Any, record: Mapping[str, list]) -> Iterator[str]:
        """Yields the log lines of a record: the tokens of each sequence, unless overridden."""
        for start in range(0, len(record["input_ids"]), self.max_seq_length):
            part = slice(start, start + self.max_seq_length)
            sequence = {name: record[name][part] for name in ("input_ids", "input_mask")}
            tokens = sequences.unpadded_tokens(sequence, self.tokenizer.inv_vocab)
            yield f"tokens: {' '.join(tokens)}"


class PairEncoder(ExampleEncoder):
    """Base class of the encoders of a text or a pair of texts.

    Without a stride, an example is one sequence, truncated at its end. With a stride, each window
    of a long text becomes a sequence; see `split_pair`.
    """

    stride: int | None = None

    def length_needed(self, ids: list[list[int]]) -> int:
        if self.stride is not None:
            return 0  # nothing is left out
        return sequences.packed_length(*sequences.as_pair(ids), self.tokenizer.layout)

    def inputs(self, ids: list[list[int]], place: str) -> list[dict[str, list[int]]]:
        """Returns the model's input for each sequence; messages name the example `place`."""
        length, layout = self.max_seq_length, self.tokenizer.layout
        windows = [sequences.as_pair(ids)]
        if self.stride is not None:
            windows = sequences.split_pair(*windows[0], length, self.stride, layout, place)
        return [sequences.truncate_and_pack(*window, length, layout) for window in windows]


def write_records(
    path: str, examples: Sequence[Any], encoder: ExampleEncoder, name: str | None = None
) -> int:
    """Writes the records of all examples in order, atomically; returns the number of records."""
    num_records, serialize = 0, records.Serializer(encoder.schema)
    with (
        records.write_files([path], "output_dir") as write,
        Progress("writing records", encoder.unit, len(examples)) as progress,
    ):
        for _, own in encode(examples, encoder, f"{name or os.path.basename(path)}: "):
            for record in own:
                write(serialize(record))
                num_records += 1
            progress.advance()
    return num_records


def encode(
    examples: Iterable[Any], encoder: ExampleEncoder, place: str = ""
) -> Iterator[tuple[Any, Iterator[Record]]]:
    """Yields examples with their records, valid until the next example; warns of cut texts."""
    num_examples = num_cut = longest = 0
    for example, ids in _tokenized(examples, encoder):
        length = encoder.length_needed(ids)
        if length > encoder.max_length:
            num_cut, longest = num_cut + 1, max(longest, length)
        own = encoder.records(example, ids)
        yield example, _logged(example, own, encoder) if num_examples < encoder.num_logged else own
        num_examples += 1
    if num_cut:
        logging.warning(
            "%s%d of %d %s (%s) are cut to fit --%s=%d%s",
            *(place, num_cut, num_examples, encoder.unit, percent(num_cut, num_examples)),
            *(encoder.length_flag, encoder.max_length, encoder.about_cut(longest)),
        )


def _logged(example: Any, own: Iterable[Record], encoder: ExampleEncoder) -> Iterator[Record]:
    for record in own:
        logging.debug("*** Example ***")
        for line in encoder.describe(example, record):
            logging.debug("%s", line)
        yield record


def _tokenized(
    examples: Iterable[Any], encoder: ExampleEncoder
) -> Iterator[tuple[Any, list[list[int]]]]:
    examples = iter(examples)
    while batch := list(itertools.islice(examples, _EXAMPLES_PER_CALL)):
        texts = [encoder.texts(example) for example in batch]
        ids, splits = encoder.tokenizer.encode(list(itertools.chain.from_iterable(texts)))
        rows = (ids[i:j].tolist() for i, j in itertools.pairwise(splits))
        for example, own in zip(batch, texts, strict=True):
            yield example, list(itertools.islice(rows, len(own)))
