"""Compares the losses of run_sentence_similarity: correlation on STS-B, and memory.

    python -m benchmarks.sentences --model=minilm --data_dir=glue/STS-B --output_dir=output/losses

Each loss trains --model, a checkpoint with its vocabulary and configuration, on STS-B's training
pairs; those with scores of at least 4 mean the same. The hard negative of such a pair is the second
text of the file that --model finds nearest to its first text, among those whose cosine is below
0.95 of the pair's. Half a model has its first half of the layers, and learns from the whole one. A
row has Spearman's correlation on the dev set for the whole vectors, their first third and sixth:
the mean over --seeds, the least and the most; and the highest peak of memory. Started again, the
benchmark resumes.
"""

import json
import os
from pathlib import Path

import numpy as np
from absl import flags

import bert_tf
from benchmarks.data_speed import run_program
from bert_tf.engine.measures import spearman
from bert_tf.runs.flags import command_flags
from bert_tf.tasks.classification.processors import StsbProcessor

FLAGS = flags.FLAGS
POSITIVE = 4.0  # the score from which a pair means the same
COMMON = ["--text_a_column=sentence1", "--text_b_column=sentence2", "--max_seq_length=32"]
COMMON += ["--group_by_length", "--length_buckets=16,32"]
COMMON += ["--do_train", "--do_lower_case", "--num_train_epochs=1", "--keep_checkpoint_max=1"]
SCORES = ["--label_column=score", "--score_scale=5"]
NEGATIVES = ["--loss=in_batch_negatives", "--train_batch_size=64", "--num_train_epochs=3"]
POSITIVES = [*NEGATIVES, "--label_column=score", f"--min_positive_score={POSITIVE}"]


def write_triplets(folder: Path) -> None:
    """Writes the pairs that mean the same, each with a hard negative."""
    rows = StsbProcessor().get_train_examples(FLAGS.data_dir)
    model, texts = bert_tf.load(FLAGS.model), [x.text_b for x in rows]
    cosines = model.encode([x.text_a for x in rows]) @ model.encode(texts).T
    lines = ["sentence1\tsentence2\tnegative"]
    for own, row in zip(cosines.diagonal(), zip(rows, cosines, strict=True), strict=True):
        example, found = row
        nearest = texts[int(np.argmax(np.where(found < 0.95 * own, found, -1.0)))]
        if example.label >= POSITIVE:
            lines.append(f"{example.text_a}\t{example.text_b}\t{nearest}")
    (folder / "train.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")


def correlations(folder: str, sizes: tuple[int, ...]) -> list[float]:
    """Returns Spearman's correlation of a model's vectors of these sizes on the dev set."""
    model, rows = bert_tf.load(folder), StsbProcessor().get_dev_examples(FLAGS.data_dir)
    vectors = [model.encode([getattr(x, text) for x in rows]) for text in ("text_a", "text_b")]
    scores, found = np.array([x.label for x in rows]), []
    for size in sizes:
        a, b = (x[:, :size] / np.linalg.norm(x[:, :size], axis=1, keepdims=True) for x in vectors)
        found.append(100 * spearman(scores, (a * b).sum(axis=1)))
    return found


def train(output: str, config: str, *words: str) -> float:
    """Trains a model; returns the peak of its memory in MB, also if it was trained before."""
    note = Path(f"{output}.memory")
    if not note.exists():
        model = [f"--vocab_file={FLAGS.model}/vocab.txt", f"--bert_config_file={config}"]
        model += [f"--init_checkpoint={FLAGS.model}/bert_model.ckpt", f"--output_dir={output}"]
        program = ["run_sentence_similarity.py", *COMMON, *model, *words]
        note.write_text(str(run_program(program, os.cpu_count())[1]))
    return float(note.read_text())


def main() -> None:
    folder = Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    whole, half = f"{FLAGS.model}/bert_config.json", str(folder / "half.json")
    config = json.loads(Path(whole).read_text())
    layers, size = config["num_hidden_layers"] // 2, config["hidden_size"]
    Path(half).write_text(json.dumps({**config, "num_hidden_layers": layers}))
    if not (folder / "train.tsv").exists():
        write_triplets(folder)
    sizes = (size, size // 3, size // 6)
    several = f"--matryoshka_dims={','.join(map(str, sizes))}"
    teacher = ["--loss=teacher", f"--teacher_checkpoint={FLAGS.model}", "--learning_rate=3e-4"]
    runs = {
        "scores": SCORES,
        "scores of three sizes": [*SCORES, several],
        "in-batch negatives": POSITIVES,
        "in-batch negatives in 8 parts": [*POSITIVES, "--gradient_accumulation_steps=8"],
        "hard negatives": [*NEGATIVES, "--negative_column=negative", f"--data_dir={folder}"],
        "half untrained": [*SCORES, "--learning_rate=0", "--num_train_epochs=0.01"],
        "half by scores": SCORES,
        "half by teacher": teacher,
    }
    heads = "".join(f" Spearman, {x} |" for x in sizes)
    print(f"| Training |{heads} Peak memory, MB |\n|---|--:|--:|--:|--:|")
    untrained = "".join(f" {x:.2f} |" for x in correlations(FLAGS.model, sizes))
    print(f"| none |{untrained} |", flush=True)
    for name, words in runs.items():
        outputs = [f"{folder}/{name.replace(' ', '_')}_{seed}" for seed in FLAGS.seeds]
        peaks = [
            train(
                *(output, half if name.startswith("half") else whole),
                *(f"--data_dir={FLAGS.data_dir}", f"--random_seed={seed}", *words),
            )
            for output, seed in zip(outputs, FLAGS.seeds, strict=True)
        ]
        columns = zip(*(correlations(x, sizes) for x in outputs), strict=True)
        cells = (f" {np.mean(x):.2f} ({min(x):.2f} to {max(x):.2f}) |" for x in columns)
        print(f"| {name} |{''.join(cells)} {max(peaks):,.0f} |", flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "Folder of the model.", required=True)
    flags.DEFINE_string("data_dir", None, "Folder with STS-B.", required=True)
    flags.DEFINE_string("output_dir", None, "Folder to work in.", required=True)
    flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds.")
    command_flags.run_program(main)
