"""A file that is read is a regular one: of a pipe or a device reading might not end."""

import os

import pytest

from bert_tf.datasets.wikipedia import read_articles
from bert_tf.errors import UserError
from bert_tf.files.checkpoint_names import listed_in
from bert_tf.files.model_notes import labels_in
from bert_tf.model.family import read_config
from bert_tf.tasks.extraction.lines import count_lines
from bert_tf.tasks.pretraining.records.manifest import manifest_file, read_manifests
from bert_tf.tasks.squad.examples import read_squad_examples
from bert_tf.tasks.tagging.data import read_sentences
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.refusals import refusal
from tools.search import read_vectors

READERS = {
    "squad": lambda path: read_squad_examples(path, "train_file", True, True),
    "conll": lambda path: list(read_sentences(path, "train_file", True)),
    "vocabulary": lambda path: load_tokenizer(path, True),
    "lines": count_lines,
    "wikipedia": lambda path: list(read_articles(path, "input")),
    "vectors": read_vectors,
    "configuration": read_config,
}


@pytest.mark.parametrize("name", READERS)
def test_reading_ends(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/full")
    for path in (str(tmp_path / "pipe"), str(tmp_path / "link"), "/dev/zero"):
        message = refusal(READERS[name], path)
        assert f"{path} must be a regular file, but it is a pipe or a device" in message
        assert message.startswith("--")


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_files_that_are_found_in_a_folder(kind, tmp_path):
    """They are refused as well, also where they are optional."""
    records = str(tmp_path / "a.tfrecord")
    reads = {
        manifest_file(records): lambda: read_manifests([records]),
        str(tmp_path / "labels.txt"): lambda: labels_in(str(tmp_path)),
        str(tmp_path / "checkpoint"): lambda: listed_in(str(tmp_path)),
    }
    for path, read in reads.items():
        os.mkfifo(path) if kind == "pipe" else os.symlink(kind, path)
        with pytest.raises(UserError, match=f"^{path} must be a regular file"):
            read()
