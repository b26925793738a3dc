import json
from pathlib import Path

import pytest

from bert_tf.errors import UserError
from bert_tf.text.tokenizers import load_tokenizer, read_vocabulary
from tests.support.encoded import tokens_of_each


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


HUB = Path(__file__).parents[1] / "hugging_face/hub"


def changed(folder, hub, name, change):
    """Copies a tokenizer of `hub`, and changes the content of a JSON file; returns its path."""
    for path in (HUB / hub).iterdir():
        if path.suffix in (".json", ".txt") and path.name != "expected.json":
            (folder / path.name).write_bytes(path.read_bytes())
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))
    return str(folder / name)


def rename(old, new):
    return lambda content: content.update({new: content.pop(old)})


@pytest.mark.parametrize(
    ("hub", "name", "change", "message"),
    [
        ("010", "vocab.json", rename("a", "\udc00"), r"'\\udc00' has half a surrogate pair"),
        ("010", "vocab.json", lambda x: x.update({"a": "1"}), "must map tokens to ids"),
        ("010", "vocab.json", lambda x: x.update({"a": [2]}), "must map tokens to ids"),
        ("004", "tokenizer.json", lambda x: x["model"]["merges"].append(7), "merges .*received 7"),
        (
            "004",
            "tokenizer.json",
            lambda x: x["model"]["merges"].append(["a"]),
            r"received \['a'\]",
        ),
        ("004", "tokenizer.json", lambda x: x["model"]["merges"].append([1, 2]), "two tokens"),
        ("004", "tokenizer.json", lambda x: x["model"]["merges"].append("a b\nc d"), "two tokens"),
        ("004", "tokenizer.json", lambda x: x["model"].pop("merges"), None),
        (
            "004",
            "tokenizer.json",
            lambda x: x["added_tokens"].append({"content": [], "id": 1}),
            "c",
        ),
        ("001", "tokenizer.json", lambda x: x["added_tokens"][0].update(id=-1), "an id"),
        ("001", "tokenizer.json", lambda x: x["added_tokens"][0].update(id=2**31), "an id"),
        (
            "001",
            "tokenizer.json",
            lambda x: x["added_tokens"][0].update(content="\udead"),
            "half a",
        ),
        ("001", "tokenizer.json", lambda x: rename("the", "\ud8ff")(x["model"]["vocab"]), "half a"),
        (
            "001",
            "tokenizer.json",
            lambda x: rename("the", "x\n")(x["model"]["vocab"]),
            "different l",
        ),
        (
            "001",
            "tokenizer.json",
            lambda x: rename("the", "cat ")(x["model"]["vocab"]),
            "at the ends",
        ),
        ("001", "tokenizer.json", lambda x: x.update({"a\nb": 1}), r"'a\\nb' is not known"),
    ],
)
def test_tokens_and_merges_of_other_types(tmp_path, hub, name, change, message):
    path = changed(tmp_path, hub, name, change)
    if message is None:
        load_tokenizer(path, False)
        return
    with pytest.raises(UserError, match=message) as error:
        load_tokenizer(path, False, hugging_face=True)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_an_electra_has_its_own_rules_unless_the_folder_is_hugging_faces(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\n[CLS]\n[SEP]\nab\nc\n")
    text = "a\ue000b \u0378c"
    own = load_tokenizer(str(path), True, drop_category_c=True)
    assert tokens_of_each(own, text) == [["ab", "c"]]
    assert tokens_of_each(load_tokenizer(str(path), True), text) == [["[UNK]", "[UNK]"]]
    for name, content in own.settings.files().items():  # what is written is read again
        (tmp_path / name).write_text(content)
    assert tokens_of_each(load_tokenizer(str(path), True), text) == [["ab", "c"]]
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ElectraTokenizer"}')
    of_hugging_face = load_tokenizer(str(path), True, drop_category_c=True)
    assert tokens_of_each(of_hugging_face, text) == [["ab", "[UNK]"]]
