"""Fine-tunes a classifier with Keras's fit: does a sentence contain a number?

    python examples/fine_tune.py output/quickstart output/has_number.keras

The first argument is a folder with a model, the second the file to save the classifier to.
"""

import csv
import itertools
import sys

import numpy as np

import bert_tf
from bert_tf.text import sequences

MAX_SEQ_LENGTH, BATCH_SIZE, EPOCHS = 32, 8, 10


def read(path: str, tokenizer: bert_tf.Tokenizer) -> dict[str, np.ndarray]:
    """Returns the features and labels of a table."""
    with open(path, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    ids, splits = tokenizer.encode([row["sentence"] for row in table])
    rows = [
        sequences.truncate_and_pack(ids[start:end], [], MAX_SEQ_LENGTH, tokenizer.layout)
        for start, end in itertools.pairwise(splits)
    ]
    features = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {**features, "label_ids": np.array([row["has_number"] == "yes" for row in table], int)}


def main(folder: str, output: str) -> None:
    pretrained = bert_tf.load(folder)  # for its configuration and vocabulary
    train, dev = (
        read(f"flags/quickstart/numbers/{name}.csv", pretrained.tokenizer)
        for name in ("train", "dev")
    )
    model = bert_tf.ClassificationModel(pretrained.config, num_labels=2)
    bert_tf.load_weights(model, folder)
    num_steps = EPOCHS * len(train["label_ids"]) // BATCH_SIZE
    schedule = bert_tf.linear_schedule(1e-3, num_steps, num_warmup_steps=num_steps // 10)
    model.compile(bert_tf.AdamWeightDecayOptimizer(schedule))  # the model knows its loss
    model.fit(train, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)
    print(model.evaluate(dev, return_dict=True, verbose=0))
    model.save(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
