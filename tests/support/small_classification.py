"""A table of reviews that a tiny model can learn, with vocabulary and configuration."""

import random
from pathlib import Path

from tests.support.pretraining_runs import write_config

WORDS = "the film was plot actor music long and so very dull fine awful lovely".split()
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SIZES = {"vocab_size": len(VOCAB), "hidden_size": 16, "intermediate_size": 24}
SIZES |= {"max_position_embeddings": 40}
GOOD, BAD = ("fine", "lovely"), ("dull", "awful")


def write_reviews(folder: Path) -> Path:
    """Returns the folder with train.csv (90 reviews), dev.csv (41), test.csv (7) and the rest.

    Words of praise or blame decide a review's label.
    """
    rng = random.Random(3)
    for name, count in (("train", 90), ("dev", 41), ("test", 7)):
        lines = ["review,stars"]
        for i in range(count):
            words = rng.choices(WORDS[:10], k=rng.randint(2, 25))
            for place in rng.sample(range(len(words)), (len(words) + 1) // 2):
                words[place] = rng.choice((BAD, GOOD)[i % 2])
            lines.append(f"{' '.join(words)},{('bad', 'good')[i % 2]}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    write_config(folder / "bert_config.json", **SIZES)
    return folder


def shown(examples) -> list[str]:
    """Returns examples as guid|text_a|text_b|label, with - for None."""
    rows = [(x.guid, x.text_a, x.text_b, x.label) for x in examples]
    return ["|".join("-" if part is None else str(part) for part in row) for row in rows]


def flags(folder: Path, output_dir, *more: str) -> list[str]:
    """Returns the flags of run_classifier for the reviews."""
    return [
        *("--task_name=table", "--text_a_column=review", "--label_column=stars"),
        *(f"--data_dir={folder}", f"--vocab_file={folder}/vocab.txt"),
        *(f"--bert_config_file={folder}/bert_config.json", f"--output_dir={output_dir}"),
        *("--max_seq_length=40", "--learning_rate=5e-3", "--train_batch_size=8", *more),
    ]
