"""Input made in a graph is the library's, made of lists."""

import functools
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.export.text_inputs import TextInputs
from bert_tf.pretrained import text_input
from bert_tf.tasks.squad import features
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.support.refusals import refusal

TOKENS = "[UNK] [CLS] [SEP] [MASK] a b c ab un able ##a ##b ##able . , \u9db4 \u03c2 ##\u03c2"
VOCAB = {token: 11 * i + 5 for i, token in enumerate(TOKENS.split())}
NAMES = ("input_ids", "input_mask", "segment_ids")
TOKENIZER = FastTokenizer(VOCAB)
CORE_OPS = set(
    "AddV2 All Any Assert BroadcastTo Cast ConcatV2 Const Cumsum DenseBincount Equal ExpandDims"
    " Fill FloorDiv FloorMod GatherV2 Greater Identity If Less LessEqual LogicalAnd LogicalNot"
    " LogicalOr LowerBound Max Maximum Minimum Mul Neg NoOp NotEqual Pack PartitionedCall"
    " Placeholder Prod RaggedGather RaggedRange RaggedTensorToTensor Range Reshape SelectV2 Shape"
    " Size Split Squeeze"
    " StatelessIf StatelessWhile StridedSlice StringJoin StringSplitV2 Sub TensorListConcatV2"
    " TensorListReserve TensorListSetItem TensorScatterUpdate Tile TopKV2 Transpose UnicodeDecode"
    " UnicodeTranscode UpperBound Where ZerosLike".split()
)
CLS, SEP, MASK, A, B, AB = (VOCAB[token] for token in ("[CLS]", "[SEP]", "[MASK]", "a", "b", "ab"))


@pytest.fixture(scope="module")
def inputs():
    """Makes input of up to 12 word pieces."""
    return TextInputs(TOKENIZER, 12)


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
    none = tf.constant([], tf.string)
    for found in (inputs(none), inputs(none, none), inputs.masked(none)):
        assert all(found[name].shape[0] == 0 for name in NAMES)
    two, one = tf.constant(["a", "b"]), tf.constant(["a"])
    told = refusal(inputs, two, one, kind=tf.errors.InvalidArgumentError)
    assert "as many texts as second texts" in told


@pytest.mark.parametrize("max_seq_length", [3, 4, 5, 12, 13])
def test_pairs(inputs, max_seq_length, monkeypatch):
    first, second = random_texts(2, 500, WORDS, 14), random_texts(3, 500, WORDS, 14)
    rows = text_input.encode(list(zip(first, second, strict=True)), TOKENIZER, max_seq_length)
    monkeypatch.setattr(inputs, "max_seq_length", max_seq_length)
    check(inputs(tf.constant(first), tf.constant(second)), rows)


def test_masks(inputs, monkeypatch):
    texts = random_texts(4, 600, "[MASK] a unable. [MASK] [mask] [MA SK] [[MASK]] x\u03a3", 9)
    texts = [text for text in texts if "[MASK]" in text]
    monkeypatch.setattr(inputs, "max_seq_length", 40)
    found = inputs.masked(tf.constant(texts))
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
    found = {name: x.numpy().tolist() for name, x in inputs.masked(tf.constant(texts)).items()}
    unknown = VOCAB["[UNK]"]
    assert found["input_ids"] == [
        [CLS, A, MASK, B, SEP],
        [CLS, MASK, MASK, unknown, SEP],
        [CLS, MASK, SEP, 0, 0],
        [CLS, unknown, unknown, unknown, SEP],
        [CLS, SEP, 0, 0, 0],
    ]
    assert found["masked_lm_positions"] == [[2, 0], [1, 2], [1, 0], [0, 0], [0, 0]]
    assert found["masked_lm_weights"] == [[1, 0], [1, 1], [1, 0], [0, 0], [0, 0]]
    assert inputs.masked(tf.constant(["a"]))["masked_lm_positions"].shape == [1, 0]
    found = inputs.masked(tf.constant(["a " * 9 + "[MASK][MASK]", "b [MASK]"]))  # one is cut off
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


def test_masks_need_a_token():
    vocab = {token: token_id for token, token_id in VOCAB.items() if token != "[MASK]"}
    text_inputs = TextInputs(FastTokenizer(vocab), 8)
    assert "has no [MASK]" in refusal(text_inputs.masked, tf.constant(["a"]))


def test_graphs_have_core_operations_only(inputs):
    texts = tf.TensorSpec([None], tf.string)
    for function, count in (
        (inputs.__call__, 1),
        (inputs.__call__, 2),
        (inputs.masked, 1),
        (functools.partial(inputs.question_and_context, max_query_length=5), 2),
    ):
        concrete = tf.function(function, autograph=False).get_concrete_function(*[texts] * count)
        graph = concrete.graph.as_graph_def()
        nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
        assert {node.op for node in nodes} <= CORE_OPS
