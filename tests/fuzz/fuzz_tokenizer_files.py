"""Fuzzes the files of a tokenizer: all kinds of vocabularies, and what stands beside them."""

import base64
import copy
import json
import random
from pathlib import Path

from bert_tf.text.tokenizers import load_tokenizer, read_vocabulary
from tests.fuzz.cases import attempt, damage, places

_HUB = Path(__file__).parents[1] / "hugging_face/hub"
# Folders with word pieces and byte-level BPEs.
_FOLDERS = ("001", "003", "004", "007", "010", "016", "019")
_NAMES = ("vocab.txt", "vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json")
_NAMES += ("special_tokens_map.json", "added_tokens.json")
_VALUES = (
    *(None, True, False, 0, 1, 2, -1, 3.5, 10**30, 10**400, 1e300, "", " ", "a", "\ud800", "\n"),
    *("[UNK]", "[MASK]", "<mask>", "a\0b", "Ġ", "x" * 3000, [], {}, ["a"], [["a"]], [1, 2]),
    *("a b c", {"a": 1}, {"content": "[X]"}, {"content": "", "id": 7}, {"String": " "}, ["a", "b"]),
)
_TEXTS = ["The Café[MASK] ", "", "<mask> it's 12,\n\n x\u3000é 鶴 \0", "[UNK]" * 3]
_ALBERT_PIECES = (
    *("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁", "▁the", "c", "a", "f", "e", "1"),
)
_ALBERT = {
    "added_tokens": [],
    "model": {"type": "Unigram", "unk_id": 1, "vocab": [[x, -1.5] for x in _ALBERT_PIECES]},
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
            {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\4\0\0").decode()},
        ],
    },
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
        ],
    },
}


def _files(random: random.Random) -> dict[str, bytes]:
    if random.random() < 0.2:
        content = copy.deepcopy(_ALBERT)
        if random.random() < 0.8:
            del content["normalizer"]["normalizers"][-1]
        return {"tokenizer.json": json.dumps(content).encode()}
    folder = _HUB / random.choice(_FOLDERS)
    files = {name: folder / name for name in _NAMES if (folder / name).exists()}
    return {name: path.read_bytes() for name, path in files.items()}


def _changed(random: random.Random, data: bytes) -> bytes:
    """Returns the JSON with another value, without a key, or with one more."""
    content = json.loads(data)
    every = list(places(content))
    large = [p for p in every if len(p[0]) > 40]  # vocabularies, which would get every change
    container, key = random.choice([p for p in every if p not in large] or every)
    if large and random.random() < 0.3:
        container, key = random.choice(large)
    match random.choice(["value", "value", "remove", "key", "copy"]):
        case "value":
            container[key] = random.choice(_VALUES)
        case "remove":
            del container[key]
        case "key" if isinstance(container, dict):
            name = random.choice(["", "\ud800", "new", "content", "id", "a b", "\n", "[X]"])
            container[name] = (
                container.pop(key) if random.random() < 0.5 else random.choice(_VALUES)
            )
        case _ if isinstance(container, list):
            container.append(copy.deepcopy(random.choice([container[key], *_VALUES])))
        case _:
            container[key] = copy.deepcopy(random.choice(list(container.values())))
    return json.dumps(content).encode()


def fuzz_tokenizer_files(random: random.Random, folder: Path) -> None:
    files = _files(random)
    vocabulary = random.choice([x for x in files if x in _NAMES[:2] or x == "tokenizer.json"])
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        name = random.choice([vocabulary, *files])
        if name.endswith(".json") and random.random() < 0.8:
            try:
                files[name] = _changed(random, files[name])
            except ValueError:  # it is damaged already
                continue
        else:
            files[name] = damage(random, files[name])
    for name, content in files.items():
        (folder / name).write_bytes(content)
    path, hugging_face = folder / vocabulary, random.random() < 0.8
    lower = (
        vocabulary != "vocab.json"
        and random.random() < 0.5
        and b'"BPE"' not in files.get("tokenizer.json", b"")
    )
    message, found = attempt(
        lambda: (
            load_tokenizer(str(path), lower, hugging_face=hugging_face),
            read_vocabulary(str(path), hugging_face),
        ),
        naming=str(folder),
    )
    if message is not None:
        return
    tokenizer, contents = found
    ids, row_splits = tokenizer.encode(_TEXTS)
    assert row_splits[-1] == len(ids) and set(ids.tolist()) <= set(tokenizer.inv_vocab)
    # What is kept of the files gives the same ids.
    again = folder / "again"
    again.mkdir()
    for name, content in contents.items():
        (again / name).write_bytes(content)
    name = next(name for name in contents if name.startswith(("vocab.", "spm.")))
    other = load_tokenizer(str(again / name), lower)
    assert other.encode(_TEXTS)[0].tolist() == ids.tolist()
