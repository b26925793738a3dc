"""Tests of bert_tf.model.layer_scopes."""

import pytest

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig
from bert_tf.model.layer_scopes import layerwise_lr_factors, parse_frozen_layers
from bert_tf.optimization import AdamOptions

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


def electra_rates(decay, n_layers):
    """The factors of google-research/electra: `_get_layer_lrs` for a rate of 1."""
    depths = {"/embeddings/": 0, "/embeddings_project/": 0, "task_specific/": n_layers + 2}
    depths |= {f"encoder/layer_{layer}/": layer + 1 for layer in range(n_layers)}
    return {key: decay ** (n_layers + 2 - depth) for key, depth in depths.items()}


@pytest.mark.parametrize("layers", [1, 3, 12])
@pytest.mark.parametrize("decay", [1.0, 0.8, 0.03])
def test_the_factors_are_electra_s(layers, decay):
    config = BertConfig(10, num_hidden_layers=layers)
    factors = layerwise_lr_factors(decay, config.layer_scopes)
    adam = AdamOptions(learning_rate_factors=tuple(factors.items()))
    for key, rate in electra_rates(decay, layers).items():
        name = f"bert/{key.strip('/')}/x/kernel"
        name = name.replace("embeddings_project", "encoder/embedding_hidden_mapping_in")
        assert adam.learning_rate_factor(name.replace("bert/task_specific/", "")) == rate, key
    assert adam.learning_rate_factor("bert/pooler/dense/kernel") == decay
    assert adam.learning_rate_factor("output_weights") == 1.0


def test_each_group_of_albert_counts_as_one_layer():
    config = AlbertConfig(10, num_hidden_layers=6, num_hidden_groups=2)
    expected = {
        "bert/embeddings/": 0.5**4,
        "bert/encoder/embedding_hidden_mapping_in/": 0.5**4,
        "bert/encoder/transformer/group_0/": 0.5**3,
        "bert/encoder/transformer/group_1/": 0.5**2,
        "bert/pooler/": 0.5,
    }
    found = layerwise_lr_factors(0.5, config.layer_scopes)
    assert {k: v for k, v in found.items() if k.startswith("bert/")} == expected
