"""Trains a tiny BERT with a batch eight times as large in an eighth of the steps; prints losses.

    python -m benchmarks.large_batch OUTPUT_DIR

Three variants: Adam with the small batch, Adam with the large batch, LAMB with the large batch.
Each variant tries the same number of learning rates with one seed; the rate with the lowest
held-out loss then runs with three other seeds. The text is from flags/quickstart. The loss is the
mean over every held-out record, masked LM and next sentence together. Takes some minutes on two
cores.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TEXT = "flags/quickstart"
LENGTH, PREDICTIONS = 32, 5
BATCH, STEPS, FACTOR = 32, 640, 8
# Name -> optimizer, factor of the batch, learning rates to try.
WAYS = {
    "adamw, small batch": ("adamw", 1, (2.5e-4, 5e-4, 1e-3)),
    "adamw, large batch": ("adamw", FACTOR, (7e-4, 1.4e-3, 2.8e-3)),
    "lamb, large batch": ("lamb", FACTOR, (5e-3, 1e-2, 2e-2)),
}
TRIAL_SEED, SEEDS = 0, (1, 2, 3)


def run(program: list[str], **flags: object) -> None:
    """Runs a program of this checkout; prints its command."""
    words = [*program, *(f"--{name}={value}" for name, value in flags.items())]
    print("$ python", *words, flush=True)
    subprocess.run([sys.executable, *words], stderr=subprocess.DEVNULL, check=True)


def make_records(folder: Path) -> None:
    """Writes vocab.txt, and the two texts' records: train.tfrecord and heldout.tfrecord."""
    vocab_file = folder / "vocab.txt"
    files = {"input_file": f"{TEXT}/corpus.txt", "output_file": vocab_file}
    run(["-m", "tools.build_vocabulary"], **files, vocab_size=1000)
    for name, text, dupe_factor in (("train", "corpus", 20), ("heldout", "heldout", 5)):
        run(
            ["create_pretraining_data.py"],
            input_file=f"{TEXT}/{text}.txt",
            output_file=folder / f"{name}.tfrecord",
            vocab_file=vocab_file,
            max_seq_length=LENGTH,
            max_predictions_per_seq=PREDICTIONS,
            dupe_factor=dupe_factor,
        )


def heldout_loss(folder: Path, optimizer: str, factor: int, rate: float, seed: int) -> float:
    """Trains a model and returns its loss on the held-out records."""
    import tensorflow as tf

    from bert_tf.model.configuration import BertConfig
    from bert_tf.tasks.pretraining.training.run import run_pretraining
    from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, RecordBatches

    steps = STEPS // factor
    with tempfile.TemporaryDirectory(dir=folder) as output_dir:
        settings = PretrainingSettings(
            phases=[RecordBatches(LENGTH, steps, BATCH * factor, PREDICTIONS)],
            evaluation_batches=RecordBatches(LENGTH, 0, 64, PREDICTIONS),
            input_file=str(folder / "train.tfrecord"),
            eval_input_file=str(folder / "heldout.tfrecord"),
            output_dir=output_dir,
            do_train=True,
            do_eval=True,
            optimizer=optimizer,
            learning_rate=rate,
            num_warmup_steps=steps // 10,
            random_seed=seed,
            save_checkpoints_steps=STEPS,
        )
        config = BertConfig.from_json_file(f"{TEXT}/bert_config.json")
        loss = run_pretraining(config, tf.distribute.get_strategy(), settings)["loss"]
    batch = f"{optimizer}, batch {BATCH * factor}"
    print(f"{batch}, rate {rate:g}, seed {seed}: {loss:.4f}", flush=True)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path)
    folder = parser.parse_args().output_dir
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    make_records(folder)
    lines = []
    for name, (optimizer, factor, rates) in WAYS.items():
        trials = {r: heldout_loss(folder, optimizer, factor, r, TRIAL_SEED) for r in rates}
        best = min(trials, key=trials.get)
        losses = [heldout_loss(folder, optimizer, factor, best, seed) for seed in SEEDS]
        lines.append(
            f"{name}: {BATCH * factor} x {STEPS // factor} steps, rate {best:g} of {rates}:"
            f" {statistics.mean(losses):.4f} ({min(losses):.4f} to {max(losses):.4f})"
        )
    print("\n".join(lines), f"{time.monotonic() - began:.0f} s", sep="\n")


if __name__ == "__main__":
    main()
