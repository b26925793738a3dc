"""Tests of what bert_tf.load finds in a folder, and which folders it refuses."""

import json
import os
import pickle
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import checkpoints
from bert_tf.model import layers
from bert_tf.model_folder.hugging_face import conversion
from bert_tf.pretrained.build import build_model
from bert_tf.pretrained.folder import read_folder
from bert_tf.tasks.registry import HEADS
from tests.support.exported_heads import write_head
from tests.support.hugging_face_folders import ENCODER, make_tensors, write_folder
from tests.support.model_folders import CONFIG, random_weights, write_model
from tests.support.numpy_bert import assert_near
from tests.support.refusals import refusal
from tests.support.tokenizer_json import word_piece_json

pytestmark = pytest.mark.usefixtures("eager")

HUGGING_FACE_VOCAB = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##c".replace(" ", "\n")


@pytest.fixture(scope="module")
def weights():
    return random_weights("classifier", seed=1)


@pytest.fixture
def encoder(tmp_path):
    """The path of a folder of Hugging Face's, of an encoder without a pooler."""
    return write_folder(tmp_path / "hf", make_tensors(ENCODER), vocab=HUGGING_FACE_VOCAB)


def edit(path, old, new):
    path.write_text(path.read_text().replace(old, new))


SPOILT = [
    (lambda f: os.remove(f / "bert_config.json"), "must have bert_config.json or .*bert_conf"),
    (lambda f: os.remove(f / "vocab.txt"), r"have vocab.txt or .*load\(..., vocab_file=...\)"),
    (lambda f: edit(f / "vocab.txt", "[PAD]", "1\n2\n3\n[PAD]"), "it has 30 tokens, but "),
    (lambda f: edit(f / "vocab.txt", "[SEP]", "sep"), r"lacks \[SEP\]"),
    (lambda f: edit(f / "bert_config.json", 'n_size": 12', 'n_size": 24'), "the wrong shape"),
    (lambda f: edit(f / "bert_config.json", '_layers": 2', '_layers": 3'), "layer_2.*missing"),
    (lambda f: edit(f / "bert_config.json", '_layers": 2', '_layers": 1'), "is 1, but.* 2 la"),
    (lambda f: edit(f / "labels.txt", "yes\n", ""), "each of the 3 classes .* names 2: "),
    (lambda f: (f / "model.safetensors").write_bytes(b""), "has model.safetensors and a "),
    (lambda f: (f / "other.index").write_bytes(b""), "choose one of bert_model.ckpt, other"),
    (lambda f: os.remove(f / "bert_model.ckpt.index"), "must have a model: .*'bert_con"),
    (lambda f: os.remove(f / "bert_model.ckpt.data-00000-of-00001"), "not found: "),
]


def test_a_folder_that_does_not_fit_is_refused(tmp_path, weights):
    for number, (spoil, message) in enumerate(SPOILT):
        folder = tmp_path / f"{number}"
        write_model(folder, weights, ["no", "maybe", "yes"])
        spoil(folder)
        told = refusal(bert_tf.load, str(folder))
        assert re.search(message, told) and str(folder) in told
        assert "\n" not in told and len(told) <= 500


def test_other_arguments_and_weights_that_are_refused(tmp_path, weights):
    empty, plain = str(tmp_path / "empty"), write_model(tmp_path / "model", weights)
    os.mkdir(empty)
    nan = {**weights, "bert/pooler/dense/bias": np.full(12, np.nan, np.float32)}
    for path, length, message in (
        (None, None, "must be a path; received None"),
        ("", None, "folder must be a path; received ''"),
        (f"{empty}/none", None, "there is no such folder, and no checkpoint with that prefix$"),
        ("tests/none", None, f"no checkpoint with that prefix in {os.getcwd()}$"),  # no hub's name
        (empty, None, "it has no files"),
        (write_model(tmp_path / "nan", nan), None, "number, but .* in bert/pooler"),
        (plain, 33, "from 4 to 32, .* received 33 .int.$"),
        (plain, 0, "from 4 to 32, .* received 0 .int.$"),
    ):
        assert re.search(message, refusal(bert_tf.load, path, max_seq_length=length))


@pytest.mark.parametrize("name", ["bert-base-uncased", "google/electra.small_v2", "my_model"])
def test_a_name_on_hugging_face_is_told_how_to_get_it(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert refusal(bert_tf.load, name) == (
        f"{name}: there is no such folder, and no checkpoint with that prefix in {tmp_path}."
        " Nothing is downloaded: if it is a model on huggingface.co, run `pip install"
        f" huggingface_hub` and `hf download {name} --local-dir {name}`, then give the folder"
    )


def test_an_argument_of_another_type_is_refused(tmp_path, weights):
    folder = write_model(tmp_path, weights)
    for name, value, message in (
        ("do_lower_case", "False", "be True or False, or None, which .*; received 'False' .str.$"),
        ("max_seq_length", "16", "a whole number .int., or None, .*; received '16' .str."),
    ):
        assert re.search(message, refusal(bert_tf.load, folder, **{name: value}))


def test_a_single_output_is_a_number_whatever_its_name(tmp_path):
    """But a class of a tagger, or of independent classes."""
    weights = random_weights("regressor")
    for number, labels in enumerate((None, [], ["LABEL_0"], ["stars"])):
        found = read_folder(write_model(tmp_path / f"{number}", weights, labels))
        assert (found.heads[-1], found.labels) == ("regression", ())
    found = read_folder(write_model(tmp_path / "tagger", weights, ["O"]))
    assert (found.heads[-1], found.labels) == ("tagging", ("O",))
    folder = tmp_path / "classifier"
    write_model(folder, weights)
    config = {**CONFIG, "problem_type": "multi_label_classification"}
    (folder / "bert_config.json").write_text(json.dumps(config))
    found = read_folder(str(folder))
    assert (found.heads[-1], found.labels) == ("classification", ("LABEL_0",))
    told = refusal(read_folder, write_model(tmp_path / "two", weights, ["a", "b"]))
    assert "the 1 classes of the model; it names 2: 'a' and 1 more" in told


@pytest.mark.parametrize(
    ("head", "bias", "name"),
    [
        ("classifier", "output_bias", "classification"),
        ("regressor", "output_bias", "regression"),
        ("squad", "cls/squad/output_bias", "answers (SQuAD)"),
        ("squad", "cls/predictions/output_bias", "masked language model"),
    ],
)
def test_a_head_that_was_never_trained_is_warned_of(tmp_path, warnings, head, bias, name):
    weights = random_weights(head)
    built = next(head for head, row in HEADS.items() if row.shown == name)
    trained = write_model(tmp_path / "trained", weights)
    build_model(built, read_folder(trained, max_seq_length=16))
    assert warnings == []
    folder = write_model(tmp_path / "new", weights | {bias: np.zeros_like(weights[bias])})
    build_model(built, read_folder(folder, max_seq_length=16))
    assert warnings == [
        f"{folder}: the bias of the head for {name} is zero, so the head was never trained, and"
        " its answers are meaningless. Fine-tune the model first"
    ]


@pytest.mark.parametrize("lost", [slice(-3, None), slice(7, 8)], ids=["cut off", "a line"])
@pytest.mark.parametrize("kind", ["checkpoint", "safetensors"])
def test_a_vocabulary_that_lost_tokens_is_warned_of(tmp_path, weights, warnings, kind, lost):
    tmp_path /= "model"
    if kind == "checkpoint":
        write_model(tmp_path, weights)
    else:
        words = [*HUGGING_FACE_VOCAB.split("\n"), "d", "e", "f", "g"]
        write_folder(tmp_path, make_tensors(ENCODER), vocab="\n".join(words))
    tokens = (tmp_path / "vocab.txt").read_text().split()
    read_folder(tmp_path)
    assert not any("embeddings are not used" in text for text in warnings)
    kept = [token for token in tokens if token not in tokens[lost]]
    (tmp_path / "vocab.txt").write_text("\n".join(kept) + "\n")
    read_folder(tmp_path)
    (text,) = [text for text in warnings if "embeddings are not used" in text]
    assert f"has {len(kept)} tokens" in text and f" is {len(tokens)}: " in text


def test_a_prefix_other_files_and_the_casing(tmp_path, weights):
    folder = tmp_path / "model"
    write_model(folder, weights)
    model = bert_tf.load(f"{folder}/bert_model.ckpt")
    assert model.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    vector = model.encode("the Cat")
    (folder / "vocab.txt").rename(tmp_path / "other.txt")
    (folder / "bert_config.json").rename(tmp_path / "other.json")
    vocab_file, config_file = (tmp_path / f"other.{kind}" for kind in ("txt", "json"))
    moved = {"vocab_file": vocab_file, "bert_config_file": config_file}
    np.testing.assert_array_equal(bert_tf.load(folder, **moved).encode("the Cat"), vector)
    cased = bert_tf.load(str(folder), do_lower_case=False, **moved)
    assert np.abs(cased.encode("the Cat") - vector).max() > 0.01
    assert "cased," in repr(cased)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    recorded = bert_tf.load(str(folder), **moved)
    np.testing.assert_array_equal(recorded.encode("the Cat"), cased.encode("the Cat"))


def test_a_tokenizer_alone_reads_no_weights(encoder, tmp_path, monkeypatch):
    checkpoint = write_model(tmp_path / "checkpoint", random_weights("classifier"))
    monkeypatch.delattr(conversion, "_deserialize")
    monkeypatch.delattr(checkpoints.CheckpointReader, "read")
    for folder in (encoder, checkpoint):
        assert bert_tf.TextFeatures(folder)(["a b"])["input_ids"].shape == (1, 4)
        preprocessor = bert_tf.Preprocessor(folder, 5, in_graph=False)  # without tables
        assert preprocessor(["a b"])["input_ids"].shape == (1, 5)


def test_the_header_of_a_remote_file_gives_the_same_shapes(encoder, tmp_path):
    remote = f"ram://{tmp_path.name}"
    for name in os.listdir(encoder):
        tf.io.gfile.copy(f"{encoder}/{name}", f"{remote}/{name}", overwrite=True)
    assert conversion.ConvertedModel(remote).shapes == conversion.ConvertedModel(encoder).shapes
    for header in (b"", b"\xff" * 20, b"\x02" + bytes(7) + b"[]", b'\x08\0\0\0\0\0\0\0{"a": 1}'):
        tf.io.gfile.remove(f"{remote}/model.safetensors")  # ram:// keeps the end of a longer file
        with tf.io.gfile.GFile(f"{remote}/model.safetensors", "wb") as file:
            file.write(header)
        assert "is damaged or not a safetensors file" in refusal(conversion.ConvertedModel, remote)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_keeps_no_second_copy_of_its_weights(encoder, monkeypatch, dtype):
    arrays = []

    def in_float32(*args):
        array = read(*args)
        arrays.append(weakref.ref(array))
        return array

    read = conversion._in_float32
    monkeypatch.setattr(conversion, "_in_float32", in_float32)
    model = bert_tf.load(encoder, dtype=dtype)
    name = "bert/encoder/layer_1/output/dense/kernel"
    assert any(x.path == name for x in model.model.variables)
    assert len(arrays) > 20 and all(array() is None for array in arrays)
    again = model._folder.read(name)
    assert model._folder.is_unchanged(next(x for x in model.model.variables if x.path == name))
    assert any(array() is again for array in arrays)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_start_with_nothing_and_each_is_set(encoder, monkeypatch, dtype):
    started = []

    def call(self, shape, dtype):
        started.append(shape)
        return tf.cast(tf.fill(shape, np.nan), dtype)

    monkeypatch.setattr(layers._Unset, "__call__", call)
    model = bert_tf.load(encoder, dtype=dtype).model
    tables, kernels, pooler = 3, 2 * 6, 1
    assert len(started) == tables + kernels + pooler
    for variable in model.variables:  # the folder has no pooler
        assert np.isfinite(variable.numpy().astype(np.float32)).all()
        assert variable.numpy().any() == ("pooler" not in variable.path)


def test_a_run_s_folder_and_its_best(tmp_path, weights):
    """The newest checkpoint counts, or the best if one was kept; best/ has no configuration."""
    folder = tmp_path / "run"
    write_model(folder, weights, ["no", "maybe", "yes"])
    for path in folder.glob("bert_model.ckpt*"):
        path.unlink()
    kept = folder / "kept"
    kept.mkdir()
    other, best = {name: value * 2 for name, value in weights.items()}, kept
    for step, values, place in ((3, other, folder), (5, weights, folder), (3, other, best)):
        slots = {f"{name}/adam_m": value for name, value in values.items()}
        step_of = {"global_step": np.int64(step)}
        checkpoints.write(f"{place}/model.ckpt-{step}", values | slots | step_of)
        (place / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    (kept / "labels.txt").write_text("a\nb\nc\n")
    newest = bert_tf.load(str(folder))
    kept.rename(folder / "best")
    best, of_run, last = (bert_tf.load(str(folder / x)) for x in ("best", "", "model.ckpt-5"))
    expected = bert_tf.load(write_model(tmp_path / "alone", weights)).encode("the cat")
    for model in (newest, last):
        np.testing.assert_array_equal(model.encode("the cat"), expected)
    np.testing.assert_array_equal(of_run.encode("the cat"), best.encode("the cat"))
    assert np.abs(best.encode("the cat") - expected).max() > 0.01
    assert newest.labels == last.labels == ("no", "maybe", "yes")
    assert best.labels == of_run.labels == ("a", "b", "c")
    again = pickle.loads(pickle.dumps(best))
    again._folder.check_unchanged(best.model)
    assert again.labels == best.labels


def test_what_is_not_there_is_refused_with_the_program_that_trains_it(encoder):
    model = bert_tf.load(encoder)
    for message, method, *arguments in (
        ("run_pretraining.py trains; .* has no head", "fill_mask", "[MASK]"),
        ("run_classifier.py", "classify", "a"),
        ("run_squad.py", "answer", "a", "b"),
        ("run_tagging.py", "tag", "a"),
        ("has no pooler, so pooling must", "encode", "a", "pooled"),
    ):
        assert re.search(message, refusal(getattr(model, method), *arguments))
    assert model.encode("a").shape == (6,)
    assert refusal(bert_tf.load, encoder, bert_config_file="other.json") == (
        "bert_config_file must not be given with model.safetensors, whose configuration is"
        f" {encoder}/config.json; received 'other.json'. Leave it out"
    )


def test_padding_of_another_id_than_the_model_s_is_refused(tmp_path, weights):
    folder = write_model(tmp_path, weights)
    config = {**CONFIG, "model_type": "roberta", "pad_token_id": 1}
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    assert refusal(bert_tf.load, folder) == (
        f"{folder}/vocab.txt must be the vocabulary that the model was trained with: [PAD] has the"
        f" id 0, but pad_token_id of {folder}/bert_config.json is 1, and the token of that id would"
        " have no position. Correct whichever is wrong"
    )
    (tmp_path / "bert_config.json").write_text(json.dumps({**config, "pad_token_id": 0}))
    assert read_folder(folder).config.pad_token_id == 0


def test_pairs_need_an_embedding_of_the_second_segment(tmp_path):
    tensors = make_tensors(ENCODER | {"embeddings.token_type_embeddings.weight": (1, 6)})
    source = write_folder(tmp_path / "hf", tensors, HUGGING_FACE_VOCAB, type_vocab_size=1)
    model = bert_tf.load(source)
    assert model.encode(["a", "b c"]).shape == (2, 6)
    told = refusal(model.encode, ["a", ("a", "b")])
    assert re.search("hf does not take pairs of texts: .* segment 1, .* is 1. Give", told)
    assert "hf does not take pairs of texts" in refusal(model.attention, ("a", "b"))


def test_a_head_that_needs_the_pooler_is_refused_without_it(tmp_path):
    for labels, head in ((3, "ForSequenceClassification"), (1, "ForMultipleChoice")):
        shapes = ENCODER | {"classifier.weight": (labels, 6), "classifier.bias": (labels,)}
        tensors, config = make_tensors(shapes, "bert."), {"architectures": [f"Bert{head}"]}
        source = write_folder(tmp_path / head, tensors, HUGGING_FACE_VOCAB, **config)
        told = refusal(bert_tf.load, source)
        assert re.search("2 are missing or .*: 'bert/pooler/dense/kernel: miss", told)


def test_tokenizer_json_instead_of_vocab_txt(encoder):
    vocab = {token: i for i, token in enumerate(HUGGING_FACE_VOCAB.split())}
    content = word_piece_json(dict(reversed(vocab.items())))
    pieces = content["model"]
    plain = bert_tf.load(encoder)
    os.remove(f"{encoder}/vocab.txt")
    path = Path(encoder, "tokenizer.json")
    path.write_text(json.dumps(content))
    model = bert_tf.load(encoder)
    assert model.tokenizer.vocab == vocab and model.tokenizer.do_lower_case
    assert_near(model.encode(["A Bc"]), plain.encode(["a bc"]), 1e-6)
    for change, message in (
        ({"model": {**pieces, "type": "WordLevel"}}, "its model must be .*WordLevel"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "its pre_tokenizer must be .*Whitespace"),
        ({"normalizer": {"type": "Lowercase"}}, "its normalizer must be .*Lowercase"),
        ({"model": {**pieces, "vocab": {"[PAD]": 0, "a": 2}}}, "numbers from 0 to 1, each once"),
        ({"model": {**pieces, "vocab": {"a": 0}}}, r"must have \[PAD\], \[UNK\]"),
    ):
        path.write_text(json.dumps(content | change))
        assert re.search(message, refusal(bert_tf.load, encoder))


def test_a_bias_that_is_no_vector_of_classes(tmp_path, weights):
    for shape in ((), (3, 1), (0,)):
        path = write_model(tmp_path, {**weights, "output_bias": np.zeros(shape, np.float32)})
        assert refusal(read_folder, path) == (
            f"{path}: output_bias must have a number for each class, so its shape must be"
            f" [classes]; it is {list(shape)}. Choose a different checkpoint"
        )


def test_a_multiple_choice_model_has_its_head(tmp_path):
    model = bert_tf.load(write_head(tmp_path, "multiple_choice"))
    assert model.heads == ("multiple_choice",)
    texts = ["the cat sat", "a dog ran"]
    pieces = [model.tokenizer.encode([text])[0].tolist() for text in texts]
    vocab = model.tokenizer.vocab
    ids = np.array([[[vocab["[CLS]"], *row, vocab["[SEP]"]] for row in pieces]], np.int32)
    weights = model.model.head.output_weights.numpy()
    expected = model.encode(texts, pooling="pooled") @ weights[0]
    assert_near(model.model(ids).numpy(), expected[np.newaxis], 1e-5)


PAIRS_MISSING = "on pairs of texts, but 1 of 1 texts are single texts; pass pairs, (a, b)"
INPUTS = [
    ("pairs", "a", PAIRS_MISSING),
    ("pairs", ["a", ("a", "b"), "c"], "on pairs of texts, but 2 of 3 texts are s"),
    ("texts", ("a", "b"), "on single texts, but 1 of 1 texts are pairs"),
    ("texts", [("a", "b"), "a"], "on single texts, but 1 of 2 texts are pairs"),
    ("pairs", [("a", "b")], None),
    ("pairs", [], None),
    ("texts", ["a", "b"], None),
    (None, ["a", ("a", "b")], None),
]


def test_a_classifier_warns_once_of_texts_that_it_was_not_trained_on(tmp_path, weights, warnings):
    path = write_model(tmp_path, weights, ["no", "maybe", "yes"])
    for reads, texts, end in INPUTS:
        content = json.dumps({"reads": reads, "max_seq_length": 9})
        (tmp_path / "model_input.json").write_text(content)
        folder = read_folder(path)
        found = [texts] if isinstance(texts, str | tuple) else texts
        for _ in range(2):
            folder.warn_of_other_input(found)
        assert len(warnings) == (end is not None)
        if end:
            assert end in warnings[0]
            assert warnings.pop().startswith(f"The model of {path} was trained on")
    (tmp_path / "model_input.json").write_text('{"reads": "pairs", "max_seq_length": 9}')
    bert_tf.load(path).classify("a cat")
    assert PAIRS_MISSING in warnings[0]
