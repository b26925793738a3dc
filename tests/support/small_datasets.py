"""Builds small datasets for TensorFlow Datasets."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def build(
    folder: str,
    dataset: str,
    features: Mapping[str, Any],
    splits: Mapping[str, Sequence[tuple]],
    shuffled: bool = False,
) -> None:
    """Prepares a dataset in a folder, version 1.2.0; skips the test without the package.

    Args:
        folder: for --tfds_data_dir.
        dataset: its name.
        features: as for `tfds.features.FeaturesDict`; str stands for a text, a list for a label
            with these classes.
        splits: the values of each example, in the order of the features.
        shuffled: whether the files are shuffled, as in most datasets.
    """
    tfds = pytest.importorskip("tensorflow_datasets")

    def feature(of: Any) -> Any:
        if isinstance(of, list):
            return tfds.features.ClassLabel(names=of)
        return tfds.features.Text() if of is str else of

    class Builder(tfds.core.GeneratorBasedBuilder):
        name = dataset
        VERSION = tfds.core.Version("1.2.0")

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict({n: feature(f) for n, f in features.items()}),
                disable_shuffling=not shuffled,
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split):
            for number, values in enumerate(splits[split]):
                yield number, dict(zip(features, values, strict=True))

    Builder(data_dir=folder).download_and_prepare()
