"""Writes the fixtures of object_graphs_test.py, with tf-models-official, which no test needs.

    python -m venv ORACLE
    ORACLE/bin/pip install "tf-models-official==2.20.*" tf-keras
    TF_USE_LEGACY_KERAS=1 ORACLE/bin/python tests/model_garden/make_fixtures.py

Each folder has a checkpoint as Model Garden's trainer or exporter writes it, with random weights of
odd sizes, and outputs.npz: the model's outputs for the ids, mask and types in it.
"""

import os
import shutil
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tf_keras
from official.legacy.bert import configs
from official.nlp.modeling import layers, models, networks
from official.nlp.tools import export_tfhub_lib, tf2_bert_encoder_checkpoint_converter

HERE = Path(__file__).parent
VOCAB_SIZE, HIDDEN, HEADS, INNER, POSITIONS, TYPES, WIDTH, CLASSES = 23, 6, 3, 7, 11, 4, 5, 8
rng = np.random.default_rng(47)
INPUTS = {
    "input_word_ids": rng.integers(0, VOCAB_SIZE, (2, 9), np.int32),
    "input_mask": np.array([[1] * 9, [1] * 5 + [0] * 4], np.int32),
    "input_type_ids": rng.integers(0, TYPES, (2, 9), np.int32),
}
POSITIONS_TO_PREDICT = np.array([[0, 3, 8], [4, 2, 1]], np.int32)


def gelu(x):
    return tf_keras.activations.gelu(x, approximate=True)


def make_encoder(kind=networks.BertEncoder, width=None, **arguments):
    if kind is networks.BertEncoderV2:
        sizes = {"inner_dim": INNER, "inner_activation": gelu, "initializer": _initializer()}
    else:
        sizes = {"intermediate_size": INNER, "activation": gelu, "initializer": _initializer()}
        arguments |= {"dict_outputs": True}
    return kind(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN,
        num_layers=2,
        num_attention_heads=HEADS,
        max_sequence_length=POSITIONS,
        type_vocab_size=TYPES,
        embedding_width=width,
        **sizes,
        **arguments,
    )


def _initializer():
    return tf_keras.initializers.RandomNormal(stddev=0.02)


def randomize(model):
    for variable in model.variables:
        if variable.dtype.is_floating:
            # Near 1 for scales, as otherwise LayerNorm hides differences.
            center = 1.0 if "gamma" in variable.name else 0.0
            variable.assign(center + rng.normal(scale=0.5, size=variable.shape))


def outputs_of(model, **more):
    """Returns a model's outputs for INPUTS."""
    outputs = model({**INPUTS, **more}, training=False)
    outputs = outputs if isinstance(outputs, dict) else {"output": outputs}
    outputs = {k: v for k, v in outputs.items() if k != "encoder_outputs"}
    return {k: np.asarray(v) for k, v in outputs.items() if not isinstance(v, list)}


def write(name, outputs, **items):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if items:
        tf.train.Checkpoint(**items).save(str(folder / "ckpt"))
    np.savez(folder / "outputs.npz", **INPUTS, **outputs)


def write_encoders():
    kinds = {
        "encoder": (networks.BertEncoder, None),
        "encoder_factorized": (networks.BertEncoder, WIDTH),
        "encoder_v2": (networks.BertEncoderV2, None),
        "albert": (networks.AlbertEncoder, WIDTH),
    }
    for name, (kind, width) in kinds.items():
        encoder = make_encoder(kind, width)
        encoder(encoder.inputs)
        randomize(encoder)
        write(name, outputs_of(encoder), **{"model" if name == "encoder" else "encoder": encoder})


def write_pretrainer():
    """The masked-LM task's: the next-sentence head has a pooler of its own."""
    head = layers.ClassificationHead(HIDDEN, 2, name="next_sentence")
    encoder = make_encoder(networks.BertEncoderV2)
    model = models.BertPretrainerV2(encoder, gelu, classification_heads=[head])
    more = {"masked_lm_positions": POSITIONS_TO_PREDICT}
    outputs_of(model, **more)
    randomize(model)
    outputs = outputs_of(model, **more)
    optimizer = tf_keras.optimizers.legacy.Adam()
    optimizer.apply_gradients((tf.zeros_like(v), v) for v in model.trainable_variables)
    step = tf.Variable(7, dtype=tf.int64)
    write(
        "pretrainer",
        {**outputs, **more},
        model=model,
        optimizer=optimizer,
        global_step=step,
        **model.checkpoint_items,
    )


def write_fine_tuned():
    for name, pooler in (("classifier", True), ("classifier_with_pooler", False)):
        model = models.BertClassifier(
            make_encoder(networks.BertEncoderV2), CLASSES, use_encoder_pooler=pooler
        )
        randomize(model)
        outputs = outputs_of(model)
        optimizer = tf_keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        write(name, outputs, model=model, optimizer=optimizer, **model.checkpoint_items)
    for name, model in {
        "tagger": models.BertTokenClassifier(make_encoder(networks.BertEncoderV2), CLASSES),
        "span_labeler": models.BertSpanLabeler(make_encoder(networks.BertEncoderV2)),
    }.items():
        randomize(model)
        outputs = model({**INPUTS}, training=False)
        outputs = outputs if isinstance(outputs, dict) else dict(zip("se", outputs, strict=True))
        write(name, {k: np.asarray(v) for k, v in outputs.items()}, model=model)


CONFIG = configs.BertConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=HIDDEN,
    num_hidden_layers=2,
    num_attention_heads=HEADS,
    intermediate_size=INNER,
    max_position_embeddings=POSITIONS,
    type_vocab_size=TYPES,
)


def write_converted():
    """A checkpoint of google-research/bert, as Model Garden's own converter writes it."""
    dense = {
        "attention/self/query": (HIDDEN, HIDDEN),
        "attention/self/key": (HIDDEN, HIDDEN),
        "attention/self/value": (HIDDEN, HIDDEN),
        "attention/output/dense": (HIDDEN, HIDDEN),
        "intermediate/dense": (HIDDEN, INNER),
        "output/dense": (INNER, HIDDEN),
    }
    tables = {"word": VOCAB_SIZE, "position": POSITIONS, "token_type": TYPES}
    shapes = {f"bert/embeddings/{k}_embeddings": (n, HIDDEN) for k, n in tables.items()}
    norms = ["bert/embeddings/LayerNorm", "cls/predictions/transform/LayerNorm"]
    layers_of_dense = {"bert/pooler/dense": (HIDDEN, HIDDEN)}
    layers_of_dense["cls/predictions/transform/dense"] = (HIDDEN, HIDDEN)
    for i in range(2):
        scope = f"bert/encoder/layer_{i}"
        norms += [f"{scope}/attention/output/LayerNorm", f"{scope}/output/LayerNorm"]
        layers_of_dense |= {f"{scope}/{name}": shape for name, shape in dense.items()}
    for name, shape in layers_of_dense.items():
        shapes |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    shapes |= {f"{norm}/{x}": (HIDDEN,) for norm in norms for x in ("gamma", "beta")}
    shapes["cls/predictions/output_bias"] = (VOCAB_SIZE,)
    weights = {name: rng.normal(size=n).astype(np.float32) for name, n in shapes.items()}
    scratch = HERE / "scratch"
    scratch.mkdir(exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(scratch / "tf1"),
        tensor_names=list(weights),
        shape_and_slices=[""] * len(weights),
        tensors=list(weights.values()),
    )
    folder = HERE / "converted"
    shutil.rmtree(folder, ignore_errors=True)
    tf2_bert_encoder_checkpoint_converter.convert_checkpoint(
        CONFIG, str(folder / "ckpt"), str(scratch / "tf1"), "model", "pretrainer"
    )
    np.savez(folder / "weights.npz", **weights)
    shutil.rmtree(scratch)


def write_hub_module():
    """A module as on TF Hub, with the masked-LM head; only the name of saved_model.pb is used."""
    config = CONFIG
    encoder = export_tfhub_lib.get_bert_encoder(config)
    model = models.BertPretrainerV2(encoder, gelu)
    more = {"masked_lm_positions": POSITIONS_TO_PREDICT}
    outputs_of(model, **more)
    randomize(model)
    outputs = outputs_of(model, **more)
    scratch = HERE / "scratch"
    scratch.mkdir(exist_ok=True)
    prefix = tf.train.Checkpoint(**model.checkpoint_items).save(str(scratch / "ckpt"))
    vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] The cat dog ##s sat ran on a mat".split()
    vocabulary += [f"w{i}" for i in range(VOCAB_SIZE - len(vocabulary))]
    (scratch / "vocab.txt").write_text("".join(f"{x}\n" for x in vocabulary))
    write("hub", {**outputs, **more})
    export_tfhub_lib.export_model(
        str(HERE / "hub" / "module"),
        bert_config=config,
        model_checkpoint_path=prefix,
        with_mlm=True,
        vocab_file=str(scratch / "vocab.txt"),
        do_lower_case=False,
    )
    shutil.rmtree(scratch)
    (HERE / "hub" / "module" / "saved_model.pb").write_bytes(b"")
    for name in ("keras_metadata.pb", "fingerprint.pb"):
        (HERE / "hub" / "module" / name).unlink()


if __name__ == "__main__":
    write_encoders()
    write_pretrainer()
    write_fine_tuned()
    write_hub_module()
    write_converted()
