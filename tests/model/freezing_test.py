"""Tests of bert_tf.model.freezing."""

import pytest

from bert_tf.errors import UserError
from bert_tf.model.freezing import parse_frozen_layers

SCOPES = [f"bert/encoder/layer_{i}/" for i in range(12)]
NAMES = [
    "bert/embeddings/word_embeddings",
    "bert/encoder/embedding_hidden_mapping_in/kernel",
    "bert/encoder/layer_1/output/dense/kernel",
    "bert/encoder/layer_2/output/dense/kernel",
    "bert/encoder/layer_11/output/dense/kernel",
    "bert/pooler/dense/kernel",
    "output_weights",
]


@pytest.mark.parametrize(
    "text, frozen",
    [
        ("", []),
        ("all", NAMES[:6]),
        ("embeddings", NAMES[:2]),
        ("embeddings,1", NAMES[:3]),
        ("0-2", NAMES[2:4]),
        ("pooler,11-11", NAMES[4:6]),
    ],
)
def test_what_is_frozen(text, frozen):
    is_frozen = parse_frozen_layers(text, SCOPES)
    assert [name for name in NAMES if is_frozen(name)] == frozen


@pytest.mark.parametrize("text", ["12", "3-12", "5-3", "encoder", "1,two", "-1", "0-" + "9" * 5000])
def test_other_words_are_refused(text):
    message = "encoder layers from 0 to 11 and ranges of them such as 0-2, separated by commas; not"
    with pytest.raises(UserError, match=message):
        parse_frozen_layers(text, SCOPES)


@pytest.mark.parametrize("text", ["pooler", "0-2,pooler"])
def test_electra_has_no_pooler(text):
    scopes = [f"electra/encoder/layer_{i}/" for i in range(12)]
    with pytest.raises(UserError, match=f"--freeze_layers={text} names the pooler, which an ELEC"):
        parse_frozen_layers(text, scopes, has_pooler=False)
    is_frozen = parse_frozen_layers("embeddings,1", scopes, has_pooler=False)
    names = [name.replace("bert/", "electra/") for name in NAMES]
    names[1] = "electra/embeddings_project/kernel"
    assert [name for name in names if is_frozen(name)] == names[:3]
