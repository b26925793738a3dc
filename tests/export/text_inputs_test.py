"""Input made in a graph is the library's, made of lists."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.export.text_inputs import TextInputs
from bert_tf.pretrained import text_input
from bert_tf.tasks.squad import features
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.export.text_to_ids_test import CORE_OPS

TOKENS = (
    "[UNK] [CLS] [SEP] [MASK] a b c ab un able ##a ##b ##able . , \u9db4 \u03c2 ##\u03c2".split()
)
VOCAB = {token: 11 * i + 5 for i, token in enumerate(TOKENS)}
NAMES = ("input_ids", "input_mask", "segment_ids")
TOKENIZER = FastTokenizer(VOCAB)
OTHER_CORE_OPS = set(
    "All Assert DenseBincount If LessEqual Minimum NoOp PartitionedCall RaggedGather"
    " RaggedTensorToTensor Split StringSplitV2 Transpose UnicodeTranscode ZerosLike".split()
)
CLS, SEP, MASK, A, B, AB = (VOCAB[token] for token in ("[CLS]", "[SEP]", "[MASK]", "a", "b", "ab"))


@pytest.fixture(scope="module")
def inputs():
    """Makes input of up to 12 word pieces."""
    return TextInputs(VOCAB, True, 12)


def random_texts(seed: int, number: int, words: str, most: int) -> list[str]:
    rng = random.Random(seed)
    choices = [space + word for space in (" ", "") for word in words.split()]
    return ["".join(rng.choices(choices, k=rng.randrange(most))) for _ in range(number)]


def check(found: dict[str, tf.Tensor], rows: list[dict[str, list[int]]]) -> None:
    """Compares with rows that are not padded."""
    length = max(len(row["input_ids"]) for row in rows)
    for name in NAMES:
        assert found[name].dtype == tf.int32
        padded = [row[name] + [0] * (length - len(row[name])) for row in rows]
        np.testing.assert_array_equal(found[name], padded)


def test_by_hand(inputs):
    found = inputs(tf.constant(["a b", "ab"]), tf.constant(["ab", " "]))
    assert {name: value.numpy().tolist() for name, value in found.items()} == {
        "input_ids": [[CLS, A, B, SEP, AB, SEP], [CLS, AB, SEP, 0, 0, 0]],
        "input_mask": [[1] * 6, [1, 1, 1, 0, 0, 0]],
        "segment_ids": [[0, 0, 0, 0, 1, 1], [0] * 6],
    }


WORDS = "a b ab unable . \u9db4 x\u03a3 \u0301 AbA unabx"


def test_texts(inputs):
    texts = ["", *random_texts(1, 300, WORDS, 14)]
    check(inputs(tf.constant(texts)), text_input.encode(texts, TOKENIZER, 12))
    check(inputs(tf.constant([""])), text_input.encode([""], TOKENIZER, 12))


@pytest.mark.parametrize("max_seq_length", [3, 4, 5, 12, 13])
def test_pairs(inputs, max_seq_length):
    first, second = random_texts(2, 500, WORDS, 14), random_texts(3, 500, WORDS, 14)
    rows = text_input.encode(list(zip(first, second, strict=True)), TOKENIZER, max_seq_length)
    inputs.max_seq_length, before = max_seq_length, inputs.max_seq_length
    found = inputs(tf.constant(first), tf.constant(second))
    inputs.max_seq_length = before
    check(found, rows)


def test_no_texts(inputs):
    none = tf.constant([], tf.string)
    for found in (inputs(none), inputs(none, none), inputs.masked(none)):
        assert all(found[name].shape[0] == 0 for name in NAMES)


def test_masks(inputs):
    texts = random_texts(4, 600, "[MASK] a unable. [MASK] [mask] [MA SK] [[MASK]] x\u03a3", 9)
    texts = [text for text in texts if "[MASK]" in text]
    inputs.max_seq_length, before = 40, inputs.max_seq_length
    found = inputs.masked(tf.constant(texts))
    inputs.max_seq_length = before
    rows = text_input.encode_masks(texts, TOKENIZER, 40)
    check(found, rows)
    positions, weights = found["masked_lm_positions"].numpy(), found["masked_lm_weights"].numpy()
    assert (positions.dtype, weights.dtype) == (np.int32, np.float32)
    most = max(len(row["masked_lm_positions"]) for row in rows)
    assert positions.shape == weights.shape == (len(texts), most)
    for row, places, weight in zip(rows, positions, weights, strict=True):
        expected = row["masked_lm_positions"]
        assert places.tolist() == expected + [0] * (most - len(expected))
        assert weight.tolist() == [1] * len(expected) + [0] * (most - len(expected))


def test_masks_by_hand(inputs):
    """The sigma at the end of a part is final; bytes within a [MASK] are ignored."""
    texts = [b"a [MASK]b", "[MASK][MASK]\u03a3".encode(), b"[MA\xffSK]", b"[MA\x00SK]", b""]
    found = inputs.masked(tf.constant(texts))
    unknown = VOCAB["[UNK]"]
    assert found["input_ids"].numpy().tolist() == [
        [CLS, A, MASK, B, SEP],
        [CLS, MASK, MASK, unknown, SEP],
        [CLS, MASK, SEP, 0, 0],
        [CLS, unknown, unknown, unknown, SEP],
        [CLS, SEP, 0, 0, 0],
    ]
    assert found["masked_lm_positions"].numpy().tolist() == [[2, 0], [1, 2], [1, 0], [0, 0], [0, 0]]
    assert found["masked_lm_weights"].numpy().tolist() == [[1, 0], [1, 1], [1, 0], [0, 0], [0, 0]]
    assert inputs.masked(tf.constant(["a"]))["masked_lm_positions"].shape == [1, 0]


def test_mask_in_what_is_cut_is_missing(inputs):
    found = inputs.masked(tf.constant(["a " * 9 + "[MASK][MASK]", "b [MASK]"]))
    assert found["masked_lm_positions"].numpy().tolist() == [[10], [2]]
    assert found["masked_lm_weights"].numpy().tolist() == [[1], [1]]


def test_questions(inputs):
    questions = random_texts(5, 300, WORDS, 9)
    contexts = random_texts(6, 300, WORDS, 20)
    found = inputs.question_and_context(tf.constant(questions), tf.constant(contexts), 5)
    rows = []
    for question, context in zip(questions, contexts, strict=True):
        ids, _ = TOKENIZER.encode([question])
        (pieces,) = features.tokenize_contexts([context], TOKENIZER)
        layout = TOKENIZER.layout
        windows = features.make_inputs(ids.tolist()[:5], pieces, 12, 128, layout)
        _, row = next(iter(windows), (None, sequences.pack_pair(ids.tolist()[:5], [], 12, layout)))
        length = sum(row["input_mask"])
        rows.append({name: row[name][:length] for name in NAMES})
    check(found, rows)


def test_numbers_of_texts_must_be_equal(inputs):
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many texts as second texts"):
        inputs(tf.constant(["a", "b"]), tf.constant(["a"]))


def test_masks_need_a_token():
    vocab = {token: token_id for token, token_id in VOCAB.items() if token != "[MASK]"}
    with pytest.raises(UserError, match=r"has no \[MASK\]"):
        TextInputs(vocab, True, 8).masked(tf.constant(["a"]))


@pytest.mark.slow
def test_signatures_of_a_saved_model(inputs, tmp_path):
    """Another process calls them with TensorFlow alone."""
    texts = tf.TensorSpec([None], tf.string, "texts")
    second = tf.TensorSpec([None], tf.string, "second_texts")
    functions = {
        "texts": tf.function(inputs.__call__, [texts]),
        "pairs": tf.function(inputs.__call__, [texts, second]),
        "masked": tf.function(inputs.masked, [texts]),
        "questions": tf.function(
            lambda texts, second_texts: inputs.question_and_context(texts, second_texts, 5),
            [texts, second],
        ),
    }
    signatures = {name: f.get_concrete_function() for name, f in functions.items()}
    for concrete in signatures.values():
        graph = concrete.graph.as_graph_def()
        nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
        assert {node.op for node in nodes} <= CORE_OPS | OTHER_CORE_OPS
    tf.saved_model.save(inputs, str(tmp_path / "model"), signatures)
    first, other = ["unable [MASK] x\u03a3", "a b"], ["\u9db4 b", ""]
    (tmp_path / "texts.json").write_text(json.dumps([first, other]))
    program = (
        "import json, tensorflow as tf\n"
        "first, other = map(tf.constant, json.load(open('texts.json')))\n"
        "signatures = tf.saved_model.load('model').signatures\n"
        "def call(name, *texts):\n"
        "    names = ('texts', 'second_texts')\n"
        "    found = signatures[name](**dict(zip(names, texts)))\n"
        "    return {key: value.numpy().tolist() for key, value in found.items()}\n"
        "print(json.dumps([call('texts', first), call('pairs', first, other),\n"
        "                  call('masked', first), call('questions', first, other)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, other = tf.constant(first), tf.constant(other)
    expected = [
        inputs(first),
        inputs(first, other),
        inputs.masked(first),
        inputs.question_and_context(first, other, 5),
    ]
    assert json.loads(done.stdout) == [
        {name: value.numpy().tolist() for name, value in found.items()} for found in expected
    ]
