"""Writes of a model that are killed: its folder is the old one or the new one, whole."""

import functools
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import whole_files, whole_folders
from tests.support.exported_heads import write_head

FILE = whole_files.UnfinishedFile
WRITES = [
    *((tf.io.gfile, name) for name in ("makedirs", "rename", "remove", "rmtree")),
    *((FILE, name) for name in ("__init__", "write", "close", "finish")),
    *((tf.raw_ops, "SaveV2"), (tf.saved_model, "save"), (whole_folders, "_exchange")),
]


def content(folder: Path) -> dict[str, bytes] | None:
    if not folder.exists():
        return None
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def left_by_kills(monkeypatch, write, out: Path, copies: Path) -> list[Path]:
    """Returns copies of the folder around `out` before and after each write."""
    found = []

    def keep() -> None:
        found.append(copies / str(len(found)))
        shutil.copytree(out.parent, found[-1])

    def hooked(function, *arguments, **options):
        keep()
        result = function(*arguments, **options)
        keep()
        return result

    with monkeypatch.context() as patch:
        for where, name in WRITES:
            function = getattr(where, name)  # as a method, a partial would not get `self`
            patch.setattr(where, name, lambda *a, f=function, **k: hooked(f, *a, **k))
        write(out)
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = write_head(tmp_path_factory.mktemp("model"), "classification", num_layers=1)
    models = [bert_tf.load(path), bert_tf.load(path)]
    bias = next(x for x in models[1].model.variables if x.path == "output_bias")
    bias.assign([0.5, -1.0, 2.0])
    return models


def exported(output_format, model, out):
    """Of ids: tracing what reads texts takes most of the time, and no write."""
    bert_tf.export_model(model, out, format=output_format, input_kind="ids")


WAYS = {x: functools.partial(exported, x) for x in ("saved_model", "onnx")}
WAYS["save"] = lambda model, out: model.save(out)


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_write_leaves_the_old_or_the_new_folder(models, tmp_path, monkeypatch, way):
    around = tmp_path / "around"
    around.mkdir()
    states = [None]
    for i, model in enumerate(models):
        write = functools.partial(WAYS[way], model)
        copies = tmp_path / f"copies{i}"
        found = left_by_kills(monkeypatch, write, around / "out", copies)
        states.append(content(around / "out"))
        kinds = [content(copy / "out") for copy in found]
        assert len(found) > 8 and all(kind in states[-2:] for kind in kinds)
        assert kinds[0] == states[-2] and kinds[-1] == states[-1] != states[-2]
        # After a kill the same command succeeds; a format makes no difference.
        if states[-2] and way == "save":
            killed = found[len(found) // 2] / "out"
            write(killed)
            assert content(killed).keys() == states[-1].keys()
        shutil.rmtree(copies)
    assert [path.name for path in around.iterdir()] == ["out"]
