"""Fuzzes safetensors files and the index of their shards: the weights as saved, or refused."""

import json
import random
import struct
from pathlib import Path

import numpy as np

from bert_tf.model_folder.hugging_face.conversion import ConvertedModel
from tests.fuzz.cases import attempt, damage

_HUB = Path(__file__).parents[1] / "hugging_face/hub"
_FOLDERS = ("001", "004", "005", "007", "018")
_DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "X", 4, None)


def _changed(random: random.Random, data: bytes) -> bytes:
    """Returns a file whose header says something odd of one weight, or has one more or fewer."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    name = random.choice([x for x in header if x != "__metadata__"])
    tensor = header[name]
    match random.choice(["dtype", "shape", "offsets", "name", "remove", "key", "metadata"]):
        case "dtype":
            tensor["dtype"] = random.choice(_DTYPES)
        case "shape":
            odd = [[], [0], [-1], [2**63], ["a"], None, 7, [1] * 9, [1.5], tensor["shape"][::-1]]
            tensor["shape"] = random.choice(odd)
        case "offsets":
            odd = [[0, 0], [0, 4], [4, 0], [0, 2**64], [-4, 0], [], None, [0, 1, 2], ["0", "4"]]
            tensor["data_offsets"] = random.choice(odd)
        case "name":
            old = random.choice([*header, "LayerNorm.gamma", "", "\ud800", "a\nb", "x" * 3000])
            header[old] = header.pop(name)
        case "remove":
            del header[name]
        case "key":
            header[random.choice(["", "new", "\n"])] = random.choice([None, 1, {}, [], tensor])
        case _:
            header["__metadata__"] = random.choice(
                [None, 1, {"a": 1}, {"format": "pt"}, "x" * 3000]
            )
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def fuzz_safetensors_files(random: random.Random, folder: Path) -> None:
    source = _HUB / random.choice(_FOLDERS)
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    data = original = (source / "model.safetensors").read_bytes()
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        try:
            data = _changed(random, data) if random.random() < 0.7 else damage(random, data)
        except (ValueError, IndexError, KeyError, TypeError, struct.error):
            break  # it is damaged already
    name = "model.safetensors"
    if random.random() < 0.3:
        name = "model.safetensors.index.json"
        size = struct.unpack("<Q", original[:8])[0]
        keys = [x for x in json.loads(original[8 : 8 + size]) if x != "__metadata__"]
        files: object = {key: "a.safetensors" for key in keys}
        if random.random() < 0.3:
            files[random.choice([*keys, "more", "\n"])] = random.choice(
                ["b.safetensors", "../a.safetensors", "", 7, None, [], "\ud800", "a\0b", "x" * 3000]
            )
        files = random.choice([files] * 9 + [[], None, 7, {}])
        index = json.dumps({"weight_map": files, "metadata": {}}).encode()
        (folder / name).write_bytes(damage(random, index) if random.random() < 0.2 else index)
        (folder / "a.safetensors").write_bytes(data)
    else:
        (folder / name).write_bytes(data)
    message, weights = attempt(lambda: ConvertedModel(str(folder)).weights, naming=str(folder))
    if message is None:
        assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in weights.values())
        if data == original:
            (folder / "again").mkdir()
            for path in source.iterdir():
                (folder / "again" / path.name).write_bytes(path.read_bytes())
            again = ConvertedModel(str(folder / "again")).weights
            assert again.keys() == weights.keys()
