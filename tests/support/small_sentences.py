"""Tables of sentences that a tiny model can learn, with vocabulary and configuration."""

import random
from pathlib import Path

from tests.support.pretraining_runs import write_config

TOPICS = {"bread": "dough", "river": "water", "music": "song", "winter": "snow"}
FILLERS = "the a of in and very old new so it".split()
WORDS = [*TOPICS, *TOPICS.values(), *FILLERS]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SIZES = {"vocab_size": len(VOCAB), "hidden_size": 16, "intermediate_size": 24}


def write_sentences(folder: Path) -> Path:
    """Returns the folder with train.tsv (120 pairs), dev.tsv (41), test.tsv (7) and the rest.

    The score is 4.0 if both texts have the same topic, else 0.0; a topic has two words. The test
    file has no scores, and the texts of its even rows share a topic.
    """
    rng = random.Random(5)

    def text(topic: str) -> str:
        words = rng.choices(FILLERS, k=rng.randint(1, 4))
        words.insert(rng.randrange(len(words)), rng.choice([topic, TOPICS[topic]]))
        return " ".join(words)

    for name, count in (("train", 120), ("dev", 41), ("test", 7)):
        lines = ["score\tone\tother"]
        for i in range(count):
            first, second = rng.sample(list(TOPICS), 2)
            score = "4.0" if i % 2 == 0 else "0"
            lines.append(f"{score}\t{text(first)}\t{text(second if i % 2 else first)}")
        if name == "test":
            lines = [line.split("\t", 1)[1] for line in lines]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    write_config(folder / "bert_config.json", **SIZES, **rates)
    return folder
