import pytest

from bert_tf.errors import UserError
from bert_tf.text.tokenizers import load_tokenizer, read_vocabulary


@pytest.mark.parametrize("read", [read_vocabulary, lambda path: load_tokenizer(path, True)])
@pytest.mark.parametrize(
    ("files", "remedy"),
    [
        (["vocab.txt"], "give --vocab_file={}/vocab.txt"),
        (["spiece.model", "config.json"], "give --vocab_file={}/spiece.model"),
        (["tokenizer.json"], "give --vocab_file={}/tokenizer.json"),
        (["words.txt"], "{} holds 'words.txt'"),
        ([], "{} holds nothing"),
    ],
)
def test_a_folder_is_no_vocabulary(tmp_path, read, files, remedy):
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(UserError) as error:
        read(str(tmp_path))
    assert str(error.value) == (
        f"--vocab_file={tmp_path} must be a file, not a folder; {remedy.format(tmp_path)}"
    )
