"""Tests of SentencePiece: ids and places, settings, damaged models."""

import base64
import json
import os
import random
import struct
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.text import sentence_piece_model as spm
from bert_tf.text.sentence_pieces import SentencePieceTokenizer, preprocess_text
from bert_tf.text.tokenizer_settings import TokenizerSettings
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.encoded import copy_tokenizer, ids_of_each, placed_pieces, tokens_of_each
from tests.support.golden import needs_golden
from tests.support.refusals import refusal, refuses
from tests.support.sentence_piece_model import write_model

HUB = Path(__file__).parents[1] / "hugging_face/hub"
MODEL = (HUB / "005/spiece.model").read_bytes()
CHARSMAP = spm.model_class().FromString(MODEL).normalizer_spec.precompiled_charsmap
TRIE_SIZE = int.from_bytes(CHARSMAP[:4], "little")
PIECES = ["[CLS]", "[SEP]", "[MASK]", "▁", "▁the", "▁cat", "s", "1", "2", "12", "▁12,", "2,", ","]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "small.model", PIECES)


def test_text_is_simplified_before():
    assert preprocess_text("  Ａ  b\tCafé ﬁ\n") == "A b Cafe fi"
    assert preprocess_text("ÀB Ç", lower=True) == "ab c"
    assert preprocess_text("") == ""
    assert preprocess_text(" Ａ  é\tÀ", lower=True, keep_accents=True) == "ａ é à"
    assert preprocess_text(" Ａ  é\t", remove_space=False) == " A  e\t"


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({}, ["▁the", "▁", "c", "a", "f", "e"]),
        ({"keep_accents": True}, ["▁the", "▁", "c", "a", "f", "é"]),
        ({"tokenizer_class": "AlbertTokenizer"}, ["▁the", "▁", "c", "a", "f", "e", "[MASK]"]),
        ({"additional_special_tokens": ["Café"]}, ["▁the", "Café"]),
    ],
    ids=["plain", "accents", "special", "added"],
)
def test_settings_of_the_folder(tmp_path, config, tokens):
    path = write_model(tmp_path / "spm.model", [*PIECES, *"cafeé"], first=["<pad>"])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(path, do_lower_case=True)
    (found,) = tokens_of_each(tokenizer, "The Café[MASK]")
    assert found[: len(tokens)] == tokens
    assert ("[MASK]" in found) == ("tokenizer_class" in config)
    copy_tokenizer(path, tmp_path)
    assert tokens_of_each(load_tokenizer(path, do_lower_case=True), "The Café[MASK]") == [found]


MORE = [*PIECES, *"\"'", '▁"', "▁ο", *"δοσςΣกัéeAa"]


# The tokens are those of transformers 5.24 for this model.
@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({}, {}),
        ({"remove_space": False}, {}),
        ({"keep_accents": True}, {"กั e\u0301": "▁ ก ั ▁ e <unk>"}),
        ({"do_lower_case": False}, {"ΟΔΟΣ": "▁ <unk> Σ", "A A": "▁ A ▁ A"}),
    ],
    ids=["plain", "spaces", "accents", "cased"],
)
def test_a_folder_of_hugging_face(tmp_path, config, tokens):
    tokens = {
        "``the'' cats '''": '▁" <unk> e " ▁cat s ▁" \'',
        "cat 12, s12,": "▁cat ▁12, ▁ s 1 2,",
        "ΟΔΟΣ": "▁ο δ ο σ",
        "กั e\u0301": "▁ ก ▁ e",
        "A A": "▁ a ▁ a",
        "the\x85cat  the[MASK] s": "▁the ▁cat ▁the [MASK] ▁ s",
    } | tokens
    path = write_model(tmp_path / "spiece.model", MORE, first=["<pad>"])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    copy_tokenizer(path, tmp_path / "copy", hugging_face=True)
    lower = config.get("do_lower_case", True)
    theirs = load_tokenizer(path, lower, hugging_face=True)
    for tokenizer in (theirs, load_tokenizer(f"{tmp_path}/copy/spm.model", lower)):
        for text, expected in tokens.items():
            assert tokens_of_each(tokenizer, text) == [expected.split()], text
            assert [token for token, *_ in placed_pieces(tokenizer, text)] == expected.split()
    # Quotes have the places of both characters.
    assert [text for _, text, _ in placed_pieces(theirs, "``e'' a")][:3] == ["``", "e", "''"]


def test_symbols_of_the_model_and_of_the_files(tmp_path):
    # The tokens are those of transformers 5.24: a list in the files replaces the model's.
    path = write_model(tmp_path / "spiece.model", [*MORE, "[x"], first=["<pad>"])
    tokenizer = load_tokenizer(path, True, hugging_face=True)
    assert tokens_of_each(tokenizer, "[xa") == [["[x", "▁", "a"]]
    file, content = tmp_path / "tokenizer_config.json", {"extra_special_tokens": ["[E1]"]}
    file.write_text(json.dumps(content))
    tokenizer = load_tokenizer(path, True, hugging_face=True)
    assert tokens_of_each(tokenizer, "[xa") == [["▁", "[x", "a"]]
    file.unlink()
    content = {"additional_special_tokens": ["[E1]"]}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(content))
    told = refusal(load_tokenizer, path, True, hugging_face=True)
    assert "ignores the token '[E1]': it does not read additional_special_tokens beside" in told


def unigram_json(**changes):
    """Returns a tokenizer.json as transformers 5 writes it for ALBERT."""
    quotes = [{"type": "Replace", "pattern": {"String": x}, "content": '"'} for x in ("``", "''")]
    steps = [*quotes, *({"type": x} for x in ("NFKD", "StripAccents", "Lowercase"))]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    splitters = [{"type": "WhitespaceSplit"}, metaspace]
    pieces = [[piece, -1.0] for piece in ("<pad>", "<unk>", *MORE)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {
        **dict.fromkeys(("truncation", "padding", "post_processor", "decoder")),
        "version": "1.0",
        "added_tokens": [{"id": 4, "content": "[MASK]", **flags}],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitters},
        "model": {"type": "Unigram", "unk_id": 1, "vocab": pieces, "byte_fallback": False},
    } | changes


@pytest.mark.parametrize("beside", [False, True])
def test_a_tokenizer_json_of_albert(tmp_path, beside):
    (tmp_path / "tokenizer.json").write_text(json.dumps(unigram_json()), encoding="utf-8")
    path = str(tmp_path / "tokenizer.json")
    if beside:
        path = write_model(tmp_path / "spiece.model", MORE, first=["<pad>"])
    tokenizer = load_tokenizer(path, True)
    assert tokens_of_each(tokenizer, "The'' cat 12,[MASK]") == [
        ["▁the", '"', "▁cat", "▁12,", "[MASK]"]
    ]
    if beside:
        write_model(tmp_path / "spiece.model", ["▁", *MORE], first=["<pad>"])
        told = refusal(load_tokenizer, path, True)
        assert "must have the same vocabulary; token '[CLS]' has id 2 in the latter" in told


def test_a_tokenizer_json_that_is_not_albert_s(tmp_path):
    model = unigram_json()["model"]
    for changes, message in (
        ({"normalizer": {"type": "NFKC"}}, "the normalizer must be ALBERT's; received ['NFKC']"),
        ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, 'its pre_tokenizer must be {"type": "Seq'),
        ({"model": model | {"byte_fallback": True}}, 'its model must be {"type": "Unigram"}; rec'),
        ({"model": model | {"vocab": [["<unk>"]]}}, "the package tokenizers"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "cannot read it"),
        (
            {"model": model | {"unk_id": 0, "vocab": [["<unk>", 0.0], ["[CLS]", 0.0]]}},
            "must have the id 1, not 0: transformers takes that id, whatever the model says",
        ),
    ):
        content = unigram_json(**changes)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        assert message in refusal(load_tokenizer, str(tmp_path / "tokenizer.json"), True)


def test_korean_pieces_and_a_damaged_model_of_hugging_face(tmp_path):
    content, file = unigram_json(), tmp_path / "tokenizer.json"
    rules = {"precompiled_charsmap": base64.b64encode(CHARSMAP).decode()}
    content["normalizer"]["normalizers"].append({"type": "Precompiled", **rules})
    content["model"]["vocab"].append(["▁한국", -1.0])
    file.write_text(json.dumps(content), encoding="utf-8")
    told = refusal(load_tokenizer, str(file), True)
    assert "with Korean pieces must have keep_accents: true in its tokenizer_config.json" in told
    file.unlink()
    path = write_model(tmp_path / "spiece.model", MORE, first=["<pad>"])
    whole = Path(path).read_bytes()
    for cut in (1, 5, 9):
        Path(path).write_bytes(whole[:-cut])
        told = refusal(load_tokenizer, path, True, hugging_face=True)
        assert "the file must be a SentencePiece model; it is damaged: a " in told


def test_pieces_and_numbers(model_file):
    tokenizer = SentencePieceTokenizer(model_file, True, ("[CLS]", "[SEP]"))
    assert tokenizer.vocab["[CLS]"] == 1 and tokenizer.inv_vocab[3] == "[MASK]"
    found = tokens_of_each(tokenizer, "The cats", "", "12, cat 12, s", "cat2,", "Ж", "\ud800 cat")
    number = ["▁", "12", ","]  # a word start of its own, as in the original
    assert found[:2] == [["▁the", "▁cat", "s"], []]
    assert found[2] == [*number, "▁cat", *number, "▁", "s"]
    assert found[3:5] == [["▁cat", "▁", "2", ","], ["▁", "<unk>"]]
    assert found[5][-1] == "▁cat"
    assert tokens_of_each(tokenizer) == []
    cased = SentencePieceTokenizer(model_file, do_lower_case=False)
    assert tokens_of_each(cased, "The cats") == [["▁", "<unk>", "▁cat", "s"]]


def test_the_places_of_pieces(model_file):
    tokenizer = SentencePieceTokenizer(model_file)
    assert placed_pieces(tokenizer, " The\tcats, ﬁ ١ Ж") == [
        ("▁the", "The", True),
        ("▁cat", "cat", True),
        ("s", "s", False),
        (",", ",", True),
        ("▁", "", True),
        ("<unk>", "ﬁ", False),  # "fi", which the model has not
        ("▁", "", True),
        ("<unk>", "١", False),
        ("▁", "", True),
        ("<unk>", "Ж", False),
    ]
    assert tokenizer.pieces("") == []


def test_what_is_no_model_is_refused(tmp_path, model_file):
    text = tmp_path / "vocab.model"
    text.write_text("[PAD]\n[UNK]\n")
    other = write_model(tmp_path / "other.model", PIECES, unknown="<UNK>")
    for path, required, message in (
        (text, (), "vocab.model: the file must be a SentencePiece model"),
        (tmp_path / "absent.model", (), "absent.model cannot be read"),
        (model_file, ("[CLS]", "[X]"), r"lacks \[X\]; .* --control_symbols=\[CLS\],\[X\]"),
        (other, ("[CLS]", "[SEP]"), "other.model: the model lacks <unk>; .* default --unk_pi"),
    ):
        refuses(message, SentencePieceTokenizer, str(path), True, required)
    refuses("not one string", SentencePieceTokenizer(model_file).encode, "cats", kind=TypeError)


@needs_golden
@pytest.mark.parametrize("kind", ["uncased", "cased", "raw"])
@pytest.mark.parametrize("model", ["sentencepiece_test", "albert_layout"])
def test_every_id_is_the_originals(model, kind):
    folder = Path(os.environ["BERT_TF_GOLDEN"]) / "albert" / "text"
    expected = [json.loads(x) for x in (folder / f"{model}_{kind}.jsonl").open()]
    lines = [json.loads(x) for x in (folder / "lines.jsonl").open()][: len(expected)]
    tokenizer = SentencePieceTokenizer(str(folder / f"{model}.model"), kind == "uncased")
    if kind != "raw":
        assert ids_of_each(tokenizer, lines) == expected
        return
    vocab, unknown = tokenizer.vocab, tokenizer.unknown_id
    found = tokenizer.split(lines)
    assert [[vocab.get(piece, unknown) for piece in pieces] for pieces in found] == expected


def piece(text, score=-1.0):
    content = bytes([1 << 3 | 2, len(text)]) + text + b"\x15" + struct.pack("<f", score)
    return bytes([1 << 3 | 2, len(content)]) + content


def test_a_damaged_model_is_refused(tmp_path):
    for model, problem in (
        (b"", "it has no pieces"),
        (b"[PAD]\n[UNK]\n", "it is not such a file, or it is damaged"),
        (MODEL[:-200], "it is not such a file, or it is damaged"),
        (MODEL + piece(b"a\0b"), r"piece \d+ is b'a\\x00b', which is not text"),
        (MODEL + piece(b"\0"), r"piece \d+ is b'\\x00', which is not text"),
        (MODEL + piece(b""), r"piece \d+ is b'', which is not text"),
        (MODEL + piece("é".encode("latin-1")), r"piece \d+ is b'\\xe9', which is not text"),
        (MODEL + piece(b"x" * 50 + b"\xff"), "is b'x{50}', which is not text"),
        (MODEL + piece(b"twice") * 2, r"piece \d+, b'twice', occurs twice"),
        (MODEL + piece(b"new", float("nan")), r"the score of piece \d+ is nan"),
    ):
        path = tmp_path / "spm.model"
        path.write_bytes(model)
        message = f"^--vocab_file={path}: the file must be a SentencePiece.*{problem}"
        refuses(message, SentencePieceTokenizer, str(path))


def test_a_damaged_map_of_characters_is_refused():
    assert spm.problem_of(MODEL) is None
    for place, damage in (
        (0, struct.pack("<I", 2**31)),  # the trie is larger than the file
        (0, struct.pack("<I", TRIE_SIZE - 1)),
        (0, struct.pack("<I", 0)),
        (4, b"\0\xfc\xff\x7f"),  # the root's children are outside of the trie
        (4 + 4 * 97, b"\0\xfc\xff\x7f"),  # those of another unit
        (4, b"\0\0\0\x80"),  # the root is the place of a text
        (-1, b"x"),  # the last text does not end
        (-2, b"\xff"),  # a text is not UTF-8
        (4 + TRIE_SIZE + 2, b"\xc3\xa9"),  # a text begins within a character
    ):
        at = MODEL.index(CHARSMAP) + place % len(CHARSMAP)
        model = MODEL[:at] + damage + MODEL[at + len(damage) :]
        told = "it is damaged: its map of characters (precompiled_charsmap) is broken"
        assert spm.problem_of(model) == told


LETTERS = [chr(x) for x in range(32, 127)] + [" "] * 30
CHARACTERS = LETTERS + [
    chr(x)
    for first, last in [(1, 592), (768, 880), (4352, 4480), (8192, 8304), (44032, 44096)]
    for x in range(first, last)
]
CHARACTERS += [*"ﬁＡ①½ǆ한각が゙あ\ufeff\u200d😀\U0010ffff"]


def random_texts(count=400, seed=0):
    draw = random.Random(seed)
    found = ["", " ", "  a  ", "the cat sat, 12,345 (maybe)", "▁▁a▁"]
    while len(found) < count:
        found.append("".join(draw.choices(draw.choice([LETTERS, CHARACTERS]), k=len(found) % 40)))
    return found


def each_kind_of_piece():
    """Returns a model with each kind of piece, and scores that all differ."""
    pieces = {
        "<pad>": spm.CONTROL,
        "<unk>": spm.UNKNOWN,
        "[CLS]": spm.CONTROL,
        "(": spm.USER_DEFINED,
    }
    pieces |= {"xy z": spm.USER_DEFINED, "the": spm.UNUSED, "q": spm.UNUSED}
    pieces |= dict.fromkeys(["▁", "▁the", "▁t", "he", "ca", "cat", "at", "s", "é", "ﬁ"], spm.NORMAL)
    pieces |= dict.fromkeys([*"abcdehtx12,zy"], spm.NORMAL)
    model, draw = spm.model_class()(), random.Random(1)
    for piece, kind in pieces.items():
        score = -draw.uniform(1, 9) if kind == spm.NORMAL else 0.0
        model.pieces.add(piece=piece.encode(), score=score, type=kind)
    return model.SerializeToString()


@pytest.mark.parametrize("hub_folder", [None, "005", "011", "017"])
def test_pieces_are_those_of_tensorflow_text(hub_folder):
    tensorflow_text = pytest.importorskip("tensorflow_text")
    model = each_kind_of_piece()
    if hub_folder:
        model = (HUB / hub_folder / "spiece.model").read_bytes()
    theirs = tensorflow_text.SentencepieceTokenizer(model, out_type=tf.string)
    settings = TokenizerSettings(tokenizer_class="AlbertTokenizer")
    ours = SentencePieceTokenizer("spm.model", settings=settings, content=model)
    found = [[piece.encode() for piece in pieces] for pieces in ours.split(random_texts())]
    assert found == theirs.tokenize(random_texts()).to_list()
