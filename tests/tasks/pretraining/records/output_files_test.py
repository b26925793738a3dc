"""create_pretraining_data never writes over what it reads."""

import os

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from tests.support.byte_pair_files import write_vocabulary


@pytest.mark.parametrize(
    "output, message",
    [
        ("text", "--output_file=text must not be a file of --input_file, which it would replace"),
        ("./text", "--output_file=./text must not be a file of --input_file"),
        ("link", "--output_file=link must not be a file of --input_file"),
        ("vocab.txt", "--output_file=vocab.txt must not be a file of --vocab_file"),
        ("here/new", "--output_file=here/new must not be named twice"),
        ("", "--output_file must name a file; received an empty name"),
    ],
)
def test_what_is_read_is_not_written(tmp_path, monkeypatch, output, message):
    monkeypatch.chdir(tmp_path)
    for name in ("text", "other"):
        (tmp_path / name).write_text("a a\na\n\na a a\na\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (tmp_path / "link").symlink_to("text")
    (tmp_path / "here").symlink_to(".")
    files = {path: path.read_text() for path in tmp_path.glob("*t*")}
    settings = PretrainingDataSettings(
        input_file="other,te*", output_file=f"new,{output}", vocab_file="vocab.txt"
    )
    with pytest.raises(UserError, match=f"^{message}"):
        create_pretraining_data(settings)
    assert sorted(os.listdir()) == ["here", "link", "other", "text", "vocab.txt"]
    assert {path: path.read_text() for path in files} == files


@pytest.mark.parametrize("source", [{"input_file": "text"}, {"tfds": "wiki40b/en:1.3.0"}])
@pytest.mark.parametrize("output", ["vocab.json", "merges.txt"])
def test_both_files_of_a_byte_level_bpe_are_read(tmp_path, monkeypatch, source, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("a a\na\n")
    write_vocabulary(tmp_path, ["h e"])
    content = (tmp_path / output).read_text()
    settings = PretrainingDataSettings(
        output_file=output, vocab_file="vocab.json", do_lower_case=False, **source
    )
    with pytest.raises(UserError, match=f"^--output_file={output} must not be a file of --vocab_f"):
        create_pretraining_data(settings)
    assert (tmp_path / output).read_text() == content
