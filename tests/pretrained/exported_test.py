"""A model that was exported to ONNX answers as the model in Keras, and without TensorFlow."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.files import checkpoints
from bert_tf.files.model_notes import ModelInput, write_model_input
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, DistilBertConfig, ElectraConfig, RobertaConfig
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings, write_vector_settings
from bert_tf.pretrained.build import new_model
from bert_tf.pretrained.exported import ExportedModel
from bert_tf.pretrained.pooling import POOLINGS
from tests.support import numpy_bert
from tests.support.model_folders import VOCAB
from tests.support.refusals import refusal

pytestmark = pytest.mark.usefixtures("eager")

ROOT = Path(__file__).resolve().parents[2]
SIZES = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
SIZES |= dict(max_position_embeddings=18, type_vocab_size=2)
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
    config, labels = CONFIGS[family], LABELS.get(head)
    if head != "encoder":  # which tests two layers
        config = type(config).from_dict({**config.to_dict(), "num_hidden_layers": 1})
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
    if model.heads:  # the rest does not depend on the head
        return
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
    "multiple_choice": [],
}
ASKED = [
    *(("bert", head) for head in QUESTIONS),
    ("several", "classification"),
    *(("albert", "masked_lm"), ("roberta", "tagging"), ("distilbert", "squad")),
    *(("electra", "classification"), ("electra", "squad")),
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
    heads = [x for x in keras_model.heads if x != "next_sentence"]  # which no method asks for
    assert [*model.heads] == heads and model.config.to_dict() == keras_model.config.to_dict()
    assert model.labels == keras_model.labels
    assert model.max_seq_length == keras_model.max_seq_length
    for ask in [*QUESTIONS[head], lambda m: list(encode_each_way(m))]:
        expected, of_keras = numbers_and_rest(ask(keras_model))
        found, rest = numbers_and_rest(ask(model))
        assert rest == of_keras and expected.size
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


BLOCKED = "tensorflow keras tensorflow_text tensorflow_datasets sklearn scipy ml_dtypes"
PROGRAM = f"""
import json, os, sys

for name in {BLOCKED.split()}:
    sys.modules[name] = None  # so that importing it fails
import bert_tf

shown = lambda x: x.tolist() if hasattr(x, "tolist") else vars(x)
"""


def run_without_tensorflow(code, *arguments):
    """Returns what a program without TensorFlow prints, as JSON."""
    command = [sys.executable, "-c", PROGRAM + textwrap.dedent(code), *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ANSWER = """
    answers = []
    for folder, method, *arguments in json.loads(sys.argv[1]):
        model = bert_tf.load(folder)
        answers += [getattr(model, method)(*arguments), model.encode(["the cat", "b"])]
    print(json.dumps(answers, default=shown))
"""


def test_no_answer_imports_tensorflow(doors, tmp_path):
    albert, place = ROOT / "tests/hugging_face/hub/005", str(tmp_path / "albert")
    export(ExportSettings(input=str(albert), output=place, format="onnx"))
    questions = [
        (*doors("several", "classification"), "classify", TEXTS),
        (*doors("bert", "encoder"), "similarity", TEXTS[0], LONG),
        (*doors("bert", "regression"), "rank", "the cat", TEXTS),
        (*doors("roberta", "tagging"), "tag", LONG),
        (*doors("electra", "squad"), "answer", "a dog", LONG),
        (*doors("albert", "masked_lm"), "fill_mask", "the [MASK] sat"),
    ]
    asked = [(model._folder.path, *question) for _, model, *question in questions]
    asked.append((place, "encode", ["Ünder the (bridge), 12,345 cafés", "ﬁ"]))
    found = run_without_tensorflow(ANSWER, json.dumps(asked))
    expected = []
    models = [*(model for model, *_ in questions), bert_tf.load(albert)]
    for model, (_, method, *arguments) in zip(models, asked, strict=True):
        expected += [getattr(model, method)(*arguments), model.encode(["the cat", "b"])]
    shown = lambda x: x.tolist() if hasattr(x, "tolist") else vars(x)  # noqa: E731
    of_keras = numbers_and_rest(json.loads(json.dumps(expected, default=shown)))
    numbers, rest = numbers_and_rest(found)
    assert rest == of_keras[1]
    np.testing.assert_allclose(numbers, of_keras[0], rtol=0, atol=1e-5)


def test_forks_threads_and_a_folder_that_is_replaced(doors, tmp_path):
    """A model answers in processes that were forked before and after its first answer."""
    _, model = doors("bert", "classification")
    place = tmp_path / "model"
    shutil.copytree(model._folder.path, place)
    code = """
        import shutil
        from concurrent.futures import ThreadPoolExecutor

        model = bert_tf.load(sys.argv[1])
        shutil.rmtree(sys.argv[1])  # the model stays the one that was loaded
        texts = ["the cat sat", "a dog", "on a mat in paris"] * 30

        def answered(leave):
            reading, writing = os.pipe()
            if os.fork() == 0:
                try:
                    answer = answers()
                except bert_tf.UserError as error:
                    answer = str(error)
                os.write(writing, json.dumps(answer).encode())
                leave(0)
            os.close(writing)
            with os.fdopen(reading) as lines:
                answer = json.loads(lines.read())
            assert os.wait()[1] == 0
            return answer

        def answers():
            return [x.probability for x in model.classify(texts)]

        before = answered(sys.exit)
        with ThreadPoolExecutor(8) as pool:
            here = [*pool.map(lambda i: answers(), range(16))]
        print(json.dumps([before, answered(os._exit), *here]))
    """
    first, refused, *others = run_without_tensorflow(code, place)
    assert "after the model had answered there, and ONNX Runtime does not work" in refused
    texts = ["the cat sat", "a dog", "on a mat in paris"]
    expected = [x.probability for x in model.classify(texts)]
    np.testing.assert_allclose(first[:3], expected, rtol=0, atol=1e-6)
    assert len(first) == 90 and len(others) == 16
    for other in others:
        np.testing.assert_allclose(other, first, rtol=0, atol=1e-6)


def test_many_texts_and_a_pickle_and_a_copy(doors):
    _, model = doors("bert", "classification")
    kinds = ["the cat sat", "a dog", "on a mat in paris", ""]
    vectors = model.encode(kinds * 5_000)
    assert vectors.shape == (20_000, 12) and vectors.dtype == np.float32
    expected = np.tile(model.encode(kinds), (5_000, 1))
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-6)
    again = pickle.loads(pickle.dumps(model))
    assert again is not model and again.classify("the cat") == model.classify("the cat")
    assert copy.deepcopy(model).max_seq_length == model.max_seq_length


def change(**keys):
    """Returns a function that changes or, with None, deletes keys of export.json."""

    def act(folder):
        content = {**json.loads((folder / "export.json").read_text()), **keys}
        kept = {name: value for name, value in content.items() if value is not None}
        (folder / "export.json").write_text(json.dumps(kept))

    return act


def remove(name):
    return lambda folder: (folder / name).unlink()


def damage(folder):
    content = bytearray((folder / "model.onnx").read_bytes())
    content[-100] ^= 1
    (folder / "model.onnx").write_bytes(content)


def add_word(folder):
    (folder / "vocab.txt").write_text("\n".join([*VOCAB, "zebra"]) + "\n")


def fix_shape(folder):
    signatures = json.loads((folder / "export.json").read_text())["signatures"]
    signatures["serving_default"]["inputs"]["input_ids"]["shape"] = [None, 8]
    change(signatures=signatures)(folder)


# What is done to a folder, options of `load`, and the message.
REFUSED = [
    (change(vectors=None), {}, "this version of tools.export, or is damaged (KeyError('vectors"),
    (change(format="saved_model"), {}, "in the format 'saved_model'; load reads only models"),
    (fix_shape, {}, "was exported with a fixed --batch_size or --seq_length"),
    (damage, {}, "it is damaged, or from a different export. Export the model again"),
    (lambda f: (f / "model.onnx").write_bytes(b"theirs"), {}, "is not the file that tools.export"),
    (remove("export.json"), {}, "must have a model: a checkpoint (PREFIX.index, PREFIX.data-0"),
    (remove("vocab.txt"), {}, "must have the vocabulary that tools.export wrote"),
    (add_word, {}, f"it has {V + 1} tokens, but vocab_size of "),
    (remove("bert_config.json"), {}, "must have the model's configuration"),
    (None, {"num_threads": 0}, "num_threads must be from 1 to 2147483647; received 0 (int)"),
    (None, {"num_threads": "2"}, "num_threads must be a whole number (int), or None"),
    (None, {"dtype": "bfloat16"}, "which has its own dtype; leave out 'dtype'"),
    (None, {"vocab_file": "v"}, "which has its own vocab_file"),
    (None, {"max_seq_length": 19}, "max_seq_length must be from 4 to 18, max_position"),
]


def test_what_load_refuses(doors, tmp_path):
    keras_model, model = doors("bert", "classification")
    for number, (act, options, message) in enumerate(REFUSED):
        folder = shutil.copytree(model._folder.path, tmp_path / f"{number}")
        if act:
            act(folder)
        assert message in refusal(bert_tf.load, folder, **options)
    told = refusal(bert_tf.load, keras_model._folder.path, num_threads=2)
    assert "num_threads is for exported models; " in told


def test_a_vocabulary_that_lost_its_end_is_warned_of(doors, tmp_path, warnings):
    _, model = doors("bert", "classification")
    folder = shutil.copytree(model._folder.path, tmp_path / "model")
    (folder / "vocab.txt").write_text("\n".join(VOCAB[:-2]) + "\n")
    bert_tf.load(folder)
    (text,) = warnings
    assert f"vocab.txt has {V - 2} tokens, and vocab_size of " in text and f" is {V}: " in text


NEEDS_WEIGHTS = "needs the model with its weights"


def test_what_an_exported_model_cannot_do(doors):
    _, model = doors("bert", "classification")
    for message, method, *arguments in (
        (f"fit {NEEDS_WEIGHTS}", "fit", TEXTS, [0, 1]),
        (f"save {NEEDS_WEIGHTS}", "save", "there"),
        (f"predict {NEEDS_WEIGHTS}", "predict", TEXTS),
        (f"for_tagging {NEEDS_WEIGHTS}", "for_tagging"),
        ("attention needs the model itself; ", "attention", "the cat"),
        ("tag needs a model with the head that run_tagging.py trains", "tag", "the cat"),
        ("pooling must be one of mean, cls, pooled", "encode", "the cat", "median"),
    ):
        assert message in refusal(getattr(model, method), *arguments)


def test_what_needs_a_package(doors):
    keras_model, model = doors("bert", "classification")
    code = """
        sys.modules["onnxruntime"] = None
        messages = []
        for folder in sys.argv[1:]:
            try:
                bert_tf.load(folder)
            except bert_tf.UserError as error:
                messages.append(str(error))
        print(json.dumps(messages))
    """
    folders = model._folder.path, "gs://bucket/model", keras_model._folder.path, "no/such"
    runtime, bucket, weights, missing = run_without_tensorflow(code, *folders)
    assert "model.onnx needs onnxruntime; run `pip install onnxruntime`" in runtime
    assert "gs://bucket/model is read by TensorFlow, which is not installed. Copy" in bucket
    assert "is not an exported model (export.json is missing), so it needs TensorFlow" in weights
    assert missing == f"no/such: there is no such folder in {os.getcwd()}"
