"""The reference tokenizer: the original's rules one by one, and its output on real text."""

import json
import os
import re
from pathlib import Path

import pytest

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.tokenizer_settings import TokenizerSettings
from tests.support.encoded import ids_of_each
from tests.support.golden import needs_golden
from tests.support.refusals import refusal, refuses

PIECES = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]


def write_vocab(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return str(path)


def test_full_tokenizer(tmp_path):
    vocab_file = write_vocab(tmp_path / "vocab.txt", "\n".join(PIECES))
    tokenizer = tokenization.FullTokenizer(vocab_file)
    tokens = tokenizer.tokenize("UNwant\u00e9d,running xyz")
    assert tokens == ["un", "##want", "##ed", ",", "runn", "##ing", "[UNK]"]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    assert ids == [7, 4, 5, 10, 8, 9, 0]
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    assert tokenizer.tokenize(b"UNwanted") == ["un", "##want", "##ed"]
    cased = tokenization.FullTokenizer(vocab_file, do_lower_case=False)
    assert cased.tokenize("unwanted Unwanted") == ["un", "##want", "##ed", "[UNK]"]


def test_basic_tokenizer():
    for text, lowered, cased in (
        (" \tHeLLo!how  \n Are yoU?  ", "hello ! how are you ?", "HeLLo ! how Are yoU ?"),
        ("H\u00e9llo", "hello", "H\u00e9llo"),
        ("e\u0301 \u0301", "e", "e\u0301 \u0301"),
        ("ah\u535a\u63a8zz", "ah \u535a \u63a8 zz", "ah \u535a \u63a8 zz"),
        # Compatibility ideographs part words before accents are stripped, which unifies them.
        ("a\uf900b", "a \u8c48 b", "a \uf900 b"),
        ("\u3042\u30a2\uac00", "\u3042\u30a2\u1100\u1161", "\u3042\u30a2\uac00"),
        # The sigma at a word's end is another; an ideograph ends a word, a full stop does not.
        ("\u03a3\u03a3 \u03a3\u03a3.\u03a3", "\u03c3\u03c2 \u03c3\u03c3 . \u03c2", None),
        ("\u03a3\u03a3\u4e00\u03a3", "\u03c3\u03c2 \u4e00 \u03c3", None),
        ("\u0130I\u0131", "ii\u0131", "\u0130I\u0131"),
        ("\u1e9e\ufb01\u212a", "\u00df\ufb01k", "\u1e9e\ufb01\u212a"),
        # Controls and format characters vanish, even those that Python splits at.
        ("a\0b\ufffdc\x85d\x1ce\x0bf\u200bg\u00adh\ufeffi", "abcdefghi", "abcdefghi"),
        # White space of the categories Zs, Zl and Zp.
        ("a\u3000b\u00a0c\u2028d\u2029e\u1680f", "a b c d e f", "a b c d e f"),
        ("a$b^c`d+e\u00a3\u2014\u060cf", "a $ b ^ c ` d + e\u00a3 \u2014 \u060c f", None),
        ("a-b.c@d[e_f{g~h\u2026i", "a - b . c @ d [ e _ f { g ~ h \u2026 i", None),
        # Private and unassigned characters stay, and so do modifiers.
        ("a\ue000\u0378\u02c6b", "a\ue000\u0378\u02c6b", None),
        ("\u037e\u1fef", "; `", "\u037e \u1fef"),
        ("", "", ""),
    ):
        assert tokenization.BasicTokenizer().tokenize(text) == lowered.split()
        if cased is not None:
            assert tokenization.BasicTokenizer(do_lower_case=False).tokenize(text) == cased.split()


def test_blocks_of_ideographs():
    blocks = "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF"
    for block in f"{blocks} 2F800-2FA1F".split():
        first, last = (int(end, 16) for end in block.split("-"))
        for point, apart in ((first - 1, False), (first, True), (last, True), (last + 1, False)):
            # Two of the blocks follow another without a gap.
            apart = apart or point in (0x2B73F, 0x2B740, 0x2B81F, 0x2B820)
            words = tokenization.BasicTokenizer(do_lower_case=False).tokenize(f"a{chr(point)}a")
            assert len(words) == (3 if apart else 1), hex(point)


def test_wordpiece_tokenizer():
    tokenizer = tokenization.WordpieceTokenizer(dict.fromkeys(PIECES, 0))
    assert tokenizer.tokenize("") == []
    assert tokenizer.tokenize("unwanted running") == "un ##want ##ed runn ##ing".split()
    # The whole word is unknown if its end is, and if the longest start leads nowhere.
    assert tokenizer.tokenize("unwantedX wanting wa") == ["[UNK]", "want", "##ing", "wa"]
    assert tokenizer.tokenize("waed wawant") == ["wa", "##ed", "wa", "##want"]
    # Quirk: a bare word may begin with "##"; from BasicTokenizer none does.
    assert tokenizer.tokenize("##want") == ["##want"]
    tokenizer = tokenization.WordpieceTokenizer({"\u00e9": 0, "##\u00e9": 1})
    assert tokenizer.tokenize("\u00e9" * 200) == ["\u00e9"] + ["##\u00e9"] * 199
    assert tokenizer.tokenize("\u00e9" * 201) == ["[UNK]"]
    short = tokenization.WordpieceTokenizer({"a": 0, "##a": 1}, "?", max_input_chars_per_word=3)
    assert short.tokenize("aaa aaaa") == ["a", "##a", "##a", "?"]


def test_convert_to_unicode_and_unknown_items():
    for convert in (tokenization.convert_to_unicode, tokenization.printable_text):
        assert convert("\u00e9") == convert(b"\xc3\xa9") == convert(b"\xc3\xa9\xff") == "\u00e9"
        with pytest.raises(ValueError, match="Text must be str or bytes, not int: 3") as error:
            convert(3)
        assert error.type is ValueError  # a defect of the caller, not of the user
    message = "Token 'x' is not in the vocabulary of 1 entries; .*--voc"
    refuses(message, tokenization.convert_tokens_to_ids, {"a": 0}, ["a", "x"], kind=KeyError)
    message = "Id 7 is not in the vocabulary"
    refuses(message, tokenization.convert_ids_to_tokens, {0: "a"}, iter([0, 7]), kind=KeyError)


def test_vocabulary_lines(tmp_path, warnings):
    for text in ("a\nb", "a\nb\n", "a\nb\n\r"):  # the last line may lack its end
        vocab = tokenization.load_vocab(write_vocab(tmp_path / "vocab.txt", text))
        assert vocab == {"a": 0, "b": 1}
    assert warnings == []
    text = "[UNK]\r\na\u2028b\n\u2028c \n\nd\rd\na\u2028b\n \n\x85e\x0c"
    vocab = tokenization.load_vocab(write_vocab(tmp_path / "vocab.txt", text))
    assert list(vocab.items()) == [
        ("[UNK]", 0),
        ("a\u2028b", 5),
        ("c", 2),
        ("", 6),
        ("dd", 4),
        ("e", 7),
    ]
    assert len(warnings) == 1
    assert warnings[0].endswith(
        "vocab.txt: 3 of 8 lines are empty or repeated further down, so that text never gets their"
        " ids: line 2: 'a\\u2028b' again on line 6; line 4: empty; line 7: empty"
    )


def test_unusable_vocabulary(tmp_path):
    for content, message in (
        (None, "cannot be read"),
        (b"", "the file is empty; it needs one token a line"),
        (b"[UNK]\na\n\xffb\n", "line 3, is not UTF-8 (invalid start byte)"),
        (
            b"[CLS]\nhello\n",
            "lacks [UNK], [MASK]; it must have each of [UNK], [CLS], [MASK] on a separate line."
            " It has 2 tokens, the first is '[CLS]'",
        ),
        ("a folder", "cannot be read"),
    ):
        path = tmp_path / "vocab.txt"
        if content == "a folder":
            path.unlink()
            path.mkdir()
        elif content is not None:
            path.write_bytes(content)
        told = refusal(tokenization.FullTokenizer, str(path), required_tokens=("[CLS]", "[MASK]"))
        assert f"--vocab_file={path}" in told and message in told


def test_casing_must_match_released_checkpoint():
    check = tokenization.validate_case_matches_checkpoint
    for do_lower_case, checkpoint, kind in (
        (False, "gs://x/uncased_L-12_H-768_A-12/bert_model.ckpt", "lowercased"),
        (False, "chinese_L-12_H-768_A-12/bert_model.ckpt", "lowercased"),
        (True, "/a/cased_L-24_H-1024_A-16/bert_model.ckpt", "cased"),
        (True, "/a/multi_cased_L-12_H-768_A-12/bert_model.ckpt", "cased"),
    ):
        told = refusal(check, do_lower_case, checkpoint)
        assert f"was trained on {kind} text, but --do_lower_case={do_lower_case}" in told
        check(not do_lower_case, checkpoint)
    others = (None, "", "bert_model.ckpt", "/mine/bert_model.ckpt", "/cased_L-1/model.ckpt-7")
    for other in others:
        for do_lower_case in (True, False):
            check(do_lower_case, other)


@needs_golden
@pytest.mark.parametrize(("lower", "strip"), [(0, 1), (1, 0), (1, 1)])
def test_ids_are_electras(lower, strip):
    golden = Path(os.environ["BERT_TF_GOLDEN"])
    settings = TokenizerSettings(drop_category_c=True, strip_accents=bool(lower and strip))
    vocab = tokenization.load_vocab(str(golden.parent / "released" / "vocab_uncased.txt"))
    text = golden / "electra" / "text"
    lines = [json.loads(line) for line in (text / "lines.jsonl").read_text().splitlines()]
    # The original ran with Unicode 11, in which these characters of the lines were unassigned.
    lines = [re.sub("[\u061d\u20c0\u9ff0-\u9fff]", "", line) for line in lines]
    ids = (text / f"ids_lower{lower}_strip{strip}.jsonl").read_text().splitlines()
    reference = tokenization.FullTokenizer(vocab, bool(lower), **settings.switches)
    fast = FastTokenizer(vocab, bool(lower), settings=settings)
    for line, found, wanted in zip(lines, ids_of_each(fast, lines), ids, strict=True):
        assert found == json.loads(wanted), ascii(line)
        assert found == reference.convert_tokens_to_ids(reference.tokenize(line)), ascii(line)


def test_category_c_is_dropped_whole():
    unassigned, private, surrogate = "\u0378", "\uf8ff", "\udfff"
    text = f"a{unassigned}b{private}c{surrogate}d\u200be"
    words = tokenization.BasicTokenizer(drop_category_c=True).tokenize(text)
    assert words == ["abcde"] == tokenization.BasicTokenizer().tokenize("a\u200bbcde")
    kept = tokenization.BasicTokenizer().tokenize(text)
    assert kept == [f"a{unassigned}b{private}c{surrogate}de"]


def test_messages_on_vocabularies_are_short(tmp_path, warnings):
    path = tmp_path / "vocab.txt"
    long = "x" * 100_000
    path.write_text("\n".join([long, long, long + "y", long + "z"]))
    tokenization.load_vocab(str(path))
    tokenization.load_vocab(write_vocab(tmp_path / "13.txt", "a\n" * 13))
    assert "12 of 13 lines" in warnings[1]
    assert warnings[1].count("again on line 13") == 10 and warnings[1].endswith("; ...")
    with pytest.raises(UserError, match=r"lacks \[UNK\]; .* 3 tokens, the first is 'xxx") as error:
        tokenization.FullTokenizer(str(path))
    assert len(str(error.value)) < 500 and len(warnings[0]) < 500
    assert len(refusal(tokenization.convert_tokens_to_ids, {}, [long], kind=KeyError)) < 500
    assert len(refusal(tokenization.convert_to_unicode, [long], kind=ValueError)) < 500
