r"""Measures `encode` of a loaded model beside its peers, and the accuracy in bfloat16.

    python -m benchmarks.answers --model=minilm --data_dir=glue --torch_python=torch/bin/python

--model is a folder in Hugging Face's format; a configuration without weights is not enough. The
texts are the first --num_texts sentences of MRPC's dev.tsv and train.tsv. Every program runs in its
own process, and they take turns: the figure is the median of --rounds. All sort the texts by length
and compute batches of 32; with --one_by_one each call gets one text. On Linux each keeps to
--threads cores. The memory is the most that the process has used from its start: packages, model
and answers.

--onnx_export, the model as `tools.export --head=encoder --format=onnx` writes it, also measures
ONNX Runtime. The last lines compare float32 and bfloat16: Spearman's correlation on STS-B's dev.tsv
and, with --classifier, a classifier that was trained on MRPC, its accuracy on MRPC's dev.tsv.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np
from absl import flags

import bert_tf
from benchmarks import peak_memory
from benchmarks.take_turns import take_turns
from bert_tf.engine.measures import spearman
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS

# Each program gets the model's folder, a dtype and the number of threads, keeps to as many cores,
# and defines `encode(texts)`. Then it encodes what a line names, and prints the seconds and its
# peak memory.
_CORES = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[3])])
"""
_TURNS = """
import json, time
for line in sys.stdin:
    with open(line.strip()) as file:
        calls = json.load(file)
    began = time.perf_counter()
    for texts in calls:
        encode(texts)
    seconds = time.perf_counter() - began
    print("RESULT", seconds, peak_memory(), flush=True)
"""
_OURS = """
import bert_tf
model = bert_tf.load(sys.argv[1], dtype=sys.argv[2])
encode = model.encode
"""
_BATCHES = """
def encode(texts):
    vectors = [None] * len(texts)
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    for start in range(0, len(order), 32):
        numbers = order[start : start + 32]
        for i, vector in zip(numbers, batch([texts[i] for i in numbers])):
            vectors[i] = vector
    return vectors
"""
_TORCH = (
    """
import torch, transformers
torch.set_num_threads(int(sys.argv[3]))
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
model = transformers.AutoModel.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[2]))
model.eval()

def batch(texts):
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**inputs).last_hidden_state.float()
    mask = inputs["attention_mask"].unsqueeze(-1)
    return ((hidden * mask).sum(1) / mask.sum(1)).numpy()
"""
    + _BATCHES
)
_ONNX = (
    """
import bert_tf
from bert_tf.export.running import open_exported
features = bert_tf.TextFeatures(sys.argv[1])
run = open_exported(sys.argv[1], "onnx", "serving_default", int(sys.argv[3]))

def batch(texts):
    return run(features(texts))["vectors"]
"""
    + _BATCHES
)

Result = tuple[float, float]  # seconds, MiB


def start(python: str, program: str, *arguments: str) -> Callable[[str], Result]:
    """Starts a program; returns a function that makes it encode the texts of a file."""
    command = [python, "-c", inspect.getsource(peak_memory) + _CORES + program + _TURNS, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    worker = subprocess.Popen(command, **pipes, text=True)

    def encode(path: str) -> Result:
        worker.stdin.write(f"{path}\n")
        worker.stdin.flush()
        line = next((line for line in worker.stdout if line.startswith("RESULT")), None)
        if line is None:
            raise UserError(f"{python} with {arguments[0]} ended with an error, which is above")
        _, seconds, peak = line.split()
        return float(seconds), float(peak)

    return encode


def programs(threads: str) -> dict[str, Callable[[str], Result]]:
    """Returns the programs to measure by name, started."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        found[f"bert_tf.load, {dtype}"] = start(sys.executable, _OURS, FLAGS.model, dtype, threads)
    for dtype in ("float32", "bfloat16") if FLAGS.torch_python else ():
        name = f"transformers with PyTorch, {dtype}"
        found[name] = start(FLAGS.torch_python, _TORCH, FLAGS.model, dtype, threads)
    if FLAGS.onnx_export:
        arguments = (sys.executable, _ONNX, FLAGS.onnx_export, "float32", threads)
        found["ONNX Runtime, float32"] = start(*arguments)
    return found


def rows_of(*path: str) -> list[list[str]]:
    """Returns the rows of one of GLUE's files, without the header."""
    with open(os.path.join(FLAGS.data_dir, *path), encoding="utf-8-sig") as file:
        return [line.rstrip("\n").split("\t") for line in file][1:]


def print_accuracy() -> None:
    """Prints what float32 and bfloat16 reach, in percent."""
    pairs = rows_of("STS-B", "dev.tsv")
    scores = np.array([float(row[9]) for row in pairs])
    for dtype in ("float32", "bfloat16"):
        model = bert_tf.load(FLAGS.model, dtype=dtype)
        found = model.similarity([row[7] for row in pairs], [row[8] for row in pairs])
        print(f"STS-B, {dtype}: Spearman's correlation {100 * spearman(scores, found):.2f}")
    pairs = rows_of("MRPC", "dev.tsv") if FLAGS.classifier else []
    for dtype in ("float32", "bfloat16") if pairs else ():
        classifier = bert_tf.load(FLAGS.classifier, dtype=dtype)
        classes = classifier.classify([(row[3], row[4]) for row in pairs])
        right = [found.label == row[0] for found, row in zip(classes, pairs, strict=True)]
        print(f"MRPC, {dtype}: accuracy {100 * np.mean(right):.2f}")


def main() -> None:
    rows = rows_of("MRPC", "dev.tsv") + rows_of("MRPC", "train.tsv")
    texts = [text for row in rows for text in row[3:5]][: FLAGS.num_texts]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([[text] for text in texts] if FLAGS.one_by_one else [texts], file)
        file.flush()
        runs = {
            name: lambda run=run: run(file.name)
            for name, run in programs(str(FLAGS.threads)).items()
        }
        results = take_turns(runs, FLAGS.rounds)
    print("| Program | Sentences/s | Times as fast | Peak memory, MiB |")
    print("|---|--:|--:|--:|")
    speeds = {name: len(texts) / np.median([x for x, _ in of]) for name, of in results.items()}
    for name, of in results.items():
        ratio = speeds[name] / next(iter(speeds.values()))
        print(f"| {name} | {speeds[name]:.0f} | {ratio:.2f} | {max(peak for _, peak in of):,.0f} |")
    print_accuracy()


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "The model in Hugging Face's format.", required=True)
    flags.DEFINE_string("data_dir", None, "Folder with GLUE's MRPC and STS-B.", required=True)
    flags.DEFINE_integer("num_texts", 1000, "Sentences to encode.", lower_bound=1)
    flags.DEFINE_bool("one_by_one", False, "Encode one text a call, not batches of 32.")
    flags.DEFINE_integer("threads", os.cpu_count(), "Cores for each program.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Rounds of measurements.", lower_bound=1)
    flags.DEFINE_string("torch_python", None, "Python with torch and transformers.")
    flags.DEFINE_string("onnx_export", None, "The model, exported to ONNX with --head=encoder.")
    flags.DEFINE_string("classifier", None, "Folder of a classifier trained on MRPC.")
    command_flags.run_program(main)
