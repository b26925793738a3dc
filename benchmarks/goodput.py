"""Measures how much time kills and saves cost a run.

    python -m benchmarks.goodput kills [--kills=20] [--seed=1]
    python -m benchmarks.goodput save [--checkout=FOLDER]

`kills` sends a tiny run, which saves after every 1% of its steps, SIGTERM or SIGKILL at random
moments and starts it again, and then prints its goodput. `save` pre-trains BERT-Base on this
machine's CPU with a save every few steps, and prints the log's lines about the saves and the time
of the steps. --checkout measures another checkout of this project, such as an older one.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bert_tf.runs.folder import goodput
from tests.support.environment import compile_quickly
from tests.support.pretraining_runs import ROOT, write_records

STEPS, SAVE = 2500, 25
BASE = f"{ROOT}/flags/models/uncased_L-12_H-768_A-12/bert_config.json"
# Fits a line, which starts within seconds, and multiplies matrices, so that a step takes about
# 70 ms, like a small model's. In much shorter steps, the 0.6 ms to get a batch would matter. The
# heart beats more often than in the programs, because the last beat gives the time of a kill and
# these runs are short.
PROGRAM = """
import sys
from bert_tf.runs.flags import command_flags
import tensorflow as tf
from bert_tf import optimization
from bert_tf.runs.folder import heartbeat
from bert_tf.runs.folder.run import Run
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.training.trainer import Trainer
from tests.support.line_task import LineModel, phases

class HeavyModel(LineModel):
    def loss_and_metrics(self, outputs, features, normalizers):
        loss, metrics = super().loss_and_metrics(outputs, features, normalizers)
        x = tf.ones([1024, 1024]) * features["x"][0, 0]
        for _ in range(4):
            x = tf.tanh(tf.matmul(x, x) * 1e-3)
        return loss + 1e-20 * tf.reduce_sum(x), metrics

def main(words):
    output_dir, steps, every, *files = words
    settings = TrainingSettings(
        output_dir=output_dir, do_train=True, save_checkpoints_steps=int(every)
    )
    with Run(tf.distribute.get_strategy(), settings) as run:
        schedule = optimization.linear_schedule(0.05, int(steps), 5)
        Trainer(HeavyModel, run, schedule).train(phases(files, (int(steps), 16)))

heartbeat.BEAT_SECONDS = 0.1
command_flags.run_program(main, takes_others=True)
"""


def kills(folder: Path, count: int, seed: int) -> dict:
    """Returns the figures of a run that is killed --kills times."""
    from tests.runs.training.resume_test import named_step
    from tests.support import line_task

    files = [line_task.write(folder / f"{i}.tfrecord", 400, i) for i in range(3)]
    out = folder / "out"
    words = [sys.executable, "-c", PROGRAM, str(out), str(STEPS), str(SAVE), *files]
    rng = random.Random(seed)
    targets = sorted(rng.uniform(0, STEPS - SAVE) for _ in range(count))
    log = open(folder / "log", "w")
    began, sent, lost, interval = time.time(), [], 0.0, 1.0
    while True:
        process = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        if not targets:
            assert process.wait() == 0, (folder / "log").read_text()[-3000:]
            break
        target = targets.pop(0)
        first = (named_step(out), time.monotonic()) if out.exists() else (-1, 0.0)
        while named_step(out) < max(target // SAVE * SAVE, first[0] + 1):
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            time.sleep(0.005)
        time.sleep(target % SAVE / SAVE * interval)
        kind = rng.choice((signal.SIGTERM, signal.SIGKILL))
        process.send_signal(kind)
        killed = time.time()
        process.wait()
        record = goodput.read(str(out))
        if kind == signal.SIGKILL:
            lost += killed - record.until
        sent.append(kind.name)
        print(f"{kind.name} at step {named_step(out)} or later, load {os.getloadavg()[0]:.1f}")
        if record.seconds["steps"] and named_step(out) > 0:
            interval = record.seconds["steps"] / named_step(out) * SAVE
    wall = time.time() - began
    record = goodput.read(str(out))
    subprocess.run([sys.executable, "-m", "tools.goodput", str(out)], cwd=ROOT, check=True)
    steps, share = record.seconds["steps"], record.goodput_beyond_start_up()
    share_by_kills = steps / (steps / share + lost - record.seconds["lost"])
    return {
        "sent": {name: sent.count(name) for name in sorted(set(sent))},
        "goodput_beyond_start_up": round(share, 4),
        "and_with_the_loss_by_the_times_of_the_kills": round(share_by_kills, 4),
        "lost_seconds_by_the_times_of_the_kills": round(lost, 2),
        "lost_seconds_by_the_file": round(record.seconds["lost"], 2),
        "sum_of_the_parts": round(sum(record.seconds.values()), 2),
        "wall_seconds_outside": round(wall, 2),
        "seconds_between_two_saves": round(interval, 2),
        "starts": record.starts,
    }


def save(folder: Path, checkout: str) -> dict:
    """Returns how much time the saves of BERT-Base cost the steps."""
    write_records(folder / "0.tfrecord", 60, 64, 10, seed=1, vocab_size=30522)
    words = [sys.executable, "run_pretraining.py", "--do_train"]
    words += [f"--input_file={folder}/0.tfrecord", f"--bert_config_file={BASE}"]
    words += ["--max_seq_length=64", "--max_predictions_per_seq=10", "--train_batch_size=4"]
    figures = {}
    for name, every in (("without saves", 1000), ("with saves", 8)):
        out = folder / name.replace(" ", "_")
        more = [f"--output_dir={out}", "--num_train_steps=33", f"--save_checkpoints_steps={every}"]
        streams = {"capture_output": True, "text": True, "check": True}
        log = subprocess.run([*words, *more], cwd=checkout, **streams).stderr
        shown = (r".*(?:Saved step| step 1:).*", r".*\] step 32:.*")
        print(name, *(line for kind in shown for line in re.findall(kind, log)), sep="\n  ")
        times = {}
        stamp = r"(\d\d):(\d\d):(\d\d\.\d+) .*\] step (\d+):"
        for hours, minutes, seconds, step in re.findall(stamp, log):
            times[int(step)] = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
        figures[name] = round(times[max(t for t in times if t <= 32)] - times[1], 2)
    return {"seconds_from_step_1_to_32": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kills", "save"))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkout", default=ROOT)
    arguments = parser.parse_args()
    if arguments.what == "kills":
        compile_quickly()  # the start is not measured
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "kills":
            figures = kills(Path(folder), arguments.kills, arguments.seed)
        else:
            figures = save(Path(folder), arguments.checkout)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
