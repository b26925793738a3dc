r"""Measures the peak memory of training and of answers, here and with transformers and PyTorch.

    python -m benchmarks.memory --model=minilm --torch_python=torch/bin/python

It measures three training steps of pre-training and of fine-tuning with a batch of synthetic ids,
by default of BERT-Base, and with --model, a folder in Hugging Face's format, `load` and `encode` of
100 texts. Every program runs in a process of its own.

The least that a program can need beyond its imports is the memory of its weights; in training four
times as much, for weights, gradients and the optimizer's two moments. Activations come on top.
"""

import inspect
import os
import subprocess
import sys

from absl import flags

from benchmarks import ROOT, peak_memory
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS
BASE = os.path.join(ROOT, "flags", "models", "uncased_L-12_H-768_A-12", "bert_config.json")

# Each program gets the path (of a configuration, or of a model's folder), the batch size and the
# length. It defines `imported`, its peak memory after the imports, and `count`, its parameters.
_RESULT = """
print("RESULT", imported, count, peak_memory(), flush=True)
"""
_OURS = """
import functools, sys
import tensorflow as tf
from benchmarks import data_speed
from bert_tf import optimization
from bert_tf.engine.loops import TrainingLoop
from bert_tf.engine.steps import train_step
from bert_tf.model.family import read_config
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.settings import RecordBatches
imported = peak_memory()
config, size, length = read_config(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
batch = data_speed.synthetic_batch(config, RecordBatches(length, 3, size, 20))
"""
_OUR_STEPS = (
    """
schedule = optimization.linear_schedule(1e-5, 100, 10)
optimizer = optimization.create_optimizer(model.trainable_variables, schedule)
step = functools.partial(train_step, model, optimizer)
loop = TrainingLoop(tf.distribute.get_strategy(), step, compile_on_cpu=compiled)
loop.run(iter(tf.data.Dataset.from_tensors(batch).repeat()), 3, lambda _: None)
count = model.count_params()
"""
    + _RESULT
)
OUR_PRETRAINING = f"{_OURS}model, compiled = PretrainingModel(config), True{_OUR_STEPS}"
OUR_FINE_TUNING = (
    _OURS
    + """
batch = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
batch |= {"label_ids": tf.zeros([size], tf.int32), "is_real_example": tf.ones([size], tf.int32)}
model = ClassificationModel(config, 2)
compiled = False  # as with --length_buckets
"""
    + _OUR_STEPS
)
OUR_ANSWERS = (
    """
import sys
import bert_tf, tensorflow
imported = peak_memory()
model = bert_tf.load(sys.argv[1])
model.encode(["A text of which a vector is made. " * 4] * 100)
count = model.model.count_params()
"""
    + _RESULT
)
_TORCH = """
import json, sys, torch
from transformers import AutoModel, AutoTokenizer, BertConfig
from transformers import BertForPreTraining, BertForSequenceClassification
imported = peak_memory()
"""
_TORCH_STEPS = (
    """
with open(sys.argv[1]) as file:
    config = BertConfig(**json.load(file))
size, length = int(sys.argv[2]), int(sys.argv[3])
model = kind(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
ids = torch.randint(0, config.vocab_size, (size, length))
for _ in range(3):
    optimizer.zero_grad()
    model(ids, **labels(ids)).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
count = sum(weight.numel() for weight in model.parameters())
"""
    + _RESULT
)
TORCH_PRETRAINING = (
    _TORCH
    + """
kind = BertForPreTraining
def labels(ids):
    masked = ids.masked_fill(torch.arange(length) >= 20, -100)
    return {"labels": masked, "next_sentence_label": ids[:, 0] * 0}
"""
    + _TORCH_STEPS
)
TORCH_FINE_TUNING = (
    _TORCH
    + """
kind = BertForSequenceClassification
labels = lambda ids: {"labels": ids[:, 0] * 0}
"""
    + _TORCH_STEPS
)
TORCH_ANSWERS = (
    _TORCH
    + """
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
texts = ["A text of which a vector is made. " * 4] * 100
for start in range(0, 100, 32):
    inputs = tokenizer(texts[start : start + 32], padding=True, return_tensors="pt")
    with torch.inference_mode():
        model(**inputs)
count = sum(weight.numel() for weight in model.parameters())
"""
    + _RESULT
)


def measure(python: str, program: str, path: str) -> tuple[float, int, float]:
    """Runs a program; returns MiB after its imports, its parameters, and its peak in MiB."""
    words = [path, str(FLAGS.train_batch_size), str(FLAGS.max_seq_length)]
    done = subprocess.run(
        [python, "-c", inspect.getsource(peak_memory) + program, *words], stdout=-1, text=True
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT")), None)
    if line is None:
        raise UserError(f"{python} with {path} ended with an error, which is above")
    _, imported, count, peak = line.split()
    return float(imported), int(count), float(peak)


def main() -> None:
    batch = f"{FLAGS.train_batch_size} x {FLAGS.max_seq_length}"
    config = FLAGS.bert_config_file
    # What, the file, how many floats a parameter takes at least, our program, and transformers'.
    runs = [
        (f"pre-training, {batch}", config, 4, OUR_PRETRAINING, TORCH_PRETRAINING),
        (f"fine-tuning, {batch}", config, 4, OUR_FINE_TUNING, TORCH_FINE_TUNING),
    ]
    if FLAGS.model:
        runs.append(("load and encode", FLAGS.model, 1, OUR_ANSWERS, TORCH_ANSWERS))
    print("| What, MiB | Imports | Weights and their like, at least | Peak |")
    print("|---|--:|--:|--:|")
    for what, path, floats, ours, theirs in runs:
        programs = [("bert_tf", sys.executable, ours)]
        if FLAGS.torch_python:
            programs.append(("transformers with PyTorch", FLAGS.torch_python, theirs))
        for name, python, program in programs:
            imported, count, peak = measure(python, program, path)
            least = 4 * floats * count / 2**20
            print(f"| {what}: {name} | {imported:,.0f} | {least:,.0f} | {peak:,.0f} |", flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("bert_config_file", BASE, "The configuration of the model to train.")
    flags.DEFINE_string("model", None, "A model in Hugging Face's format, for load and encode.")
    flags.DEFINE_string("torch_python", None, "Python with torch and transformers.")
    flags.DEFINE_integer("train_batch_size", 8, "Examples in a batch.", lower_bound=1)
    flags.DEFINE_integer("max_seq_length", 128, "Sequence length in word pieces.", lower_bound=21)
    command_flags.run_program(main)
