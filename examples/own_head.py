"""Puts your own head on BERT: it predicts the share of vowels among a text's letters.

    python examples/own_head.py output/quickstart output/vowels.keras

The first argument is a folder with a model, the second the file to save the new model to.
"""

import sys

import keras
import numpy as np

import bert_tf

EPOCHS = 10


def share_of_vowels(text: str) -> float:
    letters = [letter for letter in text.lower() if letter.isalpha()]
    return sum(letter in "aeiou" for letter in letters) / len(letters)


def main(folder: str, output: str) -> None:
    pretrained = bert_tf.load(folder)
    words = [word for word in pretrained.tokenizer.vocab if word.isalpha()]
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, 6)) for _ in range(400)]
    ids, splits = pretrained.tokenizer.encode(texts)
    input_ids = keras.utils.pad_sequences(np.split(ids, splits[1:-1]), 12, padding="post")
    targets = np.array([share_of_vowels(text) for text in texts])

    bert = bert_tf.BertModel(pretrained.config)
    bert_tf.load_weights(bert, folder)
    bert.pooler.trainable = False  # the head does not use it
    inputs = keras.Input((None,), dtype="int32")
    tokens = bert(inputs, keras.ops.cast(keras.ops.not_equal(inputs, 0), "int32")).sequence_output
    hidden = keras.layers.Dropout(0.1)(keras.layers.GlobalAveragePooling1D()(tokens))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))

    model.compile(bert_tf.AdamWeightDecayOptimizer(1e-3), "mean_squared_error")
    model.fit(input_ids, targets, validation_split=0.2, epochs=EPOCHS, verbose=2)
    model.save(output)
    again = keras.saving.load_model(output)
    print("for", repr(texts[0]), "it says", again.predict(input_ids[:1], verbose=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
