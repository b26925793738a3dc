"""Reads splits and documents of datasets that TensorFlow Datasets (TFDS) has prepared.

Nothing is downloaded, and the package is imported on first use. `specification` is the value of
--tfds, NAME[/CONFIG][:VERSION][:SPLIT]. `data_dir` is the value of --tfds_data_dir, the folder of
prepared datasets; None for the package's default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bert_tf import progress
from bert_tf.datasets.documents import EmptyReport, split_sentences, warn_of_empty_documents
from bert_tf.errors import UserError, listed, quoted
from bert_tf.start import lazy_tensorflow as tf

_DOCUMENTS_PER_BATCH = 256
_ID = "tfds_id"

# NAME[/CONFIG][:VERSION][:SPLIT]. A version begins with a digit, a split never does.
_SPECIFICATION = re.compile(r"(?P<name>[^:\[\]]+(:\d[\d.*]*)?)(:(?P<split>[^:\d].*))?")


def find(name: str, data_dir: str | None, specification: str) -> Any:
    """Returns the builder of a dataset; UserError if it is unknown."""
    import tensorflow_datasets

    try:
        return tensorflow_datasets.builder(name, data_dir=data_dir)
    except Exception as error:  # of many types: not found, bad name, code that cannot be imported
        raise UserError(
            f"--tfds={specification}: TensorFlow Datasets cannot load {name} "
            f"(--tfds_data_dir={data_dir or ''}): {quoted(str(error))}"
        ) from error


def read_split(
    builder: Any, split: str, specification: str, *, add_ids: bool = False
) -> tuple[tf.data.Dataset, int]:
    """Returns the examples of a split, in the order of its files, and the number of examples.

    A `split` may be sliced: `train[:10%]`. With `add_ids` each example also gets the key `tfds_id`.
    """
    import tensorflow_datasets

    config = tensorflow_datasets.ReadConfig(add_tfds_id=add_ids)
    try:
        dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=config)
        return dataset, builder.info.splits[split].num_examples
    except Exception as error:  # an unknown split is a KeyError or a ValueError
        raise UserError(
            f"--tfds={specification}: cannot read split {quoted(split)}; {builder.info.name} has "
            f"{listed(sorted(builder.info.splits))}: {quoted(str(error))}"
        ) from error


def read_tfds(specification: str, data_dir: str | None, text_feature: str) -> Iterator[list[str]]:
    """Yields the lines of `read_tfds_documents` in batches, with "" after each document."""
    for documents in read_tfds_documents(specification, data_dir, text_feature):
        yield [line for _, sentences in documents for line in (*sentences, "")]


def read_tfds_documents(
    specification: str,
    data_dir: str | None,
    text_feature: str,
    report_empty: EmptyReport = warn_of_empty_documents,
) -> Iterator[list[tuple[str, list[str]]]]:
    """Yields batches of a dataset's documents: (the example's TFDS id, its sentences).

    An id consists of the example's file and its index there, so it does not depend on the slice of
    the split. The default split is "train". `report_empty` is called at the end.
    """
    dataset, total = _read_texts(specification, data_dir, text_feature)
    number = num_empty = 0
    with progress.Progress("reading dataset", "documents", total) as work:
        for ids, texts in dataset.batch(_DOCUMENTS_PER_BATCH).as_numpy_iterator():
            documents = []
            for name, text in zip(ids, texts, strict=True):
                try:
                    sentences = split_sentences(text.decode())
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"--tfds={specification}: {text_feature!r} of example {number} (counted "
                        f"from 0) is not UTF-8: {error.reason}"
                    ) from error
                documents.append((name.decode(), sentences))
                num_empty += not sentences
                number += 1
            yield documents
            work.advance(len(texts))
    report_empty(num_empty, number)


def _read_texts(
    specification: str, data_dir: str | None, text_feature: str
) -> tuple[tf.data.Dataset, int]:
    """Returns a dataset of pairs (id, text), both scalar strings, and the number of pairs."""
    match = _SPECIFICATION.fullmatch(specification)
    if match is None:
        raise UserError(f"--tfds must be NAME[:SPLIT]; got {quoted(specification)}")
    name, split = match["name"], match["split"] or "train"
    builder = find(name, data_dir, specification)
    dataset, total = read_split(builder, split, specification, add_ids=True)
    spec = dataset.element_spec
    kinds = spec if isinstance(spec, dict) else {}
    texts = [x for x, kind in kinds.items() if kind == tf.TensorSpec([], tf.string) and x != _ID]
    if text_feature not in texts:
        raise UserError(
            f"--tfds_text_feature={text_feature} must name a string feature of {name}, one of "
            f"{listed(sorted(texts))}"
        )
    return dataset.map(lambda example: (example[_ID], example[text_feature])), total
