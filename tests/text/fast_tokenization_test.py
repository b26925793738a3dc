"""The fast tokenizer gives the reference's ids on every text, with every vocabulary."""

import json
import os
import random
import sys
from pathlib import Path

import pytest

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.text import fast_tokenization
from tests.fuzz.fuzz_tokenizers import random_text
from tests.support.encoded import ids_of_each
from tests.support.golden import needs_golden
from tests.support.pretraining_runs import run_code
from tests.support.refusals import refuses


@pytest.fixture(params=["tensorflow-text", "cache"])
def path(request, monkeypatch):
    """Sends texts of printable ASCII down either path, however few they are."""
    pytest.importorskip("tensorflow_text")
    many = sys.maxsize if request.param == "cache" else 1
    monkeypatch.setattr(fast_tokenization, "_MIN_BATCH", many)
    monkeypatch.setattr(fast_tokenization, "_LOAD_AFTER", 0)


def check(vocab_file, texts: list[str], do_lower_case: bool) -> None:
    fast = fast_tokenization.FastTokenizer(str(vocab_file), do_lower_case)
    reference = tokenization.FullTokenizer(str(vocab_file), do_lower_case)
    assert fast.vocab == reference.vocab and fast.inv_vocab == reference.inv_vocab
    expected = [reference.convert_tokens_to_ids(reference.tokenize(text)) for text in texts]
    for _ in range(2):  # the second time from the cache
        for text, found, wanted in zip(texts, ids_of_each(fast, texts), expected, strict=True):
            assert found == wanted, ascii(text)


def write_vocab(path: Path, tokens: list[str]) -> Path:
    path.write_text("\n".join(tokens), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_text_of_all_kinds(tmp_path, path, do_lower_case):
    pieces = "a b c d e A B . , # [ ] unk \u03c3 \u03c2 \u00e9 \u4e00 \u8c48 \u1100 \U0001f600"
    pieces = pieces.split()
    vocab = ["x", "[UNK]", *pieces, *("##" + piece for piece in pieces), "##"]
    texts = ["", " ", "\t", "\n", "a", "a\tb", "a\nb", "a\x0bb", "\0", "A.b,,c", "abcde", "abcx x"]
    texts += ["[UNK]", "a [UNK] b", "##a", "# #a", "a##b", "##", "a" * 200, "a" * 201]
    texts += ["A" * 200 + ".b", *("\u00e9" * length for length in (101, 200, 201, 20_000))]
    texts += ["\u00c9\u00e9 e\u0301", "a\u00e9\u4e00b c", "\u03a3\u03a3 \u03a3.\u03a3"]
    texts += ["\u4e00\u03a3\u03a3\uf900", "\uac00", "\ud800a", "a\u200bb"]
    texts += ["a.b " * 5_000, "a" * 20_000, "\u00e9.a " * 5_000]
    check(write_vocab(tmp_path / "vocab.txt", vocab), texts, do_lower_case)
    # Without a token of ASCII.
    check(write_vocab(tmp_path / "vocab.txt", ["[UNK]", "\u00e9"]), texts[:22], do_lower_case)


@pytest.mark.slow
def test_every_code_point(tmp_path, monkeypatch):
    """Neither the shortcut for cleaning nor the tables of the second path change a character."""
    monkeypatch.setattr(fast_tokenization, "_MAX_CACHED_LENGTH", 0)
    monkeypatch.setattr(fast_tokenization, "_LOAD_AFTER", sys.maxsize)
    vocab = write_vocab(tmp_path / "vocab.txt", ["[UNK]"])
    # The code points left out are private or not assigned.
    points = [*range(0x32000), *range(0xE0000, 0xE0200), *range(0x10FF00, 0x110000)]
    texts = [f"A{chr(point)}B" for point in points]
    for do_lower_case in (True, False):
        words: list[str] = []

        def collect(text: str, words: list[str] = words) -> list[str]:
            words += text.split()
            return []

        fast = fast_tokenization.FastTokenizer(str(vocab), do_lower_case)
        monkeypatch.setattr(fast._ids_of_token._wordpiece, "tokenize", collect)
        # One by one, because it is the text that decides whether it has to be cleaned.
        fast.encode(texts)
        assert words == tokenization.BasicTokenizer(do_lower_case).tokenize(" ".join(texts))


def text_of(rng: random.Random, alphabet: list[str]) -> str:
    size = rng.choice((0, 1, 3, 10, 40, 199, 200, 201))
    return "".join(rng.choices([*alphabet, *" .#\t"], k=size))


def random_tokens(rng: random.Random, alphabet: list[str]) -> list[str]:
    tokens = ["[UNK]"]
    for _ in range(rng.choice((0, 5, 50))):
        length = rng.choice((1, 1, 2, 2, 3, 5, 90, 199, 300))
        tokens.append(rng.choice(("", "##")) + "".join(rng.choices(alphabet, k=length)))
    odd = ["", "##", "##.", "###", "#", "a b", "a\u2028b", "[CLS]", "\u00e9", "e", "##e"]
    odd += ["\u3000", "\t"]
    tokens += rng.sample(odd, rng.randint(0, 6)) + rng.choices(tokens, k=2)
    for char in alphabet * rng.randint(0, 1):
        tokens += [char, f"##{char}"]
    rng.shuffle(tokens)
    return [token.encode("utf-8", "ignore").decode().replace("\n", "") for token in tokens]


@pytest.mark.parametrize("seed", range(8))
def test_random_texts_and_vocabularies(tmp_path, path, seed):
    rng = random.Random(seed)
    alphabets = [list("ab"), list("abAB"), list("a\u03a3\u03c3\u03c2"), list("abcdefghij0123XYZ")]
    alphabet = rng.choice([*alphabets, list("".join(map(random_text, [rng] * 9)) + "ab")])
    vocab = write_vocab(tmp_path / "vocab.txt", random_tokens(rng, alphabet))
    texts = [random_text(rng) for _ in range(20)]
    texts += [text_of(rng, alphabet) for _ in range(40)]
    check(vocab, texts, do_lower_case=True)
    check(vocab, texts, do_lower_case=False)


def test_no_texts_one_text_and_a_missing_token(tmp_path):
    vocab = str(write_vocab(tmp_path / "vocab.txt", ["[UNK]", "a"]))
    fast = fast_tokenization.FastTokenizer(vocab)
    ids, row_splits = fast.encode([])
    assert (ids.tolist(), row_splits.tolist()) == ([], [0])
    refuses("a sequence of strings, not one string: 'a b'", fast.encode, "a b", kind=TypeError)
    write_vocab(tmp_path / "vocab.txt", ["a"])
    with pytest.raises(UserError, match=r"lacks \[UNK\], \[SEP\]"):
        fast_tokenization.FastTokenizer(vocab, required_tokens=["[SEP]"])


def test_full_cache_starts_afresh(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_tokenization, "_MAX_CACHED", 3)
    monkeypatch.setattr(fast_tokenization, "_MAX_CACHED_LENGTH", 4)
    vocab = write_vocab(tmp_path / "vocab.txt", ["[UNK]", *"abcdef", *(f"##{c}" for c in "abcdef")])
    texts = ["a b c d e f ab ba abcdef", "a a b b", "\u00e9a \u00e9b \u00e9c \u00e9d \u00e9a"]
    check(vocab, texts, do_lower_case=True)
    fast = fast_tokenization.FastTokenizer(str(vocab))
    fast.encode(texts)
    assert len(fast._ids_of_token) <= 3 and "abcdef" not in fast._ids_of_token


@pytest.mark.slow
def test_without_tensorflow_text(tmp_path):
    """The same ids, and one warning however many tokenizers are made."""
    vocab = write_vocab(tmp_path / "vocab.txt", ["[UNK]", "a", "##b", "b"])
    program = """
import sys; sys.modules["tensorflow_text"] = None; sys.stderr = sys.stdout
import tensorflow
from bert_tf.text import fast_tokenization
fast_tokenization._LOAD_AFTER = 0
for _ in range(3):
    fast = fast_tokenization.FastTokenizer(sys.argv[1])
    ids, row_splits = fast.encode(["Ab b", "", "x"] * 300)
assert row_splits[-1] == len(ids) == 3 * 300 + 300
print(ids[:4].tolist(), row_splits[:4].tolist())
"""
    output = run_code(program, vocab)
    assert output.endswith("[1, 2, 3, 0] [0, 3, 3, 4]\n")
    assert output.count("Tokenizing without tensorflow-text") == 1
    assert 'pip install --no-deps "tensorflow-text==2.' in output


@pytest.mark.slow
def test_tensorflow_text_is_imported_only_for_much_text(tmp_path):
    """The ids of each batch are the same before and after."""
    pytest.importorskip("tensorflow_text")
    vocab = write_vocab(tmp_path / "vocab.txt", ["[UNK]", "a", "##b", "b"])
    program = """
import sys
from bert_tf.text import fast_tokenization
fast = fast_tokenization.FastTokenizer(sys.argv[1])
fast.encode(["Ab b " * 1000] * 1000)
assert "tensorflow" not in sys.modules
import tensorflow
fast = fast_tokenization.FastTokenizer(sys.argv[1])
batch = ["Ab b " * 1000] * 1000  # five million characters
first = fast.encode(batch)
assert "tensorflow_text" not in sys.modules
second = fast.encode(batch)
assert "tensorflow_text" in sys.modules
assert all((a == b).all() for a, b in zip(first, second, strict=True))
assert first[0][:4].tolist() == [1, 2, 3, 1]
"""
    run_code(program, vocab)


@needs_golden
@pytest.mark.parametrize("casing", ["uncased", "cased"])
def test_ids_are_the_originals(path, casing):
    golden = Path(os.environ["BERT_TF_GOLDEN"])
    vocab_file = str(golden.parent / "released" / "vocab_uncased.txt")
    lines, expected = (
        [json.loads(line) for line in (golden / "text" / f"{name}.jsonl").open(encoding="utf-8")]
        for name in ("lines", casing)
    )
    fast = fast_tokenization.FastTokenizer(vocab_file, do_lower_case=casing == "uncased")
    assert ids_of_each(fast, lines) == expected
