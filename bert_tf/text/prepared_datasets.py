"""Datasets that TensorFlow Datasets has prepared, found by name; nothing is downloaded.

tensorflow_datasets is imported where it is used: that takes seconds, and most runs read files.
"""

from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError


def find(name: str, data_dir: str | None, specification: str) -> Any:
    """Returns the `tensorflow_datasets` builder of a prepared dataset.

    Args:
        name: NAME[/CONFIG][:VERSION].
        data_dir: where prepared datasets are, `--tfds_data_dir`; None for the package's default.
        specification: what `--tfds` says, for messages.

    Raises:
        UserError: the package is not installed, or the dataset unknown or not prepared.
    """
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise UserError(f"--tfds needs tensorflow-datasets (pip install it): {error}") from error
    try:
        builder = tensorflow_datasets.builder(name, data_dir=data_dir)
    except Exception as error:  # many kinds: not found, bad name, code that cannot be imported
        raise UserError(
            f"--tfds={specification}: TensorFlow Datasets has no dataset {name} "
            f"(--tfds_data_dir={data_dir or ''}): {error}"
        ) from error
    if not builder.info.splits:
        raise UserError(
            f"--tfds={specification}: {name} is not prepared in {builder.data_dir}; "
            f"run `tfds build {name}` first, or say where it is with --tfds_data_dir"
        )
    return builder


def read_split(builder: Any, split: str, specification: str) -> tuple[tf.data.Dataset, int]:
    """Returns the examples of a split, in the order of its files, and how many there are.

    Args:
        builder: what `find` returned.
        split: a split, which may be sliced: `train[:10%]`.
        specification: what `--tfds` says, for messages.

    Raises:
        UserError: there is no such split.
    """
    try:
        dataset = builder.as_dataset(split=split, shuffle_files=False)
        return dataset, builder.info.splits[split].num_examples
    except Exception as error:  # an unknown split is a KeyError or a ValueError
        raise UserError(
            f"--tfds={specification}: cannot read split {split!r}; {builder.info.name} has "
            f"{', '.join(sorted(builder.info.splits))}: {error}"
        ) from error
