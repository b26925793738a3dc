r"""Restores what tools.convert_checkpoint wrote with tf-models-official, which no test needs.

    python -m tools.convert_checkpoint --input=tests/model_garden/KIND --bert_config_file=FILE \\
        --output_format=model_garden --output_dir=FOLDER
    TF_USE_LEGACY_KERAS=1 ORACLE/bin/python tests/model_garden/restore.py KIND FOLDER

KIND is encoder, classifier or pretrainer; make_fixtures.py tells how ORACLE is made. Prints the
largest difference from the outputs beside the fixture.
"""

import sys
from pathlib import Path

import make_fixtures as fixtures
import numpy as np
import tensorflow as tf
from official.nlp.modeling import layers, models, networks


def restore(network, folder, inputs, **items):
    network(inputs)  # makes the variables
    checkpoint = tf.train.Checkpoint(**items)
    checkpoint.restore(f"{folder}/bert_model.ckpt").assert_existing_objects_matched()
    return network(inputs)


def outputs(kind, folder, encoder):
    if kind == "encoder":
        return restore(encoder, folder, fixtures.INPUTS, encoder=encoder)
    if kind == "classifier":
        model = models.BertClassifier(encoder, num_classes=fixtures.CLASSES)
        items = {**model.checkpoint_items, "model": model}
        return {"output": restore(model, folder, fixtures.INPUTS, **items)}
    head = layers.ClassificationHead(fixtures.HIDDEN, 2, name="next_sentence")
    model = models.BertPretrainerV2(encoder, fixtures.gelu, classification_heads=[head])
    inputs = {**fixtures.INPUTS, "masked_lm_positions": fixtures.POSITIONS_TO_PREDICT}
    return restore(model, folder, inputs, model=model, **model.checkpoint_items)


def main(kind, folder):
    expected = np.load(Path(__file__).parent / kind / "outputs.npz")
    for encoder in networks.BertEncoder, networks.BertEncoderV2:
        found = outputs(kind, folder, fixtures.make_encoder(encoder))
        if kind == "pretrainer":
            del found["pooled_output"]  # of the encoder's pooler, which is untrained there
        for name in sorted(found.keys() & {*expected.files}):
            difference = np.abs(found[name] - expected[name]).max()
            print(f"{encoder.__name__} {name}: {difference}")


if __name__ == "__main__":
    main(*sys.argv[1:])
