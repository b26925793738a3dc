"""Byte-level BPE: ids, places, words; against Hugging Face's tokenizer where it is given."""

import gzip
import json
import os
from pathlib import Path

import pytest

from bert_tf.text import sequences
from bert_tf.text.byte_pairs import BytePairTokenizer
from bert_tf.text.tokenizers import (
    load_tokenizer,
    vocabulary_files,
    vocabulary_name,
)
from tests.support.byte_pair_files import write_vocabulary
from tests.support.encoded import copy_tokenizer, ids_of_each, placed_pieces, tokens_of_each
from tests.support.golden import needs_golden
from tests.support.refusals import refuses

JOINED = ["Ġ t", "h e", "Ġt he", "c a", "Ġ ca", "Ġca t", "1 2"]


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("pairs"), JOINED)


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return load_tokenizer(vocab_file, do_lower_case=False, needs_mask=True)


def test_bytes_are_joined_and_spaces_belong_to_the_word_after_them(tokenizer):
    texts = ["the cat", "", " the12", "é\n", "the <mask> cat</s>"]
    assert [" ".join(tokens) for tokens in tokens_of_each(tokenizer, *texts)] == [
        *("t he Ġcat", "", "Ġthe 12", "Ã © Ċ", "t he <mask> Ġcat </s>")
    ]
    (ids,) = ids_of_each(tokenizer, [" the \ud800cat"])  # half of a pair
    assert tokenizer.text_of(ids) == " the ?cat"


LSTRIP = {"content": "<mask>", "lstrip": True}


@pytest.mark.parametrize(
    ("file", "content", "takes_space"),
    [
        (None, {}, True),
        ("tokenizer_config.json", {"mask_token": "<mask>"}, False),
        ("special_tokens_map.json", {"mask_token": LSTRIP}, True),
        ("tokenizer_config.json", {"added_tokens_decoder": {"4": LSTRIP}}, True),
    ],
    ids=["nothing", "name", "map", "decoder"],
)
def test_the_space_before_a_mask(tmp_path, file, content, takes_space):
    # As in transformers 5.24, which forgets the space of a folder that says nothing.
    path = write_vocabulary(tmp_path, JOINED)
    if file:
        (tmp_path / file).write_text(json.dumps(content))
    tokenizer = load_tokenizer(path, do_lower_case=False, hugging_face=True)
    (found,) = tokens_of_each(tokenizer, "the <mask> cat")
    assert found == ["t", "he", *([] if takes_space else ["Ġ"]), "<mask>", "Ġcat"]
    # A copy, in either format, keeps it.
    copy_tokenizer(path, tmp_path / "copy", hugging_face=True)
    for hugging_face in (False, True):
        again = load_tokenizer(f"{tmp_path}/copy/vocab.json", False, hugging_face=hugging_face)
        assert tokens_of_each(again, "the <mask> cat") == [found]
    if not file:  # nor does one that is read without Hugging Face's rules
        copy_tokenizer(path, tmp_path)
        for hugging_face in (False, True):
            tokenizer = load_tokenizer(path, False, hugging_face=hugging_face)
            assert tokens_of_each(tokenizer, "a <mask>") == [["a", "<mask>"]]


def test_settings_of_the_folder(tmp_path):
    for config, tokens in (
        ({}, "t he <mask> Ġcat [ E 1 ]"),
        ({"add_prefix_space": True}, "Ġthe <mask> Ġcat [ E 1 ]"),
        ({"mask_token": {"content": "<mask>"}}, "t he Ġ <mask> Ġcat [ E 1 ]"),
        ({"additional_special_tokens": ["[E1]", {"content": "cat", "lstrip": True}]}, None),
    ):
        path = write_vocabulary(tmp_path, JOINED)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = load_tokenizer(path, do_lower_case=False)
        (found,) = tokens_of_each(tokenizer, "the <mask> cat[E1]")
        assert " ".join(found) == (tokens or "t he <mask> cat [E1]")
        assert tokenizer.vocab.get("[E1]") == (None if tokens else len(tokenizer.vocab) - 2)


def test_places_and_words(tokenizer):
    the, cat = [("t", "t", True), ("he", "he", False)], [("Ġ", "", True), ("Ġcat", "cat", True)]
    accent = [("Ġ", "", True), ("Ã", "é", False), ("©", "é", False)]
    number = [("12", "12", True), (".", ".", True)]
    assert placed_pieces(tokenizer, "the  cat é12.") == [*the, *cat, *accent, *number]
    assert tokenizer.pieces("") == []
    (ids,) = ids_of_each(tokenizer, [" the12.cat"])
    assert tokenizer.words_of(ids) == "the12 . cat"
    assert tokenizer.words_of(ids[2:]) == ". cat"


def test_words_for_whole_word_masking(tokenizer):
    """A word begins with a space, or with the text."""
    texts = ["the cat", "", "12 t.", " the"]
    ids, splits = tokenizer.encode_for_masking(texts)
    real, same_splits = tokenizer.encode(texts)
    assert splits.tolist() == same_splits.tolist()
    assert [tokenizer.aliases.get(i, i) for i in ids.tolist()] == real.tolist()
    continued = [i in tokenizer.continuations for i in ids.tolist()]
    #   t      he    Ġcat   12     Ġt     .     Ġthe
    assert continued == [False, True, False, False, False, True, False]
    assert tokenizer.continuations.isdisjoint(range(5))  # the special tokens


def test_the_ending_tells_the_kind_and_the_layout_is_robertas(vocab_file, tokenizer):
    assert vocabulary_name(vocab_file) == vocabulary_name("A.JSON") == "vocab.json"
    assert vocabulary_name("S.MODEL") == vocabulary_name("s.model") != "vocab.txt"
    merges_file = vocab_file.replace("vocab.json", "merges.txt")
    assert vocabulary_files(vocab_file) == {"vocab.json": vocab_file, "merges.txt": merges_file}
    assert tokenizer.layout == sequences.Layout(0, 2, separators=2, second_segment=0)


def test_bad_files_and_other_wrong_use(tmp_path, tokenizer, vocab_file):
    refuses("absent.json cannot be read", BytePairTokenizer, str(tmp_path / "absent.json"))
    message = "text as it is written; set --do_lower_case=False"
    refuses(message, load_tokenizer, vocab_file, do_lower_case=True)
    refuses("not one string", tokenizer.encode, "cats", kind=TypeError)
    for vocab, merges, message in (
        (None, None, r"merges\.txt cannot be read \(.*\); it says how the bytes of .* are merged"),
        ("[1, 2]", "", r"must map tokens to ids, .*; received \[1, 2\]"),
        ('{"a": 0, "b": 2}', "", r"the numbers from 0 on, each once; received {'a': 0, 'b': 2}"),
        ('{"a": "0"}', "", "each once; received {'a': '0'}"),
        ('{"a": [2]}', "", "must map tokens to ids"),
        ('{"\\udc00": 0}', "", r"'\\udc00' has half a surrogate pair"),
        ("[PAD]\n[UNK]", "", "must map tokens to ids, .*; it is not JSON"),
        ("\udcff", "", "vocab.json, line 1, is not UTF-8"),
        ('{"<s>": 0, "<mask>": 1}', "", "lacks <unk>, </s>; RoBERTa's has <s>, <pad>, </s>"),
        (None, "#version: 0.2\nĠ zz\n", "s.txt: each line must have two .* `zz` out of voca"),
        (None, "Ġ\n", "merges.txt: each line must have two tokens of "),
    ):
        path = write_vocabulary(tmp_path, JOINED)
        os.remove(tmp_path / "merges.txt")
        if vocab is not None:
            Path(path).write_bytes(vocab.encode(errors="surrogateescape"))
        if merges is not None:
            (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
        refuses(message, load_tokenizer, path, do_lower_case=False, needs_mask=True)


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    source = Path(os.environ["BERT_TF_GOLDEN"]) / "roberta" / "tokenizer"
    folder = tmp_path_factory.mktemp("golden")
    for name in ("vocab.json", "merges.txt", "lines.jsonl", "ids.jsonl"):
        (folder / name).write_bytes(gzip.decompress((source / f"{name}.gz").read_bytes()))
    (folder / "special.jsonl").write_bytes((source / "special.jsonl").read_bytes())
    return load_tokenizer(str(folder / "vocab.json"), False, needs_mask=True), folder


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@needs_golden
def test_every_id_is_hugging_faces(golden):
    tokenizer, folder = golden
    found = ids_of_each(tokenizer, lines(folder / "lines.jsonl"))
    assert found == lines(folder / "ids.jsonl")


@needs_golden
def test_pairs_truncation_and_special_tokens_are_hugging_faces(golden):
    tokenizer, folder = golden
    for call in lines(folder / "special.jsonl"):
        both = ids_of_each(tokenizer, [call["text"], call.get("text_pair", "")])
        length = sum(map(len, both)) + tokenizer.layout.num_special(bool(both[1]))
        length = min(length, call.get("max_length", length))
        row = sequences.truncate_and_pack(*both, length, tokenizer.layout)
        assert row["input_ids"] == call["input_ids"], call


def test_lower_casing_before_the_tokenizer(tmp_path):
    path = write_vocabulary(tmp_path, JOINED)
    config = {"additional_special_tokens": ["[E1]"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(path, do_lower_case=False, hugging_face=True)
    lowering = tokenizer.after_lowering()
    assert tokens_of_each(lowering, "THE CAT <mask> <MASK>", "[E1] The[e1]") == [
        "t he Ġcat <mask> Ġ < m a s k >".split(),
        "[E1] Ġthe [ e 1 ]".split(),
    ]
    assert tokens_of_each(tokenizer, "THE") == [["T", "H", "E"]]
