"""Tests of tokenizers from Hugging Face's files: what each file may hold."""

import json

import pytest

from bert_tf.text.tokenizers import VocabularySource, load_tokenizer, read_vocabulary
from tests.support.encoded import tokens_of_each
from tests.support.refusals import refusal
from tests.support.tokenizer_json import word_piece_json


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        ("vocab.txt", "give --vocab_file={}/vocab.txt"),
        ("spiece.model config.json", "give --vocab_file={}/spiece.model"),
        ("tokenizer.json", "give --vocab_file={}/tokenizer.json"),
        ("words.txt", "{} holds 'words.txt'"),
        ("", "{} holds nothing"),
    ],
)
def test_a_folder_is_no_vocabulary(tmp_path, names, remedy):
    for name in names.split():
        (tmp_path / name).touch()
    told = f"--vocab_file={tmp_path} must be a file, not a folder; {remedy.format(tmp_path)}"
    assert refusal(read_vocabulary, str(tmp_path)) == told
    assert refusal(load_tokenizer, str(tmp_path), True) == told


def test_an_electra_has_its_own_rules_unless_the_folder_is_hugging_faces(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\n[CLS]\n[SEP]\nab\nc\n")
    text = "a\ue000b \u0378c"
    own = load_tokenizer(str(path), True, drop_category_c=True)
    assert tokens_of_each(own, text) == [["ab", "c"]]
    assert tokens_of_each(load_tokenizer(str(path), True), text) == [["[UNK]", "[UNK]"]]
    for name, content in own.settings.files().items():  # what is written is read again
        (tmp_path / name).write_text(content)
    assert tokens_of_each(load_tokenizer(str(path), True), text) == [["ab", "c"]]
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ElectraTokenizer"}')
    of_hugging_face = load_tokenizer(str(path), True, drop_category_c=True)
    assert tokens_of_each(of_hugging_face, text) == [["ab", "[UNK]"]]


VOCAB = {token: i for i, token in enumerate("[PAD] [UNK] [CLS] [SEP] [MASK] a <s> </s>".split())}
BERT = "[CLS]:0 A:0 [SEP]:0", "B:1 [SEP]:1"
ROBERTA = "<s>:0 A:0 </s>:0", "</s>:0 B:0 </s>:0"


def write(folder, **parts):
    """Writes a tokenizer.json; returns its path."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(word_piece_json(VOCAB, **parts)))
    return str(path)


def template(single, rest, **ids):
    """Returns a TemplateProcessing; a pair of texts is `single` with the `rest` after it."""

    def parts(text):
        pairs = [part.rsplit(":", 1) for part in text.split()]
        kinds = ["Sequence" if name in "AB" else "SpecialToken" for name, _ in pairs]
        return [
            {kind: {"id": name, "type_id": int(number)}}
            for kind, (name, number) in zip(kinds, pairs, strict=True)
        ]

    special = {
        name: {"id": name, "ids": [i], "tokens": [name]} for name, i in {**VOCAB, **ids}.items()
    }
    single, pair = parts(single), parts(f"{single} {rest}")
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def of_class(kind, first, last):
    """Returns a post-processor of a kind; its tokens are (name, id)."""
    more = {"trim_offsets": True, "add_prefix_space": True} if kind == "RobertaProcessing" else {}
    return {"type": kind, "cls": [*first], "sep": [*last], **more}


def test_special_tokens_as_in_the_family(tmp_path):
    for processor in (
        template(*BERT),
        template(*ROBERTA),
        of_class("BertProcessing", ("[CLS]", 2), ("[SEP]", 3)),
        of_class("RobertaProcessing", ("<s>", 6), ("</s>", 7)),
        {"type": "Sequence", "processors": [template(*BERT)]},
    ):
        assert VocabularySource(write(tmp_path, post_processor=processor)).own.has_layout
    for processor in (
        template(BERT[0], "B:0 [SEP]:0"),
        template(BERT[0], "[SEP]:0 B:1 [SEP]:1"),
        template(BERT[0], "[CLS]:0 B:1 [SEP]:1"),
        template(BERT[0], "B:1"),
        template("[CLS]:1 A:0 [SEP]:0", BERT[1]),
        template("[CLS]:0 A:0 [SEP]:0", ROBERTA[1]),
        template(ROBERTA[0], "B:0 </s>:0"),
        template(*BERT, **{"[CLS]": 5}),
        template(*ROBERTA, **{"</s>": 3}),
        {**template(*BERT), "pair": []},
        {**template(*BERT), "special_tokens": {}},
        of_class("BertProcessing", ("[CLS]", 3), ("[SEP]", 2)),
        of_class("RobertaProcessing", ("[CLS]", 2), ("[SEP]", 3)),
        of_class("BertProcessing", ("<s>", 6), ("</s>", 7)),
        of_class("RobertaProcessing", ("<s>", 0), ("</s>", 2)),
    ):
        path = write(tmp_path, post_processor=processor)
        assert refusal(VocabularySource, path).startswith(
            f"{path}: post_processor must put [CLS] before a text and [SEP] after it, or <s> and"
            " </s>, and between two texts [SEP], or </s></s>, with the ids of the vocabulary and"
            " BERT's segments; received {'type': "
        ), processor


MODEL = word_piece_json(VOCAB)["model"]
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
ABSENT = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]}


def test_what_is_refused(tmp_path):
    for parts, message in (
        ({"model": {**MODEL, "max_input_chars_per_word": 0}}, "must be above 0"),
        ({"model": {**MODEL, "max_input_chars_per_word": "100"}}, "cannot read it (invalid type"),
        ({"model": {**MODEL, "unk_token": "<unk>"}}, 'its model must be {"type": "WordPiece", '),
        ({"normalizer": {"type": "NFC"}}, 'its normalizer must be {"type": "BertNormalizer"}; rec'),
        ({"pre_tokenizer": None}, 'its pre_tokenizer must be {"type": "BertPreTokenizer"}; receiv'),
        ({"version": "2.0"}, "cannot read it (Unknown tokenizer version '2.0'"),
        ({"post_processor": ABSENT}, "cannot read it (data did not match any v"),
        ({"a\nb": 1}, "cannot read it ("),
        ({"model": {**MODEL, "vocab": {**VOCAB, "\ud8ff": 8}}}, "cannot read it"),
        ({"model": {**MODEL, "vocab": {**VOCAB, "x\n": 8}}}, "has a line b"),
        ({"model": {**MODEL, "vocab": {**VOCAB, "a ": 8}}}, "at their ends"),
        ({"model": {"type": "BPE", "vocab": VOCAB, "merges": [[1, 2]]}}, "cannot read it"),
        ({"model": {"type": "BPE", "vocab": VOCAB}}, "cannot read it"),
        ({"added_tokens": [{"id": 2**31, "content": "[UNK]", **FLAGS}]}, "an id"),
    ):
        path = write(tmp_path, **parts)
        told = refusal(load_tokenizer, path, True)
        assert told.startswith(f"{path}: ") and message in told


def test_a_class_without_rules_of_its_own_needs_a_post_processor(tmp_path):
    config = tmp_path / "tokenizer_config.json"
    for name in ("PreTrainedTokenizerFast", "TokenizersBackend"):
        path = write(tmp_path)
        config.write_text(json.dumps({"tokenizer_class": "BertTokenizerFast"}))
        VocabularySource(path)
        config.write_text(json.dumps({"tokenizer_class": name}))
        assert refusal(VocabularySource, path) == (
            f"{tmp_path}: tokenizer.json must have a post_processor, since {name} takes the file"
            " as it is: without one, texts get no special tokens, such as [CLS]. Add the"
            " post_processor, or correct tokenizer_class in tokenizer_config.json"
        )
        VocabularySource(write(tmp_path, post_processor=template(*BERT)))
