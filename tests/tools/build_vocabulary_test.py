"""tools/build_vocabulary.py as a user runs it, and the vocabulary that it makes."""

import functools
import os
import random
from pathlib import Path

import numpy as np
import pytest

from bert_tf import tokenization
from bert_tf.text import fast_tokenization
from bert_tf.text.byte_pairs import BytePairTokenizer
from tests.support.pretraining_runs import run
from tests.support.refusals import refuses
from tests.support.text_in_shards import contents
from tools import build_vocabulary
from tools.build_vocabulary import BYTE_BPE

TEXT = (
    "The lowering of the lower and the lowest; the newer, the newest, the widest.\n"
    "\n"
    "D\u00e9j\u00e0 vu -- na\u00efve widening\tof the new \u4e2d\u6587 words\u2026 "
    "\u03a3\u03bf\u03c6\u03cc\u03c2 #1!\u200b\n"
) * 3


PROGRAM = {"program": "tools.build_vocabulary"}


def build(folder: Path, text: str | bytes, vocab_size: int = 120, **others) -> list[str]:
    """Returns the lines of the vocabulary that `text` gives."""
    source = folder / "text.txt"
    source.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    output_file = folder / "made" / "vocab.txt"
    settings = {"do_lower_case": True, "max_unique_chars": 1000, **others}
    build_vocabulary.build_vocabulary(str(source), str(output_file), vocab_size, **settings)
    assert os.listdir(output_file.parent) == ["vocab.txt"]
    return output_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_program(tmp_path):
    for number, text in enumerate((TEXT, "quiz\n")):
        (tmp_path / f"text{number}.txt").write_text(text, encoding="utf-8")
    input_file = f"{tmp_path}/text0.*,{tmp_path}/text1.txt"
    by_program, by_call = tmp_path / "vocab1.txt", tmp_path / "vocab2.txt"
    # Hashes, and so the order of sets, differ from this process.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    flags = (f"--input_file={input_file}", f"--output_file={by_program}", "--vocab_size=85")
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    printed = run(*flags, "--nodo_lower_case", **PROGRAM, env=environment)
    assert f"{by_program}: 85 tokens, learned from " in printed
    build_vocabulary.build_vocabulary(input_file, str(by_call), 85, False, 1000)
    text = by_program.read_text(encoding="utf-8")
    assert text == by_call.read_text(encoding="utf-8")
    tokens = text.removesuffix("\n").split("\n")
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(tokens) == len(set(tokens)) == 85
    assert {"the", "The", "\u00e9", "##\u00ef", "\u4e2d", "q", "z"} <= set(tokens)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_own_text_has_no_unknown_words(tmp_path, do_lower_case):
    text = TEXT + "y" + "x" * 199 + "\n" + "z" * 51
    tokens = build(tmp_path, text, do_lower_case=do_lower_case)
    vocab_file = str(tmp_path / "made" / "vocab.txt")
    reference = tokenization.FullTokenizer(vocab_file, do_lower_case)
    fast = fast_tokenization.FastTokenizer(vocab_file, do_lower_case)
    lines = text.split("\n")
    ids, row_splits = fast.encode(lines)
    for line, line_ids in zip(lines, np.split(ids, row_splits[1:-1]), strict=True):
        pieces = reference.tokenize(line)
        assert "[UNK]" not in pieces, line
        assert [tokens[i] for i in line_ids] == pieces


def test_size_is_kept_exactly_where_the_text_suffices(tmp_path):
    rng = random.Random(5)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(700)]
    text = "\n".join(" ".join(rng.choices(words, range(700, 0, -1), k=11)) for _ in range(400))
    sizes = [len(build(tmp_path, text, size)) for size in (25, 26, 61, 333, 600)]
    assert sizes == [25, 26, 61, 333, 600]
    everything = build(tmp_path, text, 30522)
    assert len(everything) < 30522 and len(set(text.split()).difference(everything)) < 20
    # A larger vocabulary has more of the words.
    known = [len(set(words).intersection(build(tmp_path, text, size))) for size in (100, 300, 900)]
    assert known == sorted(known) and known[0] < known[2]


def test_what_is_left_out(tmp_path, warnings):
    """Pieces that cannot occur, and, with a warning, rare characters."""
    tokens = build(tmp_path, TEXT)
    assert {",", "\u4e2d", "\u2026", "##w"} <= set(tokens)
    assert not {"##,", "##\u4e2d", "##\u2026"}.intersection(tokens)
    assert not warnings
    tokens = build(tmp_path, "aa ab ba bb aac\n" * 9 + "qa\n", max_unique_chars=3)
    assert set("abc") <= set(tokens) and "q" not in tokens
    [warning] = warnings
    assert warning.startswith("1 words (2.17%) have characters that are not in the vocabulary")


def test_files_that_cannot_be(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "link").symlink_to("text.txt")
    (tmp_path / "folder").mkdir()
    make = build_vocabulary.build_vocabulary
    for source, output, message in (
        ("*.txt", "link", "must not be a file of --input_file"),
        ("*.txt", "", "empty name"),
        ("text.txt", "text.txt/v.txt", "--output_file=.*/text.txt/v.txt cannot be written"),
        ("text.txt", "folder", "--output_file=.*/folder must name a file"),
        ("no/such*.txt", "v", r"no/such\*\.txt matches no file"),
    ):
        refuses(message, make, f"{tmp_path}/{source}", output and f"{tmp_path}/{output}", 99)
    assert (tmp_path / "text.txt").read_text(encoding="utf-8") == TEXT
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "text.txt"]


def test_unusable_text_leaves_nothing_behind(tmp_path):
    output_file = tmp_path / "made" / "vocab.txt"
    output_file.parent.mkdir()
    output_file.write_text("as it was")
    for text, size, message in (
        (b"\n \n\x00\n", 9, "--input_file: the text has no words"),
        (b"good\nbad \xff\n", 99, "text.txt, line 2, is not UTF-8"),
        (b"a b c d!\n", 13, "--vocab_size=13 must be at least 14, the number of special"),
    ):
        refuses(message, build, tmp_path, text, size)
        assert os.listdir(output_file.parent) == ["vocab.txt"]
        assert output_file.read_text() == "as it was"


def test_a_byte_level_bpe(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    made = [tmp_path / name / "vocab.json" for name in ("program", "call")]
    flags = (f"--input_file={tmp_path}/text.txt", "--kind=byte_bpe", "--vocab_size=290")
    printed = run(*flags, f"--output_file={made[0]}", **PROGRAM)
    assert "290 tokens, 29 of them merged" in printed
    build_vocabulary.build_vocabulary(flags[0][13:], str(made[1]), 290, kind="byte_bpe")
    by_program, by_call = (contents(path.parent) for path in made)
    assert by_program == by_call and by_call.keys() == {"merges.txt", "vocab.json"}
    merges = by_call["merges.txt"].decode()
    assert merges.splitlines()[0] == "#version: 0.2" and len(merges.splitlines()) == 30
    tokenizer = BytePairTokenizer(str(made[0]), required_tokens=["<s>", "</s>", "<mask>"])
    assert list(tokenizer.vocab)[:5] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    for text in (TEXT, "another, \U0001f600 \x00\n"):
        ids, _ = tokenizer.encode([text])
        assert tokenizer.text_of(ids.tolist()) == text
    assert len(tokenizer.encode(["the widest"])[0]) < 7


def test_what_no_byte_level_bpe_can_be_made_of(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text("ab")
    for name, size, message in (
        ("vocab.txt", 300, r"vocab.txt must end in \.json with --kind=byte_bpe"),
        ("vocab.json", 260, "--vocab_size=260 must be at least 261"),
        ("vocab.json", 300, "no pair of bytes occurs twice"),
    ):
        make = functools.partial(build_vocabulary.build_vocabulary, kind=BYTE_BPE)
        refuses(message, make, str(source), f"{tmp_path}/{name}", size)
    assert os.listdir(tmp_path) == ["text.txt"]
    flags = ("--output_file=v.json", "--kind=byte_bpe", "--do_lower_case")
    printed = run(*flags, f"--input_file={source}", **PROGRAM, status=1)
    assert "--do_lower_case is for --kind=word_piece" in printed
    assert "--input_file must be given" in run(*flags, **PROGRAM, status=1)
