"""Ids and input made in a graph are the reference tokenizer's, for every text and vocabulary."""

import functools
import json
import os
import random
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import tokenization
from bert_tf.export import unicode_tables
from bert_tf.export.piece_trie import PieceTrie
from bert_tf.export.text_inputs import TextInputs, TextSymbols, TextToIds
from bert_tf.export.unicode_tables import SPACE
from bert_tf.pretrained import text_input
from bert_tf.tasks.squad import features
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.fuzz.fuzz_tokenizers import random_text
from tests.support.golden import needs_golden
from tests.support.refusals import refusal
from tests.text.fast_tokenization_test import random_tokens, text_of

TOKENS = "[UNK] [CLS] [SEP] [MASK] a b c ab un able ##a ##b ##able . , \u9db4 \u03c2 ##\u03c2"
FEW = {token: 11 * i + 5 for i, token in enumerate(TOKENS.split())}
NAMES = ("input_ids", "input_mask", "segment_ids")
TOKENIZER = FastTokenizer(FEW)
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
CLS, SEP, MASK, A, B, AB = (FEW[token] for token in ("[CLS]", "[SEP]", "[MASK]", "a", "b", "ab"))


@pytest.fixture(scope="module")
def inputs():
    """Makes input of up to 12 word pieces."""
    return TextInputs(TOKENIZER, 12)


def random_texts(seed: int, number: int, words: str, most: int) -> list[str]:
    rng = random.Random(seed)
    choices = [space + word for space in (" ", "") for word in words.split()]
    return ["".join(rng.choices(choices, k=rng.randrange(most))) for _ in range(number)]


def check_rows(found: dict[str, tf.Tensor], rows: list[dict[str, list[int]]]) -> None:
    """Compares with rows that are not padded."""
    length = max(len(row["input_ids"]) for row in rows)
    for name in NAMES:
        assert found[name].dtype == tf.int32
        padded = [row[name] + [0] * (length - len(row[name])) for row in rows]
        np.testing.assert_array_equal(found[name], padded)


def test_inputs_by_hand(inputs):
    found = inputs(tf.constant(["a b", "ab"]), tf.constant(["ab", " "]))
    assert {name: value.numpy().tolist() for name, value in found.items()} == {
        "input_ids": [[CLS, A, B, SEP, AB, SEP], [CLS, AB, SEP, 0, 0, 0]],
        "input_mask": [[1] * 6, [1, 1, 1, 0, 0, 0]],
        "segment_ids": [[0, 0, 0, 0, 1, 1], [0] * 6],
    }


WORDS = "a b ab unable . \u9db4 x\u03a3 \u0301 AbA unabx"


def test_inputs_of_texts(inputs):
    texts = ["", *random_texts(1, 300, WORDS, 14)]
    check_rows(inputs(tf.constant(texts)), text_input.encode(texts, TOKENIZER, 12))
    check_rows(inputs(tf.constant([""])), text_input.encode([""], TOKENIZER, 12))
    none = tf.constant([], tf.string)
    for found in (inputs(none), inputs(none, none), inputs.masked(none)):
        assert all(found[name].shape[0] == 0 for name in NAMES)
    two, one = tf.constant(["a", "b"]), tf.constant(["a"])
    told = refusal(inputs, two, one, kind=tf.errors.InvalidArgumentError)
    assert "as many first texts as second texts" in told


@pytest.mark.parametrize("max_seq_length", [3, 4, 5, 12, 13])
def test_inputs_of_pairs(inputs, max_seq_length, monkeypatch):
    first, second = random_texts(2, 500, WORDS, 14), random_texts(3, 500, WORDS, 14)
    rows = text_input.encode(list(zip(first, second, strict=True)), TOKENIZER, max_seq_length)
    monkeypatch.setattr(inputs, "max_seq_length", max_seq_length)
    check_rows(inputs(tf.constant(first), tf.constant(second)), rows)


def test_masks(inputs, monkeypatch):
    texts = random_texts(4, 600, "[MASK] a unable. [MASK] [mask] [MA SK] [[MASK]] x\u03a3", 9)
    texts = [text for text in texts if "[MASK]" in text]
    monkeypatch.setattr(inputs, "max_seq_length", 40)
    found = inputs.masked(tf.constant(texts))
    rows = text_input.encode_masks(texts, TOKENIZER, 40)
    check_rows(found, rows)
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
    unknown = FEW["[UNK]"]
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
    vocab = {token: token_id for token, token_id in FEW.items() if token != "[MASK]"}
    without = TextInputs(FastTokenizer(vocab), 8)
    assert "has no [MASK]" in refusal(without.masked, tf.constant(["a"]))


def test_inputs_of_questions(inputs):
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
    check_rows(found, rows)


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


# One of each kind: letters, final and other sigma, marks that are kept (\u302e and \u302f of class
# 224, \u1b44 and \u1bf2 of class 9), punctuation, ideographs, jamo, an emoji with its modifier.
PIECES = (
    "a b e i n s t un able \u00e9 \u00df \u03c3 \u03c2 \u1100 \u1161 \u11a8 \u304b \u9db4 \u8c48"
    " . - ' [ ] $ mask cls \U0001f44d \U0001f3fd \u302e \u302f \u1b44 \u1bf2 \u1b44\u302e"
    " \u1bf2\u1b44 \uac00 A \u00c9 \u03a3 \u0130 \u0307"
).split()
IDS = random.Random(0).sample(range(3, 9000), 2 * len(PIECES) + 1)
VOCAB = dict(zip(["[UNK]", *PIECES, *(f"##{piece}" for piece in PIECES)], IDS, strict=True))
CASINGS = pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])


@functools.cache
def to_ids(do_lower_case: bool) -> TextToIds:
    return TextToIds(FastTokenizer(VOCAB, do_lower_case))


def without_surrogates(text: str) -> str:
    return text.encode("utf-8", "ignore").decode()


def check(module: TextToIds, vocab: dict, do_lower_case: bool, texts: list[str | bytes]) -> None:
    reference = tokenization.FullTokenizer(vocab, do_lower_case)
    found = module(tf.constant(texts, tf.string))
    assert found.dtype == tf.int32 and found.shape.as_list() == [len(texts), None]
    for text, ids in zip(texts, found.to_list(), strict=True):
        assert ids == reference.convert_tokens_to_ids(reference.tokenize(text)), ascii(text)


# A rule -> texts, with | between them.
TEXTS = {
    "nothing": "| |\t\n\r|\0|\ufffd|\u200b\u00ad\x7f\x85|\u0301|\u0301 a",
    "space": " a|b |a\tb|a\u2028b\u2029e|a\x1cb\x0bc\x0cd|a\u3000b\u00a0e\u1680i",
    # The sigma is final after a cased letter and before none; marks and full stops do not count.
    "sigma": "\u03a3|a\u03a3|a\u03a3b|\u03a3a|a\u03a3 b|a \u03a3|\u03a3\u03a3\u03a3",
    "sigma and marks": "a\u0301\u03a3|a\u03a3\u0301|a\u03a3\u0301b|a\u03a3.b|a.\u03a3.",
    "sigma and modifiers": "a\u03a3\u02b0b|a\u02b0\u03a3|a\u03a3-b|a'\u03a3'|1\u03a3",
    "sigma and controls": "a\0\u03a3\u200bb|a\u03a3\0|a\u03a3\x1cb|a\x85\u03a3",
    "sigma and words": "a\u03a3\u9db4b|a\u9db4\u03a3|a\u2028\u03a3|\u03a3\u2029a",
    "sigma and texts": "ab\u03a3|b\u03a3|a",
    "special casing": "\u0130|a\u0130b|\u0130\u03a3|I\u0307|\u212b\u1e9e\ufb01|\u1e9b\u0323",
    "Hangul": "\uac00\uac01|\u1100\u1161\u11a8|\ud7a3|a\uac01b",
    # Kept marks change places with each other. What is dropped stays between them if its class is 0
    # (\u034f, \ufe0f), else it does not.
    "marks": "\u302e\u1b44|a\u302e\u1b44|a\u302f\u302e|a\u302e\u302f\u1b44b|a\u302eb\u1b44",
    "dropped marks": "a\u302e\u034f\u1b44|a\u302e\ufe0f\u1b44|a\u302e\u0301\u1b44\u1bf2",
    "marks and words": "a\u302e \u1b44|a\u302e.\u1b44|\u9db4\u302e\u1b44|a\u302e\0\u1b44",
    "other marks": "\u302e\U0001d165\u1b44|a\u034fb|a\u0903\u302e\u1b44b|\u0f73a|a\u0344b",
    "ideographs": "a\u9db4\u8c48b|\uf900|a\U0002f800\u0301b|\u304b\u3099|\u304c",
    "pieces": "unable|Unable|unablex a|xunable|[MASK]|a$b-e'i|##a|a##b",
    "symbols": "\U0001f44d\U0001f3fd|a\U0001f3fd|\u037e|\u1fef|\u00b4a|\u2126\u03a3",
}
LONGEST = ["\u0301a" * 200, "\uac01" * 67, "a" * 200 + ".b", "a" * 201 + "\u9db4b"]
LONGEST += [char * count for char in ("a", "\u00c9", "\u0130") for count in (200, 201)]
RULES = {rule: texts.split("|") for rule, texts in TEXTS.items()} | {"longest": LONGEST}


@CASINGS
def test_rules_one_by_one(do_lower_case):
    for texts in RULES.values():
        check(to_ids(do_lower_case), VOCAB, do_lower_case, texts)


def test_ids_by_hand():
    """In letters, so that a mistake in `check` would show."""
    texts = ["\u00c9a\u03a3 \u03a3un\u9db4", "x ABLE", "", "a\u302e\u1b44"]
    names = {token_id: token for token, token_id in VOCAB.items()}
    found = [[names[x] for x in ids] for ids in to_ids(True)(tf.constant(texts)).to_list()]
    assert found == [
        ["e", "##a", "##\u03c2", "\u03c3", "##un", "\u9db4"],
        ["[UNK]", "able"],
        [],
        ["a", "##\u1b44\u302e"],
    ]
    assert to_ids(True)(tf.constant([], tf.string)).to_list() == []


@CASINGS
def test_bytes_that_are_not_utf8_are_ignored(do_lower_case):
    rng = random.Random(1)
    ill_formed = "61ff62 e282 61e28262 eda08061 c08062 f490808069 efbbbf61 61808062 f09f91 f09f9161"
    texts = [bytes.fromhex(text) for text in ill_formed.split()]
    for _ in range(3000):
        text = bytearray("".join(rng.choices([*PIECES, " "], k=5)).encode())
        for _ in range(3):
            byte = rng.choice(b"\x80\xbf\xc2\xe0\xed\xf0\xf4\xff")
            text.insert(rng.randrange(len(text) + 1), byte)
            del text[rng.randrange(len(text))]
        texts.append(bytes(text))
    check(to_ids(do_lower_case), VOCAB, do_lower_case, texts)


@CASINGS
@pytest.mark.parametrize("number", [500, pytest.param(9000, marks=pytest.mark.slow)])
def test_random_texts(number, do_lower_case):
    rng = random.Random(number)
    texts = [random_text(rng) for _ in range(number)]
    texts += [without_surrogates(text_of(rng, PIECES)) for _ in range(number // 9)]
    check(to_ids(do_lower_case), VOCAB, do_lower_case, texts)


@pytest.fixture
def untraced():
    """Tracing takes longer than one call."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize(
    "seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_random_vocabularies(seed, untraced):
    rng = random.Random(seed)
    alphabet = [list("abAB"), list("a\u03a3\u03c3\u03c2"), list("abcde.# "), PIECES][seed]
    tokens = random_tokens(rng, alphabet) + ["x" * 1_000_000]
    vocab = {token: 7 * i + 2 for i, token in enumerate(tokens)}
    texts = [without_surrogates(text_of(rng, alphabet)) for _ in range(200)]
    texts += [random_text(rng) for _ in range(100)]
    do_lower_case = seed % 2 == 0
    check(TextToIds(FastTokenizer(vocab, do_lower_case)), vocab, do_lower_case, texts)


def test_a_vocabulary_of_nothing_but_unk_and_one_without(untraced):
    module = TextToIds(FastTokenizer({"[UNK]": 8}))
    assert module(tf.constant(["a b", "", "[UNK]"])).to_list() == [[8, 8], [], [8, 8, 8]]
    with pytest.raises(KeyError, match="UNK"):
        TextToIds(FastTokenizer({"a": 0}))


def test_more_edges_than_32_bits_can_number():
    """Many characters times many nodes, as in a vocabulary of all languages."""
    letters = {"a": 2, "b": 2**30}
    trie = PieceTrie({"ab": 4, "##b": 3, "a": 6}, letters, unknown_id=9, max_input_chars_per_word=4)
    texts = ["ab abb", "aa", "abbb abbbb a"]
    symbols = [[*(letters.get(char, SPACE) for char in text), SPACE] for text in texts]
    compiled = tf.function(trie, autograph=False)
    found = compiled(tf.constant(sum(symbols, [])), np.cumsum([0, *map(len, symbols)]))
    assert found.to_list() == [[4, 4, 3], [9], [4, 3, 3, 9, 6]]


@needs_golden
@CASINGS
def test_ids_are_the_originals(do_lower_case):
    golden = Path(os.environ["BERT_TF_GOLDEN"])
    name = "uncased" if do_lower_case else "cased"
    lines, expected = (
        [json.loads(line) for line in (golden / "text" / f"{part}.jsonl").open(encoding="utf-8")]
        for part in ("lines", name)
    )
    vocab = tokenization.load_vocab(str(golden.parent / "released" / "vocab_uncased.txt"))
    found = TextToIds(FastTokenizer(vocab, do_lower_case))(tf.constant(lines)).to_list()
    assert len(lines) > 4000
    assert [line for line, a, b in zip(lines, found, expected, strict=True) if a != b] == []


def words_of(module: TextSymbols, letters: dict[str, int], texts: list[str]) -> list[list[str]]:
    chars = {symbol: char for char, symbol in letters.items()} | {unicode_tables.SPACE: " "}
    symbols, row_splits = module(tf.constant(texts))
    rows = np.split(symbols.numpy(), row_splits.numpy()[1:-1])
    return ["".join(map(chars.__getitem__, row.tolist())).split() for row in rows]


@pytest.mark.parametrize("step", [83, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
@CASINGS
def test_every_code_point(do_lower_case, step):
    """On its own, and between letters on both sides of a sigma.

    Surrogates are left out, since UTF-8 lacks them. Every output character has its own symbol.
    """
    points = [
        point
        for point in range(0, 0x110000, step)
        # One of ten will do of those that are private or not assigned.
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
        or point % 10 == 3
        and not 0xD800 <= point < 0xE000
        and point < 0x32000
    ]
    texts = [f"{c} A{c}\u03a3 A\u03a3{c}B" for c in map(chr, points)]
    basic = tokenization.BasicTokenizer(do_lower_case)
    expected = [basic.tokenize(text) for text in texts]
    letters = unicode_tables.letters_of(word for words in expected for word in words)
    assert words_of(TextSymbols(letters, basic), letters, texts) == expected


def test_tables_are_made_once_for_equal_rules():
    def table(**switches):
        rules = unicode_tables.Rules.of(tokenization.BasicTokenizer(**switches))
        return unicode_tables.symbol_strings(("a", "b"), rules)

    assert table(hugging_face=True) is table(hugging_face=True)
    assert table(hugging_face=True) is not table(hugging_face=True, drop_category_c=True)
