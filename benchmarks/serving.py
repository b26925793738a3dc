"""Measures a classifier of sentence pairs in each exported format: size, accuracy, latency, speed.

    python -m benchmarks.serving --classifier=FOLDER --data_dir=glue/MRPC --output_dir=FOLDER

--classifier is a model that was trained on MRPC. It is exported to --output_dir, where earlier
exports are used again, and runs in TensorFlow, ONNX Runtime, LiteRT and OpenVINO. --torch_python, a
Python that has torch and transformers, also runs it there. All get ids, of each shape (texts x
tokens) in turns, so that other work on the machine slows all of them. The figures are medians; in
parentheses, how many times as fast as the first row.
"""

import functools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from absl import flags

import bert_tf
from benchmarks.all import processor, run
from benchmarks.take_turns import take_turns
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.start import lazy_tensorflow as tf

FLAGS = flags.FLAGS
# Name of an export -> its settings.
EXPORTS = {
    "SavedModel": {"format": "saved_model", "input_kind": "ids"},
    "SavedModel, bfloat16": {"format": "saved_model", "input_kind": "ids", "dtype": "bfloat16"},
    "ONNX": {"format": "onnx"},
    "ONNX, int8": {"format": "onnx", "quantize": "int8"},
    "LiteRT": {"format": "litert"},
    "LiteRT, int8": {"format": "litert", "quantize": "int8"},
}
# How OpenVINO runs which export: its precision, and the file in the export's folder.
OPENVINO = {
    "OpenVINO": ("SavedModel", "f32", ""),
    "OpenVINO, bfloat16": ("SavedModel", "bf16", ""),
    "OpenVINO, int8": ("ONNX, int8", "f32", "model.onnx"),
}
# Runs transformers' model in its own process: reads the name of an archive, prints the seconds.
_TORCH = """
import sys, time, numpy, torch, transformers
torch.set_num_threads(int(sys.argv[2]))
model = transformers.BertForSequenceClassification.from_pretrained(sys.argv[1]).eval()
model = model.to(getattr(torch, sys.argv[3]))
for line in sys.stdin:
    arrays = numpy.load(line.strip())
    began = time.perf_counter()
    with torch.inference_mode():
        ids, mask, types = (
            torch.from_numpy(arrays[name]).long()
            for name in ("input_ids", "input_mask", "segment_ids")
        )
        logits = model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
    classes = logits.float().numpy().argmax(-1)
    print("RESULT", time.perf_counter() - began, classes.tolist(), flush=True)
"""

Arrays = dict[str, np.ndarray]
# A model to measure: takes a batch, returns its seconds and its classes, int [B].
Model = Callable[[Arrays], tuple[float, np.ndarray]]


def _timed(compute: Callable[[Arrays], dict[str, np.ndarray]]) -> Model:
    def model(arrays: Arrays) -> tuple[float, np.ndarray]:
        began = time.perf_counter()
        outputs = compute(arrays)
        return time.perf_counter() - began, outputs["probabilities"].argmax(-1)

    return model


def exported(name: str) -> Path:
    """Returns the folder of an export; makes it if it is not there."""
    from bert_tf.export.exporting import export
    from bert_tf.export.settings import ExportSettings

    folder = Path(FLAGS.output_dir, name.lower().replace(", ", "_"))
    if not (folder / "export.json").exists():
        export(ExportSettings(input=FLAGS.classifier, output=str(folder), **EXPORTS[name]))
    return folder


def size(folder: Path) -> float:
    """Returns the size of an exported model in MB, without its vocabulary and descriptions."""
    names = ("saved_model.pb", "variables/*", "model.onnx", "model.tflite")
    return sum(path.stat().st_size for name in names for path in folder.glob(name)) / 1e6


def in_openvino(path: Path, precision: str, threads: int) -> Callable[[Arrays], Arrays]:
    """Returns a SavedModel's folder or an ONNX file as a function that runs in OpenVINO.

    Args:
        precision: "f32" or "bf16".
    """
    from bert_tf.export.running import import_package

    openvino = import_package("openvino", "openvino", "benchmarks.serving", "openvino")
    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    model = openvino.Core().compile_model(path, "CPU", options)
    return lambda arrays: {
        name: value for output, value in model(arrays).items() for name in output.names
    }


def in_torch(folder: Path, dtype: str) -> Model:
    """Returns transformers' model on PyTorch, in its own process; `folder` is its model's."""
    command = [FLAGS.torch_python, "-c", _TORCH, str(folder), str(FLAGS.threads), dtype]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    worker = subprocess.Popen(command, **pipes, text=True)
    path = folder / "batch.npz"

    def model(arrays: Arrays) -> tuple[float, np.ndarray]:
        np.savez(path, **arrays)
        worker.stdin.write(f"{path}\n")
        worker.stdin.flush()
        line = next((line for line in worker.stdout if line.startswith("RESULT")), None)
        if line is None:
            raise UserError(f"--torch_python={FLAGS.torch_python} needs torch and transformers")
        _, seconds, classes = line.split(" ", 2)
        return float(seconds), np.array(json.loads(classes))

    return model


def models() -> Iterator[tuple[str, float, Model]]:
    """Yields the name, the size in MB and the function of each model."""
    from bert_tf.export.running import open_exported

    for name, settings in EXPORTS.items():
        folder = exported(name)
        compute = open_exported(str(folder), settings["format"], "serving_default", FLAGS.threads)
        yield name, size(folder), _timed(compute)
    for name, (source, precision, file) in OPENVINO.items():
        folder = exported(source)
        yield name, size(folder), _timed(in_openvino(folder / file, precision, FLAGS.threads))
    if FLAGS.torch_python:
        folder = Path(FLAGS.output_dir, "transformers")
        if not folder.exists():
            words = (f"--input={FLAGS.classifier}", f"--output_dir={folder}")
            run("tools.convert_checkpoint", *words, "--output_format=safetensors")
        for dtype in ("float32", "bfloat16"):
            megabytes = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
            yield f"transformers, {dtype}", megabytes, in_torch(folder, dtype)


def turn(model: Model, arrays: Arrays) -> float:
    """Returns the median seconds of a call, after threads of another model's turn stop spinning."""
    time.sleep(0.1)
    model(arrays)
    seconds, end = [], time.monotonic() + 0.2
    while not seconds or time.monotonic() < end:
        seconds.append(model(arrays)[0])
    return np.median(seconds)


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    Path(FLAGS.output_dir).mkdir(parents=True, exist_ok=True)
    with open(os.path.join(FLAGS.data_dir, "dev.tsv"), encoding="utf-8-sig") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    found = list(models())
    features = bert_tf.TextFeatures(exported("SavedModel"))
    labels = np.array([int(row[0]) for row in rows])
    pairs = [(row[3], row[4]) for row in rows]
    batches = [features(pairs[start : start + 32]) for start in range(0, len(pairs), 32)]
    accuracies = [
        np.mean(np.concatenate([model(arrays)[1] for arrays in batches]) == labels)
        for _, _, model in found
    ]
    vocab_size = len(features.tokenizer.vocab)
    shapes = [tuple(map(int, shape.split("x"))) for shape in FLAGS.shapes]
    columns = []
    for shape in shapes:
        ids = np.random.default_rng(0).integers(1, vocab_size, shape, np.int32)
        arrays = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}
        runs = {name: functools.partial(turn, model, arrays) for name, _, model in found}
        columns.append([np.median(x) for x in take_turns(runs, FLAGS.rounds).values()])
    print(processor())
    heads = [f"{b} x {s}, {'ms' if b == 1 else 'texts/s'}" for b, s in shapes]
    print("| " + " | ".join(["Model", "Size, MB", "Accuracy", *heads]) + " |")
    print("|---" + "|--:" * (len(heads) + 2) + "|")
    for i, (name, megabytes, _) in enumerate(found):
        cells = [
            f"{1e3 * of[i] if b == 1 else b / of[i]:.3g} ({of[0] / of[i]:.2f})"
            for (b, _), of in zip(shapes, columns, strict=True)
        ]
        print("| " + " | ".join([name, f"{megabytes:.0f}", f"{accuracies[i]:.3f}", *cells]) + " |")


if __name__ == "__main__":
    flags.DEFINE_string("classifier", None, "Folder of a classifier of MRPC.", required=True)
    flags.DEFINE_string("data_dir", None, "Folder with MRPC's dev.tsv.", required=True)
    flags.DEFINE_string("output_dir", None, "Folder for the exports.", required=True)
    flags.DEFINE_integer("threads", 2, "Threads of each model.", lower_bound=1)
    flags.DEFINE_integer("rounds", 7, "Rounds of measurements.", lower_bound=1)
    flags.DEFINE_list("shapes", "1x32,1x128,8x128,32x64", "Texts x tokens of the batches.")
    flags.DEFINE_string("torch_python", None, "Python with torch and transformers.")
    command_flags.run_program(main)
