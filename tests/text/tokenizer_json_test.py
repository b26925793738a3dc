"""Tests of what `tokenizer.json` says of special tokens around texts, and of its numbers."""

import json

import pytest

from bert_tf.text.tokenizer_json import _check_layout
from bert_tf.text.tokenizers import VocabularySource
from tests.support.refusals import refusal

VOCAB = {token: i for i, token in enumerate("[PAD] [UNK] [CLS] [SEP] [MASK] a <s> </s>".split())}
MODEL = {"type": "WordPiece", "vocab": VOCAB, "unk_token": "[UNK]"}
CONTENT = {
    "version": "1.0",
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": MODEL,
}
BERT = "[CLS]:0 A:0 [SEP]:0", "B:1 [SEP]:1"
ROBERTA = "<s>:0 A:0 </s>:0", "</s>:0 B:0 </s>:0"


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
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": special,
    }


def of_class(kind, first, last):
    """Returns a post-processor of a kind; its tokens are (name, id)."""
    return {"type": kind, "cls": [*first], "sep": [*last], "trim_offsets": True}


@pytest.mark.parametrize(
    "processor",
    [
        template(*BERT),
        template(*ROBERTA),
        of_class("BertProcessing", ("[CLS]", 2), ("[SEP]", 3)),
        of_class("RobertaProcessing", ("<s>", 6), ("</s>", 7)),
    ],
)
def test_special_tokens_as_in_the_family(processor):
    _check_layout(processor, VOCAB, "tokenizer.json")


@pytest.mark.parametrize(
    "processor",
    [
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
        {**template(*BERT), "special_tokens": {"[CLS]": {"ids": [2, 2]}, "[SEP]": {"ids": [3]}}},
        of_class("BertProcessing", ("[CLS]", 3), ("[SEP]", 2)),
        of_class("RobertaProcessing", ("[CLS]", 2), ("[SEP]", 3)),
        of_class("BertProcessing", ("<s>", 6), ("</s>", 7)),
        of_class("RobertaProcessing", ("<s>", 0), ("</s>", 2)),
        {"type": "Sequence", "processors": [template(*BERT)]},
    ],
)
def test_other_special_tokens_are_refused(processor):
    assert refusal(_check_layout, processor, VOCAB, "tokenizer.json").startswith(
        "tokenizer.json: post_processor must put [CLS] before a text and [SEP] after it, or <s> and"
        " </s>, and between two texts [SEP], or </s></s>, with the ids of the vocabulary and BERT's"
        " segments; received {'type': "
    )


@pytest.mark.parametrize("value", [0, -1, None, "100", 2.5, True, [100]])
def test_a_longest_word_that_is_no_number(tmp_path, value):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**CONTENT, "model": {**MODEL, "max_input_chars_per_word": value}}))
    assert refusal(VocabularySource, str(path)) == (
        f"{path}: max_input_chars_per_word must be a whole number above 0; received {value!r}"
    )


def test_another_version_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**CONTENT, "version": "2.0"}))
    assert "version must be \"1.0\", not '2.0'" in refusal(VocabularySource, str(path))


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_a_class_without_rules_of_its_own_needs_a_post_processor(tmp_path, name):
    path, config = tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**CONTENT, "post_processor": None}))
    config.write_text(json.dumps({"tokenizer_class": "BertTokenizerFast"}))
    VocabularySource(str(path))
    config.write_text(json.dumps({"tokenizer_class": name}))
    assert refusal(VocabularySource, str(path)) == (
        f"{tmp_path}: tokenizer.json must have a post_processor, since {name} takes the file as it"
        " is: without one, texts get no special tokens, such as [CLS]. Add the post_processor, or"
        " correct tokenizer_class in tokenizer_config.json"
    )
    path.write_text(json.dumps({**CONTENT, "post_processor": template(*BERT)}))
    VocabularySource(str(path))
