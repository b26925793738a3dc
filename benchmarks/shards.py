r"""Measures shards: seconds and memory with one worker and with two, and whether files are equal.

    python -m benchmarks.shards --input_file=sentences.txt \
        --vocab_file=vocab.txt --output_dir=/tmp/shards

The text is made from a small text: documents of runs of its sentences, in a random order. Some
capitalized words are joined from halves of other words, so that new words turn up as in real text.
"""

import hashlib
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from absl import app, flags

from benchmarks import ROOT

FLAGS = flags.FLAGS
_RUN = 3  # sentences that follow each other in the text stay together
_NEW_NAMES = 0.3  # share of the capitalized words that are replaced by joined halves


def rearranged(text: str, size: int, seed: int) -> Iterator[str]:
    """Yields documents, each followed by an empty line, of about `size` characters in all.

    `text` has a sentence on each line and an empty line between documents.
    """
    rng = random.Random(seed)
    documents = [document.split("\n") for document in text.strip().split("\n\n")]
    lengths = [len(document) for document in documents]
    runs = [d[i : i + _RUN] for d in documents for i in range(0, len(d), _RUN)]
    names = sorted({name for name in re.findall(r"\b[A-Z][a-z]{3,}\b", text)})

    def renamed(match: re.Match) -> str:
        if rng.random() > _NEW_NAMES:
            return match[0]
        first, second = rng.choice(names), rng.choice(names)
        return first[: len(first) // 2] + second[len(second) // 2 :]

    while size > 0:
        wanted = max(rng.choice(lengths), 2)
        sentences = itertools.chain.from_iterable(iter(lambda: rng.choice(runs), None))
        document = "\n".join(itertools.islice(sentences, wanted)) + "\n\n"
        document = re.sub(r"\b[A-Z][a-z]{3,}\b", renamed, document)
        size -= len(document)
        yield document


def digests(folder: Path) -> dict[str, str]:
    """Returns the digest of each file in a folder."""
    found = {}
    for path in folder.iterdir():
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def memories(pid: int, seconds: float = 0.25) -> Iterator[float]:
    """Yields the memory (MB) of a process and of each of its children, again and again."""
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    while True:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for process in (pid, *children):
                yield int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page
        except (FileNotFoundError, ProcessLookupError):
            yield 0.0
        time.sleep(seconds)


def make_shards(folder: Path, text: Path, num_workers: int) -> tuple[float, float]:
    """Returns the seconds that the program took, and the memory (MB) of its largest process."""
    folder.mkdir(parents=True)
    command = [
        *(sys.executable, os.path.join(ROOT, "create_pretraining_data.py")),
        *(f"--input_file={text}", f"--output_file={folder}/train.tfrecord"),
        *(f"--vocab_file={FLAGS.vocab_file}", f"--dupe_factor={FLAGS.dupe_factor}"),
        *(f"--num_shards={FLAGS.num_shards}", f"--num_workers={num_workers}"),
    ]
    began = time.monotonic()
    with open(f"{folder}.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        running = itertools.takewhile(lambda _: process.poll() is None, memories(process.pid))
        peak = max(running, default=0.0)
    if process.returncode:
        raise RuntimeError(Path(f"{folder}.log").read_text())
    return time.monotonic() - began, peak


def main(_: list[str]) -> None:
    output = Path(FLAGS.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    text = output / "text.txt"
    source = Path(FLAGS.input_file).read_text(encoding="utf-8")
    with text.open("w", encoding="utf-8") as file:
        file.writelines(rearranged(source, FLAGS.megabytes * 10**6, seed=1))
    print(f"text: {text.stat().st_size / 1e6:.0f} MB", flush=True)
    expected = None
    for workers in map(int, FLAGS.workers):
        folder = output / f"{workers}_workers"
        seconds, memory = make_shards(folder, text, workers)
        log = Path(f"{folder}.log").read_text()
        instances = sum(map(int, re.findall(r"Wrote (\d+) total", log)))
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(
            f"{workers} workers: {seconds:.0f} s, {instances} instances,"
            f" {instances / seconds:.0f} a second, {size / 1e6:.0f} MB of records,"
            f" largest process {memory:.0f} MB",
            flush=True,
        )
        found = digests(folder)
        expected = expected or found
        print(f"  equal to the first: {found == expected}", flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    flags.DEFINE_string("input_file", None, "The small text.", required=True)
    flags.DEFINE_string("vocab_file", None, "Vocabulary.", required=True)
    flags.DEFINE_string("output_dir", None, "Folder to work in.", required=True)
    flags.DEFINE_integer("megabytes", 300, "Size of the text.")
    flags.DEFINE_integer("num_shards", 16, "Shards.")
    flags.DEFINE_integer("dupe_factor", 5, "Passes over the text.")
    flags.DEFINE_list("workers", ["1", "2"], "Numbers of workers.")
    app.run(main)
