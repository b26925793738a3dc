"""Fuzzes NumPy archives: the vectors as they were saved, or refused."""

import io
import random
import zipfile
from pathlib import Path

import numpy as np

from tests.fuzz.cases import attempt, damage
from tools.search import read_vectors

_NAMES = ("mean_vector", "pooled_vector", "layers", "x", "é", "a.npy", "")
_TYPES = ("<f4", "<f8", ">f4", "<f2", "<i8", "?", "<U3", "S2", "<c8", "|O", "<M8[s]", "V5")
_SHAPES = (
    *("(5, 7)", "(5, -7)", "(99999999999999, 7)", "(5,)", "()", "[5, 7]", "5", "(5, 7", "('a',)"),
)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def _array(random: random.Random) -> np.ndarray:
    numbers = np.random.default_rng(random.randrange(99))
    shape = random.choice([(5, 7), (5, 7), (5, 2, 7), (5, 1, 7), (0, 7), (5,), (), (1, 5, 2, 7)])
    values = numbers.normal(size=shape).astype(random.choice(["f4", "f4", "f8", "f2", ">f4", "i8"]))
    if values.size and values.dtype.kind == "f" and random.random() < 0.1:
        values.flat[0] = random.choice([np.nan, np.inf, -np.inf])
    return np.asfortranarray(values) if random.random() < 0.2 else values


def _npy(random: random.Random, array: np.ndarray) -> bytes:
    """Returns the content of a .npy file, sometimes with a header of its own or damage."""
    if random.random() < 0.3:
        text = f"{{'descr': {random.choice(_TYPES)!r}, 'fortran_order': {random.random() < 0.5},"
        text += f" 'shape': {random.choice(_SHAPES)}}}"
        text = random.choice([text] * 9 + ["{" * 99, "", "1", "[" * 5000, "{'descr': 1}"])
        version = random.choice([1, 1, 1, 2, 3, 9])
        size = len(text.encode()).to_bytes(2 if version == 1 else 4, "little")
        return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + array.tobytes()
    content = io.BytesIO()
    np.lib.format.write_array(content, array)
    data = content.getvalue()
    return damage(random, data) if random.random() < 0.2 else data


def fuzz_vector_archives(random: random.Random, folder: Path) -> None:
    path = folder / "vectors.npz"
    arrays = {name: _array(random) for name in random.sample(_NAMES, random.randint(1, 3))}
    if random.random() < 0.7:
        arrays["layers"] = np.array(
            [[-1], [-2, -1], [-1, -2, -3], -1, [[-1]]][random.randrange(5)]
            if random.random() < 0.3
            else [-2, -1]
        )
    whole = random.random() < 0.5
    with zipfile.ZipFile(path, "w", random.choice(_METHODS)) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array)
            archive.writestr(f"{name}.npy", content.getvalue() if whole else _npy(random, array))
        if random.random() < 0.1:
            archive.writestr("readme.txt", random.randbytes(20))
    damaged = random.random() < 0.4
    if damaged:
        data = path.read_bytes()
        path.write_bytes(damage(random, data))
    name = random.choice([None, None, *arrays, "none"])
    layer = random.choice([None, None, -1, -2, 7])
    message, found = attempt(lambda: read_vectors(str(path), name, layer), naming=str(path))
    if message is not None:
        return
    assert found.dtype == np.float32 and found.ndim == 2 and np.isfinite(found).all()
    if whole and (not damaged or any(found.shape == x.shape for x in arrays.values())):
        candidates = [x for x in arrays.values() if x.ndim in (2, 3)]
        rows = [x if x.ndim == 2 else x[:, i] for x in candidates for i in range(x.shape[1])]
        assert any(np.array_equal(found, x.astype(np.float32)) for x in rows if x.ndim == 2)
