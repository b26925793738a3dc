"""Measures exported classifiers of sentence pairs: accuracy on MRPC, latency, pairs a second.

    python -m benchmarks.serving --exports=FOLDER,FOLDER,... --data_dir=glue/MRPC

Each folder is an export of the same model by tools/export.py. A SavedModel must take text; it is
measured with text and with ids. The latency is the median for one pair. The speed is for batches of
32 pairs of similar length, padded to the longest pair. The models take turns, so that other work on
the machine slows all of them; compare the ratios to the first model.

--torch_python, the interpreter of an environment with torch and transformers, also measures
--torch_model there, the model's folder in Hugging Face's format (tools/convert_checkpoint.py).
"""

import functools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import flags

from benchmarks.take_turns import take_turns
from bert_tf.errors import UserError
from bert_tf.export.running import open_exported
from bert_tf.files.whole_files import read_json
from bert_tf.pretrained.text_input import encode
from bert_tf.runs.flags import command_flags
from bert_tf.text.fast_tokenization import FastTokenizer

FLAGS = flags.FLAGS
BATCH_SIZE = 32

Arrays = dict[str, np.ndarray]
# Runs transformers' model in its own process: reads the name of an archive, prints the seconds.
_TORCH = """
import sys, time, numpy, torch, transformers
torch.set_num_threads(int(sys.argv[2]))
model = transformers.BertForSequenceClassification.from_pretrained(sys.argv[1]).eval()
for line in sys.stdin:
    arrays = numpy.load(line.strip())
    began = time.perf_counter()
    with torch.inference_mode():
        ids, mask, types = (
            torch.from_numpy(arrays[name]).long()
            for name in ("input_ids", "input_mask", "segment_ids")
        )
        logits = model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits.numpy()
    seconds = time.perf_counter() - began
    print("RESULT", seconds, logits.argmax(-1).tolist(), flush=True)
"""


# A model to measure: takes the number of a batch, returns its seconds and its classes, int [B].
Model = Callable[[int], tuple[float, np.ndarray]]


def batches_of(rows: Sequence[dict], order: Sequence[int]) -> list[tuple[np.ndarray, Arrays]]:
    """Returns batches of rows, in the given order: the rows' numbers, and int32 [B, longest]."""
    found = []
    for start in range(0, len(order), BATCH_SIZE):
        numbers = np.array(order[start : start + BATCH_SIZE])
        longest = max(len(rows[i]["input_ids"]) for i in numbers)
        features = {}
        for name in ("input_ids", "input_mask", "segment_ids"):
            padded = [rows[i][name] + [0] * (longest - len(rows[i][name])) for i in numbers]
            features[name] = np.array(padded, np.int32)
        found.append((numbers, features))
    return found


def _timed(run: Callable[[Arrays], Arrays], arrays: Arrays) -> tuple[float, np.ndarray]:
    began = time.perf_counter()
    outputs = run(arrays)
    return time.perf_counter() - began, outputs["probabilities"].argmax(-1)


def exported_models(
    exports: Sequence[str], threads: int, ids: list[Arrays], texts: list[Arrays]
) -> dict[str, Model]:
    """Returns the exported models by name, on the batches `ids` or `texts`."""
    found: dict[str, Model] = {}
    for folder in exports:
        path = os.path.join(folder, "export.json")
        described = read_json(path, path, "tools/export.py writes it")
        kind, name = described["format"], os.path.basename(folder.rstrip("/"))
        if kind == "saved_model" and "ids" not in described["signatures"]:
            raise UserError(f"{folder} must take text; export it without --input_kind")
        name = folder if name in found else name
        signatures = {"serving_default": ids}
        if kind == "saved_model":
            signatures = {"ids": ids, "pairs": texts}
        for signature, batches in signatures.items():
            run = open_exported(folder, kind, signature, threads)
            label = f"{name}, text" if batches is texts else name
            found[label] = lambda i, run=run, b=batches: _timed(run, b[i])
    return found


def torch_model(python: str, model: str, threads: int, ids: list[Arrays], folder: str) -> Model:
    """Returns transformers' model on PyTorch, in its own process."""
    for i, arrays in enumerate(ids):
        np.savez(os.path.join(folder, f"{i}.npz"), **arrays)
    command = [python, "-c", _TORCH, model, str(threads)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    worker = subprocess.Popen(command, **pipes, text=True)

    def run(i: int) -> tuple[float, np.ndarray]:
        worker.stdin.write(os.path.join(folder, f"{i}.npz") + "\n")
        worker.stdin.flush()
        line = next((line for line in worker.stdout if line.startswith("RESULT")), None)
        if line is None:
            raise UserError(f"--torch_python={python} ended; it needs torch and transformers")
        _, seconds, classes = line.split(" ", 2)
        return float(seconds), np.array(json.loads(classes))

    return run


def measure(
    model: Model, numbers: Sequence[np.ndarray], singles: int, labels: np.ndarray
) -> tuple[list[float], float, float]:
    """Returns the seconds of each single pair, the pairs a second in batches, and the accuracy.

    `numbers` are the numbers of the pairs in each batch. The first `singles` batches have one pair
    each, the other batches together have all pairs. `labels` are the pairs' classes, int [pairs].
    """
    model(0)  # warms up the caches after another model's turn
    latencies = [model(i)[0] for i in range(singles)]
    classes, total = np.zeros_like(labels), 0.0
    for i in range(singles, len(numbers)):
        seconds, classes[numbers[i]] = model(i)
        total += seconds
    return latencies, len(labels) / total, float(np.mean(classes == labels))


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    with open(os.path.join(FLAGS.data_dir, "dev.tsv"), encoding="utf-8-sig") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    labels = np.array([int(row[0]) for row in rows])
    pairs = [(row[3], row[4]) for row in rows]
    first = FLAGS.exports[0]
    path = os.path.join(first, "export.json")
    described = read_json(path, path, "tools/export.py writes it")
    tokenizer = FastTokenizer(os.path.join(first, "vocab.txt"), described["do_lower_case"])
    encoded = encode(pairs, tokenizer, described["max_seq_length"])
    order = np.argsort([len(row["input_ids"]) for row in encoded], kind="stable")
    singles = order[:: max(1, len(order) // 20)]
    batches = [batches_of(encoded, [i])[0] for i in singles] + batches_of(encoded, order)
    numbers, ids = [n for n, _ in batches], [features for _, features in batches]
    first_texts, second_texts = np.array(pairs, object).T
    texts = [{"texts": first_texts[n], "second_texts": second_texts[n]} for n in numbers]
    with tempfile.TemporaryDirectory() as folder:
        models = exported_models(FLAGS.exports, FLAGS.threads, ids, texts)
        if FLAGS.torch_python:
            python, model = FLAGS.torch_python, FLAGS.torch_model
            models["transformers, PyTorch"] = torch_model(python, model, FLAGS.threads, ids, folder)
        common = (numbers, len(singles), labels)
        runs = {name: functools.partial(measure, x, *common) for name, x in models.items()}
        results = take_turns(runs, FLAGS.rounds)
    print("| Model | Accuracy | One pair, ms | Pairs/s in batches of 32 | Speed ratio |")
    print("|---|--:|--:|--:|--:|")
    rates = {name: np.median([rate for _, rate, _ in of]) for name, of in results.items()}
    for name, of in results.items():
        latency = np.median([seconds for latencies, _, _ in of for seconds in latencies])
        print(
            f"| {name} | {of[-1][2]:.3f} | {1e3 * latency:.1f} | {rates[name]:.0f}"
            f" | {rates[name] / next(iter(rates.values())):.2f} |"
        )


if __name__ == "__main__":
    flags.DEFINE_list("exports", None, "The exported folders.", required=True)
    flags.DEFINE_string("data_dir", None, "Folder with MRPC's dev.tsv.", required=True)
    flags.DEFINE_integer("threads", 2, "Threads of each model.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Rounds of measurements.", lower_bound=1)
    flags.DEFINE_string("torch_python", None, "Python with torch and transformers.")
    flags.DEFINE_string("torch_model", None, "The model in Hugging Face's format.")
    command_flags.run_program(main)
