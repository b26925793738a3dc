"""Text of a few files, and settings that make records of it in shards."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings

WORDS = "river bread stone walk ##ing ##ed ##s light moon see the a of and . ,".split()
TEXTS = {"b/x.txt": (1, 9), "b/y.txt": (2, 14), "a/x.txt": (3, 17)}  # file -> seed, documents
NUM_SHARDS = 5


def corpus(seed: int, num_documents: int) -> str:
    """Returns text without an empty line at its end, so that the next file could continue it."""
    rng = random.Random(seed)
    words = ["river", "bread", "walking", "moons", "the", "unknown", "stones,", "a", "\x07"]
    documents = [
        "\n".join(" ".join(rng.choices(words, k=rng.randint(2, 12))) for _ in range(length))
        for length in rng.choices(range(2, 8), k=num_documents)
    ]
    return "\n\n \n".join(documents)


def write_text(folder: Path) -> Path:
    """Writes text and vocab.txt, and returns the folder of the text."""
    for name, numbers in TEXTS.items():
        path = folder / "text" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(corpus(*numbers))
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    return folder / "text"


def settings(text: Path, output: Path, **more) -> PretrainingDataSettings:
    """Returns settings for the text of `write_text`; makes the output folder."""
    output.mkdir(exist_ok=True)
    options = {"num_shards": NUM_SHARDS, "dupe_factor": 2}
    options |= {"max_seq_length": 24, "max_predictions_per_seq": 3, "random_seed": 77}
    options |= {"input_file": f"{text}/*/*.txt", "vocab_file": f"{text.parent}/vocab.txt"}
    return PretrainingDataSettings(output_file=f"{output}/r.tfrecord", **{**options, **more})


def flags(values: PretrainingDataSettings) -> list[str]:
    """Returns the flags that give these settings."""
    names = ("input_file", "output_file", "vocab_file", "num_shards", "max_seq_length")
    names += ("max_predictions_per_seq", "dupe_factor", "random_seed")
    return [f"--{name}={getattr(values, name)}" for name in names]


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def kill_at_shards(
    words: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Runs a command that makes shards twice, and kills it while it writes.

    One shard is half done then; no other need be finished the first time, and two the second time.
    """
    for finished in (0, 2):
        before = {*output.iterdir()}
        process = subprocess.Popen(
            words, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        while process.poll() is None:
            paths = {*output.iterdir()}
            begun = any(path.suffix == ".unfinished" for path in paths - before)
            if begun and sum(path.suffix == ".tfrecord" for path in paths) >= finished:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.002)
        assert process.wait() == -signal.SIGKILL, f"it was not killed at shard {finished}"
