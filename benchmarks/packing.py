r"""Measures packing: time and held-out loss of one training run on records, packed and not packed.

    python -m benchmarks.packing --input_file=sentences.txt \
        --lengths=lengths.json --output_dir=/tmp/packing

The model is the quickstart's, with more positions. Its vocabulary is learned from the text. The
sequences have the lengths of --lengths, a JSON file with `counts_of_length_1_to_512`; each sequence
is a stretch of the text, cut in two, or two stretches. A tenth of the text is held out. Both runs
see the same number of sequences. The benchmark prints the wall time of the whole program, with
start and compilation, and its processor time: if the machine has other work, the two differ.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from absl import app, flags

from benchmarks import ROOT
from bert_tf.files import records
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import Masks
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sequences import pack_pair

FLAGS = flags.FLAGS
LENGTH, PREDICTIONS = 512, 77


def run(*words: str) -> tuple[float, float, str]:
    """Runs Python with these arguments; returns seconds, processor seconds, and what it logged."""
    before, began = os.times(), time.monotonic()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    seconds, after = time.monotonic() - began, os.times()
    if done.returncode:
        raise RuntimeError(done.stderr)
    user = after.children_user - before.children_user
    return seconds, user + after.children_system - before.children_system, done.stderr


def write_records(path: str, tokens: np.ndarray, count: int, vocab_file: str, seed: int) -> None:
    """Writes records of sequences of these tokens, with the lengths of --lengths."""
    rng = random.Random(seed)
    counts = json.loads(Path(FLAGS.lengths).read_text())["counts_of_length_1_to_512"]
    lengths = rng.choices(range(1, LENGTH + 1), counts, k=count)
    sizes = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
    files = {"input_file": "none", "output_file": "none", "vocab_file": vocab_file}
    settings = PretrainingDataSettings(**files, **sizes)
    masks = Masks(FastTokenizer(vocab_file, True, ()), settings, rng)
    schema = pretraining_schema(LENGTH, PREDICTIONS)
    with records.write_files([path], "output_file") as write:
        for length in lengths:
            number = length - 3  # [CLS], [SEP], [SEP]
            split = rng.randint(1, number - 1)
            first = rng.randrange(len(tokens) - number)
            is_random_next = rng.random() < 0.5
            second = rng.randrange(len(tokens) - number) if is_random_next else first + split
            texts = tokens[first : first + split], tokens[second : second + number - split]
            instance = pack_pair(*(text.tolist() for text in texts), LENGTH, masks.layout)
            instance["next_sentence_labels"] = [int(is_random_next)]
            positions = [*range(1, split + 1), *range(split + 2, number + 2)]
            masks.mask(instance, positions)
            write(records.serialize(instance, schema))


def main(_: list[str]) -> None:
    folder = Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    vocab_file = f"{folder}/vocab.txt"
    run(
        *("-m", "tools.build_vocabulary", f"--input_file={FLAGS.input_file}"),
        *(f"--output_file={vocab_file}", "--vocab_size=1000"),
    )
    config = json.loads(Path(ROOT, "flags", "quickstart", "bert_config.json").read_text())
    config_file = folder / "bert_config.json"
    config_file.write_text(json.dumps({**config, "max_position_embeddings": LENGTH}))

    lines = filter(None, Path(FLAGS.input_file).read_text(encoding="utf-8").splitlines())
    tokens, _ = FastTokenizer(vocab_file, True, ()).encode(list(lines))
    cut = len(tokens) * 9 // 10
    batch_size, num_steps = FLAGS.train_batch_size, FLAGS.num_train_steps
    write_records(f"{folder}/plain", tokens[:cut], batch_size * num_steps, vocab_file, seed=1)
    write_records(f"{folder}/heldout", tokens[cut:], 500, vocab_file, seed=2)
    seconds, _, log = run(
        *("-m", "tools.pack_records", f"--input_file={folder}/plain"),
        f"--output_file={folder}/packed",
    )
    print(f"packing: {seconds:.1f} s; {re.search(r'[0-9]+ sequences fill.*', log)[0]}")

    lengths = [f"--max_seq_length={LENGTH}", f"--max_predictions_per_seq={PREDICTIONS}"]
    common = ["run_pretraining.py", f"--bert_config_file={config_file}", *lengths]
    for kind in ("plain", "packed"):
        output = f"--output_dir={folder}/{kind}_model"
        seconds, processor, log = run(
            *(*common, output, "--do_train", f"--input_file={folder}/{kind}"),
            *(f"--train_batch_size={batch_size}", f"--num_train_steps={num_steps}"),
            *("--learning_rate=1e-3", f"--num_warmup_steps={num_steps // 10}"),
            "--iterations_per_loop=20",
        )
        speeds = map(float, re.findall(r"examples_per_second = ([\d.e+]+)", log))
        rows = re.search(r"Packed records.*", log)
        run(
            *(*common, output, "--do_eval", f"--input_file={folder}/heldout"),
            *("--max_eval_steps=0", "--eval_batch_size=25"),
        )
        results = (folder / f"{kind}_model" / "eval_results.txt").read_text().split("\n")
        print(
            f"{kind}: {num_steps} steps of {batch_size} sequences, {seconds:.0f} s,"
            f" {processor:.0f} s of processor time, median {np.median(list(speeds)):.1f}"
            f" sequences/s\n  {rows[0] if rows else ''}\n  {'; '.join(filter(None, results))}",
            flush=True,
        )


if __name__ == "__main__":
    flags.DEFINE_string("input_file", None, "Text: a sentence on each line.", required=True)
    flags.DEFINE_string("lengths", None, "JSON with counts_of_length_1_to_512.", required=True)
    flags.DEFINE_string("output_dir", None, "Folder to work in.", required=True)
    flags.DEFINE_integer("train_batch_size", 32, "Sequences a step.")
    flags.DEFINE_integer("num_train_steps", 250, "Steps.")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    app.run(main)
