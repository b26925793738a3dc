"""Tests of bert_tf.datasets.tfds, on a dataset that is built on the spot."""

import numpy as np
import pytest

from bert_tf.datasets import tfds
from bert_tf.errors import UserError
from tests.support.pretraining_runs import run
from tests.support.small_datasets import build

TEXTS = {
    "train": ["One river. Two rivers!\n\nA walk", "", "The moon? The bread."],
    "test": ["Nothing but stones. 3.5 of them."],
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder with the prepared datasets `tiny` and `tiny_bytes`."""
    folder = str(tmp_path_factory.mktemp("datasets"))
    for name, texts in (("tiny", TEXTS), ("tiny_bytes", {"train": ["fine.", b"caf\xe9"]})):
        splits = {split: [(x, i) for i, x in enumerate(found)] for split, found in texts.items()}
        build(folder, name, {"text": str, "number": np.int64}, splits)
    return folder


def _read(specification, data_dir, feature="text"):
    return [line for batch in tfds.read_tfds(specification, data_dir, feature) for line in batch]


TRAIN = ["One river.", "Two rivers!", "A walk", "", "", "The moon?", "The bread.", ""]
TEST = ["Nothing but stones.", "3.5 of them.", ""]


def test_documents_of_a_split(data_dir):
    for specification, lines in (
        *(("tiny", TRAIN), ("tiny:1.2.0", TRAIN), ("tiny:test", TEST)),
        *(("tiny:1.2.0:train[:1]", TRAIN[:4]), ("tiny:train+test", TRAIN + TEST)),
    ):
        assert _read(specification, data_dir) == lines


def test_ids_are_the_same_in_every_part_of_a_split(data_dir, warnings):
    def documents(specification):
        batches = tfds.read_tfds_documents(specification, data_dir, "text")
        return [document for batch in batches for document in batch]

    train = documents("tiny")
    assert [name for name, _ in train] == [
        f"tiny-train.tfrecord-00000-of-00001__{number}" for number in range(3)
    ]
    assert [sentences for _, sentences in train] == [
        ["One river.", "Two rivers!", "A walk"],
        [],
        ["The moon?", "The bread."],
    ]
    assert warnings == ["1 of 3 documents have no sentence and are left out"]
    assert documents("tiny:train[1:]") == train[1:]


def test_what_is_refused(data_dir):
    for specification, feature, message in (
        (":train", "text", r"--tfds must be NAME\[:SPLIT\]; got ':train'"),
        ("nosuch", "text", "--tfds=nosuch: TensorFlow Datasets cannot load nosuch .--tfds_data"),
        ("tiny:dev", "text", "=tiny:dev: cannot read split 'dev'; tiny has 'test', 'train': .Unk"),
        ("tiny", "body", "ds_text_feature=body must name a string feature of tiny, one of 'text'"),
        ("tiny", "number", "--tfds_text_feature=number must name a string feature of tiny, one"),
        ("tiny_bytes", "text", r"--tfds=tiny_bytes: 'text' of example 1 .* is not UTF-8"),
        # tensorflow_datasets has code for it, but nobody has prepared it in this folder.
        ("lm1b", "text", "--tfds=lm1b: cannot read split 'train'.* could not find data in"),
    ):
        with pytest.raises(UserError, match=message) as error:
            _read(specification, data_dir, feature)
        assert len(str(error.value)) < 500 and "\n" not in str(error.value)


@pytest.mark.slow
def test_program_gives_the_records_of_the_same_text_as_a_file(tmp_path, data_dir):
    vocab = "[PAD] [UNK] [CLS] [SEP] [MASK] one two river rivers a walk the moon bread . ! ?"
    (tmp_path / "vocab.txt").write_text(vocab.replace(" ", "\n"))
    (tmp_path / "text").write_text("One river.\nTwo rivers!\nA walk\n\nThe moon?\nThe bread.\n")
    for name, source in (
        ("file", [f"--input_file={tmp_path}/text"]),
        ("tfds", ["--tfds=tiny", f"--tfds_data_dir={data_dir}"]),
    ):
        flags = [f"--vocab_file={tmp_path}/vocab.txt", "--max_seq_length=12", *source]
        output = f"--output_file={tmp_path}/{name}"
        run(*flags, output, program="create_pretraining_data.py")
    assert (tmp_path / "tfds").read_bytes() == (tmp_path / "file").read_bytes()
    assert (tmp_path / "tfds").stat().st_size > 1000
