"""Tests of signatures: of texts, as bert_tf.load answers; of ids, which are checked."""

import functools
import json
import re
import types
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from tensorflow.errors import InvalidArgumentError

import bert_tf
from bert_tf.export import exporting, onnx_model, running, settings
from bert_tf.export.exporting import export
from bert_tf.export.onnx_graph import OnnxGraph
from bert_tf.export.settings import FORMATS, HEADS, LITERT, ONNX, SAVED_MODEL, ExportSettings
from bert_tf.export.signatures import (
    DEFAULT_SIGNATURE,
    asserted,
    input_specs,
    looked_up,
    text_signatures,
)
from bert_tf.export.text_inputs import TextInputs
from bert_tf.files.model_notes import ModelInput, write_model_input
from bert_tf.model.family import DistilBertConfig
from bert_tf.modeling import BertConfig
from bert_tf.pretrained.build import INPUTS
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.export.exporting_test import run_readme
from tests.support.exported_heads import write_head
from tests.support.model_folders import VOCAB
from tests.support.numpy_bert import assert_near
from tests.support.refusals import refusal

TEXTS = ["the cat sat on a mat .", "Paris's unaffable dogs", "", "the cat " * 40]
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[3], "a dog ran"), (TEXTS[1], TEXTS[3]), ("a", "")]
COLUMNS = {"texts": [a for a, _ in PAIRS], "second_texts": [b for _, b in PAIRS]}


LENGTH = 14  # of the classifier


class Served:
    """An exported model with one head, and the library's model that it came from."""

    def __init__(self, root, head):
        self.head, self.folder = head, str(root / "export")
        source = write_head(root / "model", head, num_layers=1)
        if head == "classification":
            write_model_input(source, ModelInput("pairs", LENGTH))
        export(ExportSettings(input=source, output=self.folder))
        self.model = bert_tf.load(source)
        self.loaded = tf.saved_model.load(self.folder)

    def __call__(self, signature, **texts):
        texts = {name: tf.constant(value) for name, value in texts.items()}
        outputs = self.loaded.signatures[signature](**texts)
        return {name: value.numpy() for name, value in outputs.items()}


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Returns the exported model with a head, made once."""
    return functools.cache(lambda head: Served(tmp_path_factory.mktemp(head), head))


def packed(model, texts):
    """Returns the input of texts and pairs, as the programs pack it, padded to the longest."""
    tokenizer = model.tokenizer
    rows = []
    for text in texts:
        parts = [text] if isinstance(text, str) else text
        a, b = [tokenizer.encode([part])[0].tolist() for part in (*parts, "")[:2]]
        longest = min(model.max_seq_length, len(a) + len(b) + (3 if b else 2))
        rows.append(sequences.truncate_and_pack(a, b, longest, tokenizer.layout))
    pad = functools.partial(keras.utils.pad_sequences, padding="post")
    return {name: pad([row[name] for row in rows]) for name in INPUTS}


def assert_packed(found, expected):
    assert {*found} == {*INPUTS}
    for name in INPUTS:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_model_of_pairs_takes_pairs_of_the_length_that_it_was_trained_with(serve):
    served = serve("classification")
    names = {"serving_default", "pairs", "tokenize", "tokenize_pairs", "ids"}
    assert {*served.loaded.signatures} == names
    expected = np.array([[*c.probabilities.values()] for c in served.model.classify(PAIRS)])
    inputs = packed(served.model, PAIRS)
    assert inputs["input_ids"].shape[1] == LENGTH
    for end in ("", "_pairs"):
        found = served(end.removeprefix("_") or "serving_default", **COLUMNS)
        assert_near(found["probabilities"], expected, 1e-6)
        assert_packed(served(f"tokenize{end}", **COLUMNS), inputs)
    assert_packed(bert_tf.TextFeatures(served.folder)(PAIRS), inputs)
    none = np.array([], str)
    assert served("pairs", texts=none, second_texts=none)["logits"].shape == (0, 3)
    described = json.loads(Path(served.folder, "export.json").read_text())
    assert described["reads"] == "pairs"
    assert described["max_seq_length"] == described["trained_max_seq_length"] == LENGTH
    assert "trained with at most 14 pieces" in Path(served.folder, "README.md").read_text()


def test_signatures_of_other_models():
    tokenizer = FastTokenizer({token: i for i, token in enumerate(VOCAB)})
    text_inputs = TextInputs(tokenizer, 9)
    outputs = lambda inputs: {"values": inputs["input_ids"][:, 0]}  # noqa: E731
    for head, reads, pairs in (
        ("classification", "texts", False),
        ("regression", None, True),
        ("encoder", "texts", True),  # vectors of whichever texts
    ):
        found = text_signatures(head, outputs, text_inputs, VOCAB, reads)
        assert ("pairs" in found) == ("tokenize_pairs" in found) == pairs
        assert [*found["serving_default"].structured_input_signature[1]] == ["texts"]
    model = types.SimpleNamespace(tokenizer=tokenizer, max_seq_length=9)
    for name, texts, arguments in (("", TEXTS, {"texts": TEXTS}), ("_pairs", PAIRS, COLUMNS)):
        arguments = {key: tf.constant(value) for key, value in arguments.items()}
        assert_packed(found[f"tokenize{name}"](**arguments), packed(model, texts))


def test_masked_lm(serve):
    served = serve("masked_lm")
    texts = ["the [MASK] sat on [MASK] mat .", "[MASK] ran", "no mask"]
    found = served("serving_default", texts=texts)
    assert found["tokens"].shape == found["probabilities"].shape == (3, 2, 5)
    for row, masks in enumerate(served.model.fill_mask(texts[:2])):
        for place, fillings in enumerate(masks):
            tokens = [token.decode() for token in found["tokens"][row, place]]
            assert tokens == [filling.token for filling in fillings]
            expected = [filling.probability for filling in fillings]
            assert_near(found["probabilities"][row, place], np.array(expected), 1e-6)
    for row, place in ((1, 1), (2, 0), (2, 1)):
        assert not found["probabilities"][row, place].any()
        assert {*found["tokens"][row, place]} == {b""}
    features = bert_tf.TextFeatures(served.folder)(texts[:2])
    by_ids = served("ids", **features)["logits"]
    assert features["masked_lm_positions"].tolist() == [[2, 5], [1, 0]]
    assert by_ids.shape == (2, 2, len(VOCAB))
    ids = served("tokenize", texts=texts[1:2])["input_ids"]
    assert [VOCAB[i] for i in ids[0]] == ["[CLS]", "[MASK]", "ran", "[SEP]"]


@pytest.mark.slow
def test_encoder_and_regression(serve):
    encoder, regressor = serve("encoder"), serve("regression")
    one = {"texts": TEXTS}
    for texts, arguments, name in ((TEXTS, one, "serving_default"), (PAIRS, COLUMNS, "pairs")):
        assert_near(encoder(name, **arguments)["vectors"], encoder.model.encode(texts), 1e-6)
        expected = np.array(regressor.model.classify(texts))
        assert_near(regressor(name, **arguments)["values"], expected, 1e-6)


@pytest.mark.slow
def test_tagging(serve):
    served = serve("tagging")
    found = served("serving_default", texts=TEXTS[:2])
    expected = packed(served.model, TEXTS[:2])
    tokens = [[token.decode() for token in row] for row in found["tokens"]]
    assert tokens == [[VOCAB[i] for i in row] for row in expected["input_ids"]]
    entities = served.model.tag(TEXTS[0], "none")
    best = found["probabilities"][0, 1:-1].argmax(-1)
    labels = [served.model.labels[i] for i in best[: len(TEXTS[0].split())]]
    assert [label for label in labels if label != "O"] == [entity.label for entity in entities]
    assert entities


@pytest.mark.slow
def test_answers(serve):
    served = serve("squad")
    questions, contexts = ["a cat", "the " * 70], [TEXTS[0], TEXTS[3]]
    found = served("serving_default", questions=questions, contexts=contexts)
    tokens = [[token.decode() for token in row] for row in found["tokens"]]
    assert tokens[0][:12] == "[CLS] a cat [SEP] the cat sat on a mat . [SEP]".split()
    # A question is cut to what leaves room for no context; the original's longest is 64.
    assert tokens[1][:30] == ["[CLS]", *["the"] * 29] and len(tokens[1]) <= 32
    inputs = served("tokenize", questions=questions, contexts=contexts)
    features = bert_tf.TextFeatures(served.folder)
    assert_packed(features([*zip(questions, contexts, strict=True)]), inputs)
    assert "pass pairs (question, context), not 'a cat'" in refusal(features, "a cat")
    by_ids = served("ids", **inputs)
    for name in ("start_logits", "end_logits"):
        assert_near(found[name], by_ids[name], 1e-6)
    assert inputs["segment_ids"][0].tolist()[:12] == [0] * 4 + [1] * 8


@pytest.mark.slow
def test_multiple_choice(serve):
    served = serve("multiple_choice")
    contexts, choices = ["the cat", "a dog ran"], [["sat", "ran on a mat", "is"], ["a", "b", "in"]]
    arguments = {"contexts": contexts, "choices": choices}
    pairs = [(a, choice) for a, row in zip(contexts, choices, strict=True) for choice in row]
    expected = packed(served.model, pairs)
    inputs = served("tokenize", **arguments)
    assert inputs["input_ids"].shape[:2] == (2, 3)
    assert_packed({n: x.reshape(6, -1) for n, x in inputs.items()}, expected)
    features = bert_tf.TextFeatures(served.folder)
    assert_packed(features([*zip(contexts, choices, strict=True)]), inputs)
    for wrong in ("a", [("a", ["b"]), ("a", ["b", "c"])], [("a", "b", "c")], []):
        assert "texts must be a list of (context, [choice" in refusal(features, wrong)
    logits = served.model.model({n: tf.constant(x) for n, x in inputs.items()}).numpy()
    found = served("serving_default", **arguments)
    assert_near(found["logits"], logits, 1e-6)
    assert_near(found["probabilities"].sum(-1), np.ones(2), 1e-6)


@pytest.mark.slow
def test_the_lines_of_the_readme_run(serve):
    hidden = ["bert_tf", "keras", "tensorflow_text"]
    printed = run_readme(hidden, *(serve(head).folder for head in HEADS))
    assert len(printed) == len(HEADS) and all("[" in text for text in printed)


def test_texts_of_another_rank_are_refused(serve):
    for texts in ("a cat", [["a", "cat"], ["the", "dog"]], [[["a"]]]):
        for head, signature, names in (
            *[("masked_lm", name, ["texts"]) for name in ("serving_default", "tokenize")],
            ("classification", "pairs", [*COLUMNS]),
        ):
            for wrong in names:
                arguments = {name: texts if name == wrong else ["a"] for name in names}
                told = refusal(serve(head), signature, kind=InvalidArgumentError, **arguments)
                assert re.search(f"tensor {wrong} .* not compat", told)


CONFIG = BertConfig(vocab_size=50, type_vocab_size=2, max_position_embeddings=20)


class Checked:
    """A model that gives back its inputs after the checks, exported in a format."""

    def __init__(self, folder, kind, head="classification", config=CONFIG):
        specs, check = input_specs(head), looked_up if kind == LITERT else asserted
        path = str(folder / settings.FILES[kind])

        def outputs(features):
            return {f"{k}_out": x + 0 for k, x in check(features, specs, config).items()}

        function = tf.function(lambda **inputs: outputs(inputs), autograph=False)
        signatures = {DEFAULT_SIGNATURE: function.get_concrete_function(**specs)}
        if kind == ONNX:
            graph = OnnxGraph()
            shapes = {name: ["batch", axis] for name, axis in zip(specs, "SSSP", strict=False)}
            given = {name: graph.input(name, np.int32, shape) for name, shape in shapes.items()}
            for name, tensor in onnx_model.checked(graph, given, config).items():
                graph.output(f"{name}_out", tensor, np.int32, shapes[name])
            Path(path).write_bytes(graph.model().SerializeToString())
        elif kind == LITERT:
            exporting.write_litert(path, tf.Module(), signatures, None)
        else:
            tf.saved_model.save(tf.Module(), str(folder), signatures)
        self._run = running.open_exported(str(folder), kind, DEFAULT_SIGNATURE)

    def __call__(self, ids, mask=None, segments=None, positions=None):
        ids = np.array(ids, np.int32)
        mask = np.ones_like(ids) if mask is None else np.array(mask, np.int32)
        segments = 0 * ids if segments is None else np.array(segments, np.int32)
        inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
        if positions is not None:
            inputs["masked_lm_positions"] = np.array(positions, np.int32)
        found = self._run(inputs)
        for name, value in inputs.items():
            np.testing.assert_array_equal(found[f"{name}_out"], value)


@pytest.fixture(scope="module", params=FORMATS)
def kind(request):
    if request.param == ONNX:
        onnxruntime.set_default_logger_severity(4)  # errors are raised, too
    return request.param


@pytest.fixture(scope="module")
def checked(kind, tmp_path_factory):
    return Checked(tmp_path_factory.mktemp(kind), kind)


OF_IDS = "{} must have the shape of input_ids"
RANGE = "{} must be from 0 to {}"


WRONG = [
    # A size of 1 is not repeated, whichever input has it.
    (dict(ids=[[2, 3, 4]], mask=[[1]]), OF_IDS.format("input_mask")),
    (dict(ids=[[2, 3], [4, 5]], mask=[[1, 1]]), OF_IDS.format("input_mask")),
    (dict(ids=[[2, 3], [4, 5]], segments=[[0], [1]]), OF_IDS.format("segment_ids")),
    (dict(ids=[[2], [3]], mask=[[1, 1]]), OF_IDS.format("input_mask")),
    # Numbers out of range: the bounds themselves, and far from them.
    (dict(ids=[[2, -1]]), RANGE.format("input_ids", "49 ; received -1 to 2")),
    (dict(ids=[[2, 50]]), RANGE.format("input_ids", "49 ; received 2 to 50")),
    (dict(ids=[[-(2**31), 0]]), RANGE.format("input_ids", 49)),
    (dict(ids=[[2, 3]], segments=[[0, 7]]), RANGE.format("segment_ids", 1)),
    (dict(ids=[[2, 3]], segments=[[-1, 0]]), RANGE.format("segment_ids", 1)),
    (dict(ids=[[2, 3]], segments=[[0, 2]]), RANGE.format("segment_ids", 1)),
    (dict(ids=[[2, 3]], mask=[[1, 2]]), RANGE.format("input_mask", 1)),
    (dict(ids=[[2, 3]], mask=[[-1, 1]]), RANGE.format("input_mask", 1)),
]


def test_wrong_inputs_are_refused(kind, checked):
    for inputs, message in WRONG:
        checked([[2, 3, 4], [5, 49, 0]], [[1, 1, 1], [1, 1, 0]], [[0, 0, 1], [0, 1, 0]])
        text = refusal(checked, kind=Exception, **inputs).replace("[", "").replace("]", "")
        if kind == LITERT:
            message = "HaveSameShapes" if "shape" in message else "gather index out of bounds"
        elif kind == ONNX and "shape" in message:
            message = "input_mask_and_segment_ids_must_have_the_shape_of_input_ids"
        elif kind == ONNX:
            message = f"{message.split()[0]}_out_of_range"
        assert message in text
        checked([[0, 1]], [[1, 0]], [[1, 1]])  # the next request is not harmed
    for inputs in (dict(ids=[2, 3]), dict(ids=[[[2, 3]]]), dict(ids=[[2, 3]], mask=[1, 1])):
        told = refusal(checked, kind=Exception, **inputs)
        assert re.search("Shape of tensor|Invalid rank|HaveSameShapes|input_dims", told)


def test_positions_of_masks(kind, tmp_path):
    checked, ids = Checked(tmp_path, kind, "masked_lm"), [[2, 3, 4], [5, 6, 0]]
    checked(ids, positions=[[0, 2], [1, 0]])
    for positions in ([[0, 3], [1, 0]], [[0, -1], [1, 0]], [[0, 2]], [[0]] * 3):
        told = refusal(checked, ids, positions=positions, kind=Exception)
        assert "masked_lm_positions" in told or kind == LITERT
    checked([[2]], positions=[[0, 0]])


def test_choices_and_a_model_without_segments(tmp_path):
    config = DistilBertConfig(vocab_size=50, type_vocab_size=2)
    checked, ids = Checked(tmp_path, SAVED_MODEL, "multiple_choice", config), np.ones([2, 3, 4])
    checked(ids, segments=ids * 5)  # ignored by the model
    told = refusal(checked, ids, mask=np.ones([2, 1, 4]), kind=InvalidArgumentError)
    assert "input_mask must have the shape" in told
    told = refusal(checked, ids[0], kind=InvalidArgumentError)
    assert re.search("Shape of tensor .* not compatible", told)
