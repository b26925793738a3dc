"""Times text to ids in a graph against the Python tokenizers, and measures its size in a model.

    python -m benchmarks.text_to_ids VOCAB_FILE [LINES_FILE]... [--cased] [--cores=1]

A file of lines is MRPC's train.tsv (the first sentence of each pair), JSON strings (*.jsonl), or
plain text. Figures are medians over passes. The variants take turns, so that other work on the
machine slows all of them alike.
"""

import argparse
import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.take_turns import take_turns, timed
from bert_tf import tokenization
from bert_tf.text.fast_tokenization import FastTokenizer

_BATCH_SIZES = (1, 32, 1024)
_PASSES = 5
# A batch of one line takes a millisecond, so a part of the lines is enough.
_MOST_BATCHES = 300


def read_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    if path.suffix == ".tsv":
        return [line.split("\t")[3] for line in lines[1:]]
    return [json.loads(line) for line in lines] if path.suffix == ".jsonl" else lines


def batches(lines: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, min(len(lines), size * _MOST_BATCHES), size):
        yield lines[start : start + size]


def encode_all(encode: Callable, all_batches: Sequence) -> None:
    for batch in all_batches:
        encode(batch)


def main(arguments: argparse.Namespace) -> None:
    import tensorflow as tf

    from bert_tf.export.text_inputs import TextToIds

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    tf.config.threading.set_inter_op_parallelism_threads(arguments.cores)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.cores)
    vocab = tokenization.load_vocab(arguments.vocab_file)
    began = time.perf_counter()
    module = TextToIds(FastTokenizer(vocab, not arguments.cased))
    print(f"tables made in {time.perf_counter() - began:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print(f"size as a SavedModel: {size} bytes")
    full = tokenization.FullTokenizer(vocab, not arguments.cased)

    def encode(texts):
        return [full.convert_tokens_to_ids(full.tokenize(text)) for text in texts]

    fast = FastTokenizer(vocab, not arguments.cased).encode
    ways = {"TextToIds": module, "FullTokenizer": encode, "FastTokenizer": fast}
    for file in arguments.lines_file:
        lines = read_lines(Path(file))
        characters = sum(map(len, lines)) / len(lines)
        print(f"{file}: {len(lines)} lines, {characters:.0f} characters each")
        for size in _BATCH_SIZES:
            texts = list(batches(lines, size))
            tensors = [tf.constant(batch) for batch in texts]
            runs = {}
            for name, way in ways.items():
                inputs = tensors if name == "TextToIds" else texts
                runs[name] = timed(functools.partial(encode_all, way, inputs))
            for name, times in take_turns(runs, _PASSES).items():
                median = statistics.median(times)
                print(
                    f"  batches of {size:4}, {name:13}: {sum(map(len, texts)) / median:9.0f}"
                    f" lines/s, {1000 * median / len(texts):8.2f} ms a batch"
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("vocab_file")
    parser.add_argument("lines_file", nargs="*")
    parser.add_argument("--cased", action="store_true", help="do not lower-case")
    parser.add_argument("--cores", type=int, default=1)
    main(parser.parse_args())
