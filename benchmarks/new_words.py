"""Continues pre-training on a domain with and without new words; prints held-out loss a word.

    python -m benchmarks.new_words PRETRAINING_TEXT DOMAIN_TEXT OUTPUT_DIR

Both texts have a sentence on each line. A vocabulary is learned from the first text, and a small
BERT is pre-trained on it. Every tenth block of 20 lines of the domain's text is held out, and words
of the rest are added to the vocabulary. Then, with each seed, the model is trained on the rest for
some steps: with the old vocabulary, with words and pieces added, and with whole words added.

The loss a word is -log P(word | the other words of its line), in nats. Eight words of each held-out
line are drawn. They are drawn before the text is split into pieces, so all models get the same
words. The model sees the line with all pieces of one drawn word replaced by [MASK], then with the
word's first piece shown, then with the first two, and so on. A word's loss is the sum of its
pieces' cross entropies, each predicted as the first piece that is not shown. So the pieces are not
guessed independently, which would be unfair to words of many pieces; on the other hand the number
of [MASK] reveals the number of pieces, which favours such words. Words that are [UNK] in a
vocabulary are not drawn. Lines are cut where the first of the vocabularies fills the sequence.
"""

import argparse
import itertools
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_tf.tokenization import FullTokenizer

_LENGTH = 64  # pieces in a sequence
_SIZES = {"max_seq_length": _LENGTH, "max_predictions_per_seq": 10}
_LINES_OF_A_DOCUMENT = 20
_CONFIG = "flags/quickstart/bert_config.json"  # 2 layers of 128
_DRAWN = 8  # words of a line
_BATCH = 128


class Line(NamedTuple):
    """A held-out line: its words, and the numbers of the drawn words."""

    words: list[str]
    drawn: list[int]


class Example(NamedTuple):
    """A line with a word masked from a piece on; the model predicts that piece."""

    ids: list[int]
    position: int
    label: int
    word: str


def run(program: str, **flags: object) -> None:
    """Runs a program of this checkout; prints its command and the report that it prints."""
    words = [f"--{name}={value}" for name, value in flags.items()]
    where = ["-m", program] if "." in program and not program.endswith(".py") else [program]
    print("$ python", *where, *words, flush=True)
    done = subprocess.run([sys.executable, *where, *words], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def split_domain(text: Path, folder: Path) -> tuple[Path, list[str]]:
    """Writes the lines to train on; returns the file and the held-out lines."""
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    starts = range(0, len(lines), _LINES_OF_A_DOCUMENT)
    blocks = [lines[start : start + _LINES_OF_A_DOCUMENT] for start in starts]
    kept = [block for number, block in enumerate(blocks) if number % 10]
    file = folder / "domain_train.txt"
    file.write_text("".join("\n".join(block) + "\n\n" for block in kept), encoding="utf-8")
    return file, [line for block in blocks[::10] for line in block]


def make_records(text: Path, vocab_file: Path, output_file: Path, dupe_factor: int, seed: int):
    files = {"input_file": text, "output_file": output_file, "vocab_file": vocab_file}
    options = {"dupe_factor": dupe_factor, "random_seed": seed}
    run("create_pretraining_data.py", **files, **_SIZES, **options)


def train(folder: Path, records: Path, config: Path, steps: int, rate: float, seed: int, **more):
    files = {"input_file": records, "bert_config_file": config, "output_dir": folder}
    schedule = {"num_train_steps": steps, "num_warmup_steps": steps // 10, "learning_rate": rate}
    schedule |= {"do_train": True, "train_batch_size": 32, "iterations_per_loop": 100}
    run("run_pretraining.py", **files, **_SIZES, **schedule, random_seed=seed, **more)


def draw_words(lines: Sequence[str], tokenizers: Sequence[FullTokenizer]) -> list[Line]:
    """Returns the words of the lines, and which to mask; the same for all tokenizers."""
    rng = random.Random(1)
    drawn = []
    for line in lines:
        words, lengths, known = [], [0] * len(tokenizers), []
        for word in tokenizers[0].basic_tokenizer.tokenize(line):
            splits = [t.wordpiece_tokenizer.tokenize(word) for t in tokenizers]
            lengths = [a + len(b) for a, b in zip(lengths, splits, strict=True)]
            if max(lengths) > _LENGTH - 2:
                break
            if ["[UNK]"] not in splits:
                known.append(len(words))
            words.append(word)
        drawn.append(Line(words, sorted(rng.sample(known, min(len(known), _DRAWN)))))
    return drawn


def examples(lines: Sequence[Line], tokenizer: FullTokenizer) -> Iterator[Example]:
    """Yields an example for each piece of each drawn word."""
    cls, sep, mask = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[MASK]"])
    split = tokenizer.wordpiece_tokenizer.tokenize
    for words, drawn in lines:
        pieces = [tokenizer.convert_tokens_to_ids(split(word)) for word in words]
        for number in drawn:
            before = [cls, *itertools.chain.from_iterable(pieces[:number])]
            after = [*itertools.chain.from_iterable(pieces[number + 1 :]), sep]
            for shown, label in enumerate(pieces[number]):
                masks = [mask] * (len(pieces[number]) - shown)
                ids = [*before, *pieces[number][:shown], *masks, *after]
                yield Example(ids, len(before) + shown, label, words[number])


def losses(folder: Path, model_files: Path, lines: Sequence[Line]) -> list[tuple[str, float]]:
    """Returns the word and the cross entropy of each example of the held-out lines.

    `folder` has the checkpoint, `model_files` the configuration and the vocabulary.
    """
    import tensorflow as tf

    from bert_tf.pretrained.build import build_model
    from bert_tf.pretrained.folder import read_folder

    config, vocab_file = model_files / "bert_config.json", model_files / "vocab.txt"
    found = read_folder(str(folder), str(config), str(vocab_file), True)
    model = tf.function(build_model("masked_lm", found), reduce_retracing=True)
    todo = list(examples(lines, found.tokenizer.reference))
    result = []
    for start in range(0, len(todo), _BATCH):
        batch = todo[start : start + _BATCH]
        ids, mask = np.zeros([2, len(batch), _LENGTH], np.int32)
        for row, example in enumerate(batch):
            ids[row, : len(example.ids)], mask[row, : len(example.ids)] = example.ids, 1
        positions = np.array([[example.position] for example in batch], np.int32)
        labels = [example.label for example in batch]
        logits, _ = model(*map(tf.constant, (ids, mask, np.zeros_like(ids), positions)))
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)  # [B]
        words = (example.word for example in batch)
        result += zip(words, entropies.numpy().tolist(), strict=True)
    return result


def main(arguments: argparse.Namespace) -> None:
    folder = arguments.output_dir
    base = folder / "base"
    base.mkdir(parents=True, exist_ok=True)
    files = {"input_file": arguments.pretraining_text, "output_file": base / "vocab.txt"}
    run("tools.build_vocabulary", **files, vocab_size=arguments.vocab_size)
    size = len((base / "vocab.txt").read_text(encoding="utf-8").splitlines())
    config = folder / "bert_config.json"
    text = Path(_CONFIG).read_text().replace('"vocab_size": 1000', f'"vocab_size": {size}')
    config.write_text(text)
    make_records(arguments.pretraining_text, base / "vocab.txt", folder / "base.tfrecord", 10, 1)
    train(base, folder / "base.tfrecord", config, arguments.pretraining_steps, 1e-3, 1)

    domain, held_out = split_domain(arguments.domain_text, folder)
    places = {"old vocabulary": base}
    files = {"input_file": domain, "init_checkpoint": base, "bert_config_file": config}
    files["vocab_file"] = base / "vocab.txt"
    for name, whole_words in (("words and pieces", False), ("whole words", True)):
        places[name] = folder / name.replace(" ", "_")
        options = {"num_words": arguments.num_words, "whole_words": whole_words}
        run("tools.extend_vocabulary", **files, **options, output_dir=places[name])
    tokenizers = [FullTokenizer(str(place / "vocab.txt")) for place in places.values()]
    lines = draw_words(held_out, tokenizers)
    drawn = [line.words[number] for line in lines for number in line.drawn]
    tokenize = [tokenizer.wordpiece_tokenizer.tokenize for tokenizer in tokenizers]
    changed = {w for w in drawn if any(split(w) != tokenize[0](w) for split in tokenize)}
    num_changed = sum(word in changed for word in drawn)

    def figures(checkpoint: Path, model_files: Path) -> list[float]:
        """Returns the loss a word of all words, of words split differently, of the other words."""
        pieces = losses(checkpoint, model_files, lines)
        total = sum(loss for _, loss in pieces)
        of_changed = sum(loss for word, loss in pieces if word in changed)
        others = (total - of_changed) / (len(drawn) - num_changed)
        return [total / len(drawn), of_changed / num_changed, others]

    table = []
    for name, place in places.items():
        rows = {"before training on the domain": figures(place, place)}
        for seed in arguments.seeds:
            records = folder / f"{place.name}_{seed}.tfrecord"
            checkpoint = folder / f"{place.name}_{seed}"
            make_records(domain, place / "vocab.txt", records, 10, seed)
            steps, start = arguments.domain_steps, {"init_checkpoint": place}
            train(checkpoint, records, place / "bert_config.json", steps, 5e-4, seed, **start)
            rows[f"seed {seed}"] = figures(checkpoint, place)
        means = zip(*[rows[f"seed {seed}"] for seed in arguments.seeds], strict=True)
        rows["mean of the seeds"] = list(map(statistics.mean, means))
        for title, values in rows.items():
            table.append(f"| {name} | {title} | {' | '.join(f'{x:.3f}' for x in values)} |")
    print(f"\n{len(drawn)} masked words, {num_changed} split differently by either addition")
    print("| Vocabulary | | all words | split differently | other words |")
    print("|---|---|--:|--:|--:|", *table, sep="\n")


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("pretraining_text", type=Path)
    parser.add_argument("domain_text", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--vocab_size", type=int, default=4000)
    parser.add_argument("--num_words", type=int, default=1000)
    parser.add_argument("--pretraining_steps", type=int, default=1500)
    parser.add_argument("--domain_steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    main(parser.parse_args())
