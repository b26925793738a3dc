"""A model that was exported to ONNX answers as the model in Keras, and without TensorFlow."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.files import checkpoints
from bert_tf.files.model_notes import ModelInput, write_model_input
from bert_tf.hugging_face.vector_settings import VectorSettings, write_vector_settings
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, DistilBertConfig, ElectraConfig, RobertaConfig
from bert_tf.pretrained.build import new_model
from bert_tf.pretrained.exported import ExportedModel
from bert_tf.pretrained.pooling import POOLINGS
from tests.support import numpy_bert
from tests.support.model_folders import VOCAB

ROOT = Path(__file__).resolve().parents[2]
SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 18,
    "type_vocab_size": 2,
}
V = len(VOCAB)
SEVERAL = {"problem_type": "multi_label_classification", "threshold": 0.4}
CONFIGS = {
    "bert": BertConfig(V, **SIZES),
    "several": BertConfig(V, **SIZES, **SEVERAL),
    "albert": AlbertConfig(V, **SIZES, embedding_size=8),
    "roberta": RobertaConfig(V, **{**SIZES, "type_vocab_size": 1}, pad_token_id=0),
    "distilbert": DistilBertConfig(V, **SIZES),
    "electra": ElectraConfig(V, **SIZES, embedding_size=8),
}
LABELS = {
    "classification": ["contradiction", "neutral", "entailment"],
    "tagging": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
}
VECTORS = VectorSettings(
    poolings=("mean", "max"),
    normalize=True,
    do_lower_case=True,
    prompt="on a ",
    include_prompt=False,
    truncate_dim=17,
    prompts=(("query", "the cat "),),
)
LONG = "the cat sat on the mat . paris is in france , a dog ran ( unaffable ) on the mat . " * 2
TEXTS = ["The cat sat.", "a dog ran on a mat", LONG, ""]
PAIRS = [("the cat", "a dog ran"), (LONG, "paris"), ("paris is", LONG)]


def write_folder(folder: Path, family: str, head: str) -> str:
    """Writes a folder with a model of random weights and returns its path."""
    config, labels = CONFIGS[family], LABELS.get(head)
    model = new_model("" if head == "encoder" else head, config, len(labels or ".") or 1)
    shapes = {variable.path: tuple(variable.shape) for variable in model.variables}
    weights = numpy_bert.random_weights(shapes, seed=3)
    folder.mkdir(parents=True)
    checkpoints.write(str(folder / "bert_model.ckpt"), weights)
    is_albert = isinstance(config, AlbertConfig)
    name = "albert_config.json" if is_albert else "bert_config.json"
    (folder / name).write_text(config.to_json_string())
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    if labels:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    length = {"long_text": "max", "window_stride": 5} if head == "regression" else {}
    write_model_input(str(folder), ModelInput(None, 14, **length))
    if head == "encoder":
        write_vector_settings(str(folder), VECTORS, config.hidden_size)
    return str(folder)


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """Returns a function: family, head -> the model in Keras, and its export without Keras."""
    known = {}

    def get(family, head):
        if (family, head) not in known:
            root = tmp_path_factory.mktemp(f"{family}_{head}")
            source = write_folder(root / "model", family, head)
            output = str(root / "onnx")
            export(ExportSettings(input=source, output=output, format="onnx", head=head))
            known[family, head] = bert_tf.load(source), bert_tf.load(output, num_threads=1)
        return known[family, head]

    return get


def encode_each_way(model):
    yield model.encode(TEXTS)
    yield model.encode(PAIRS, long_text="mean", window_stride=3)
    yield model.encode("the cat", normalize=True, prompt="", truncate_dim=5)
    for pooling in POOLINGS:
        if pooling != "pooled" or model.config.has_pooler:
            yield model.encode(TEXTS, pooling, prompt="query", truncate_dim=12)
    yield model.similarity(TEXTS[0], TEXTS[1])


# Head -> what a model with the head is asked.
QUESTIONS = {
    "encoder": [],
    "classification": [
        lambda m: m.classify(TEXTS),
        lambda m: m.classify(PAIRS[0]),
        lambda m: m.classify(LONG, long_text="mean", window_stride=4),
        lambda m: m.classify(TEXTS[:3], labels=["cat", "dog"]),
        lambda m: m.classify(TEXTS[0], labels=["cat", "dog"], multi_label=True),
        lambda m: m.rank("the cat", TEXTS[:3], positive="entailment", top_k=2),
    ],
    "regression": [
        lambda m: m.classify(TEXTS),
        lambda m: m.rank("the cat", TEXTS[:3]),
        lambda m: m.classify(LONG, long_text="cut"),
    ],
    "tagging": [lambda m: m.tag(TEXTS), lambda m: m.tag(LONG, "max", window_stride=4)],
    "squad": [
        lambda m: m.answer("the cat", LONG, top_k=3, doc_stride=4),
        lambda m: m.answer(["dog", "cat"], LONG, null_score_diff_threshold=0.0, doc_stride=4),
        lambda m: m.answer("cat", LONG, method="transformers", doc_stride=2),
    ],
    "masked_lm": [lambda m: m.fill_mask(["the [MASK] sat on [MASK] .", "[MASK]"], top_k=4)],
}
ASKED = [
    *((("bert"), head) for head in QUESTIONS),
    ("several", "classification"),
    *(("albert", head) for head in ("classification", "masked_lm")),
    *(("roberta", head) for head in ("tagging", "masked_lm")),
    *(("distilbert", head) for head in ("regression", "squad")),
    *(("electra", head) for head in ("classification", "squad")),
]


def numbers_and_rest(answer):
    """Returns the numbers of an answer, and all else of it with its shape."""
    numbers = []

    def walk(value):
        if isinstance(value, np.ndarray):
            numbers.extend(value.ravel().tolist())
            return value.shape
        if isinstance(value, float):
            numbers.append(value)
            return float
        if hasattr(value, "__dataclass_fields__"):
            return {name: walk(x) for name, x in vars(value).items()}
        if isinstance(value, dict):
            return {name: walk(x) for name, x in value.items()}
        return [walk(x) for x in value] if isinstance(value, list | tuple) else value

    rest = walk(answer)
    return np.array(numbers), rest


@pytest.mark.parametrize(("family", "head"), ASKED)
def test_every_method_gives_the_answers_of_keras(doors, family, head):
    keras_model, model = doors(family, head)
    assert isinstance(model, ExportedModel)
    kept = "heads labels max_seq_length".split()
    for name in kept:
        expected = getattr(keras_model, name)
        if name == "heads":  # no method asks for the next sentence
            expected = tuple(x for x in expected if x != "next_sentence")
        assert getattr(model, name) == expected, name
    assert model.config.to_dict() == keras_model.config.to_dict()
    for ask in [*QUESTIONS[head], lambda m: list(encode_each_way(m))]:
        expected, of_keras = numbers_and_rest(ask(keras_model))
        found, rest = numbers_and_rest(ask(model))
        assert rest == of_keras and expected.size
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
