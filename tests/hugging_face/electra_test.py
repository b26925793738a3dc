"""ELECTRA's two models in Hugging Face's format."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.model.family import ElectraConfig
from bert_tf.model_folder.hugging_face.conversion import ConvertedModel, to_safetensors
from bert_tf.model_folder.writer import write_model
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from tests.support.objectives import set_random_weights
from tests.support.pretraining_runs import CONFIG, WORDS
from tests.support.refusals import refusal

pytestmark = pytest.mark.usefixtures("eager")

pytest.importorskip("safetensors")
CONFIGURATION = {**CONFIG, "hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}


def made(width, **options):
    """Returns a configuration, and random weights of both models."""
    config = ElectraConfig.from_dict({**CONFIGURATION, "embedding_size": width})
    model = ElectraPretrainingModel(config, generator_hidden_size=0.5, **options)
    return config, set_random_weights(model, seed=3), model


def written(folder, weights, config, generator=False, labels=None):
    """Writes a folder in Hugging Face's format; returns its `config.json`."""
    tensors, content = to_safetensors(weights, config, "here", labels, as_generator=generator)
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(tensors)
    (folder / "config.json").write_text(json.dumps(content))
    return content


@pytest.mark.parametrize("width", [6, 128])
def test_both_models_go_both_ways(tmp_path, width):
    config, weights, _ = made(width)
    content = written(tmp_path, weights, config)
    assert content["architectures"] == ["ElectraForPreTraining"]
    assert (content["hidden_act"], content["embedding_size"]) == ("gelu", width)
    found = ConvertedModel(str(tmp_path))
    expected = {k: v for k, v in weights.items() if not k.startswith("generator")}
    assert found.weights.keys() == expected.keys()
    assert all(np.array_equal(found.weights[k], v) for k, v in expected.items())
    assert found.config.to_dict() == {**config.to_dict(), "embedding_size": width}

    content = written(tmp_path, weights, config, generator=True)
    assert content["architectures"] == ["ElectraForMaskedLM"]
    found = ConvertedModel(str(tmp_path))
    sizes = (found.config.hidden_size, found.config.embedding_width, found.config.hidden_act)
    assert sizes == (64, width, "gelu_erf")
    for name, value in weights.items():
        if name.startswith("generator/"):
            name = f"electra/{name.removeprefix('generator/')}"
        elif not name.startswith(("generator_predictions/", "electra/embeddings/")):
            continue
        np.testing.assert_array_equal(found.weights[name], value)

    # A tied generator is written with the layers of the discriminator.
    config, weights, _ = made(width, untied_generator=False)
    content = written(tmp_path, weights, config, generator=True)
    assert content["architectures"] == ["ElectraForMaskedLM"]
    found = ConvertedModel(str(tmp_path)).weights
    assert found.keys() == {x for x in weights if not x.startswith("discriminator_predictions/")}
    assert all(np.array_equal(value, weights[name]) for name, value in found.items())


def test_a_generator_fills_masks_and_a_discriminator_gives_vectors(tmp_path):
    config, weights, model = made(6, temperature=1.0)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    written(tmp_path, weights, config, generator=True)
    loaded = bert_tf.load(str(tmp_path))
    assert loaded.heads == ("masked_lm",)
    ids = tf.constant([[2, 9, 4, 3]])
    output = model.generator(ids)
    logits = model.generator_predictions(
        output.sequence_output, tf.constant([[2]]), output.embedding_table
    )
    best = loaded.fill_mask("w4 [MASK]", top_k=1)
    assert best[0][0].token == WORDS[int(tf.argmax(logits[0]))]

    folder = tmp_path / "ours"
    folder.mkdir()
    vocabulary = {"vocab.txt": ("\n".join(WORDS) + "\n").encode()}
    write_model(str(folder), weights, config, vocabulary, True, None)
    loaded = bert_tf.load(str(folder))
    vectors = loaded.encode(["w4 w4"], pooling="cls", normalize=False)
    expected = model.bert(tf.constant([[2, 9, 9, 3]])).pooled_output
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)
    told = refusal(loaded.encode, ["w4"], pooling="pooled")
    assert "has no pooler, so pooling must be mean or cls" in told
    told = refusal(loaded.fill_mask, "w4 [MASK]")
    assert re.search("needs a generator without a discriminator; .*/ours has both", told)
    sizes = {**config.to_dict(), "model_type": "electra", "num_hidden_layers": 1}
    (folder / "bert_config.json").write_text(json.dumps(sizes))
    told = refusal(bert_tf.load, str(folder))
    assert re.search("num_hidden_layers is 1, but .* weights of 2 layers", told)


def test_a_config_that_does_not_fit_is_refused(tmp_path):
    """Hugging Face's head of a generator ignores hidden_act; a discriminator's does not."""
    config, weights, _ = made(6)
    content = written(tmp_path, weights, config)
    for changes, message in (
        ({"hidden_act": "gelu_new"}, "the GELU of an ELECTRA must be the exact"),
        ({"embedding_size": 0}, "embedding_size must be a whole number"),
        ({"embedding_size": 7}, "wrong shape"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**content, **changes}))
        assert message in refusal(ConvertedModel, str(tmp_path))
    for activation in ("relu", "tanh"):
        config.hidden_act = activation
        message = f"always has GELU, .* hidden_act, which is '{activation}'$"
        told = refusal(to_safetensors, weights, config, "here", as_generator=True)
        assert re.search(message, told)
        assert to_safetensors(weights, config, "here")[1]["hidden_act"] == activation
        config.hidden_act = "gelu_erf"
        content = written(tmp_path, weights, config, generator=True)
        (tmp_path / "config.json").write_text(json.dumps({**content, "hidden_act": activation}))
        assert re.search(message, refusal(ConvertedModel, str(tmp_path)))


def test_what_has_no_equivalent_is_refused():
    config, weights, _ = made(6)
    alone = {k: v for k, v in weights.items() if not k.startswith("generator")}
    told = refusal(to_safetensors, alone, config, "here", as_generator=True)
    assert "here has no generator beside its discriminator" in told
    body = {k: v for k, v in alone.items() if not k.startswith("discriminator")}
    classifier = {"output_weights": np.zeros([3, 128]), "output_bias": np.zeros(3)}
    for head, labels, message in (
        (classifier, ["a", "b", "c"], "ElectraForSequenceClassification has a hidden layer before"),
        ({"task_specific/squad/dense/bias": np.zeros(1)}, None, "it has ELECTRA's heads for que"),
        ({"output_weights": np.zeros([1, 128])}, None, "ElectraForMultipleChoice has"),
    ):
        told = refusal(to_safetensors, {**body, **head}, config, "here", labels)
        assert told.startswith(f"here cannot be converted: {message}")


def test_only_taggers_of_entities_are_read(tmp_path):
    config, weights, _ = made(6)
    body = {k: v for k, v in weights.items() if k.startswith("electra/")}
    head = {"output_weights": np.ones([3, 128], np.float32), "output_bias": np.ones(3, np.float32)}
    content = written(tmp_path, {**body, **head}, config, labels=["O", "B-x", "I-x"])
    assert content["architectures"] == ["ElectraForTokenClassification"]
    del content["label2id"], content["id2label"]
    path = tmp_path / "config.json"
    for labels in (["O", "B-x", "S-y"], ["NOUN", "VERB", "O"], None):
        names = {"id2label": dict(enumerate(labels))} if labels else {}
        path.write_text(json.dumps(content | names))
        if labels and labels[0] == "O":
            assert ConvertedModel(str(tmp_path)).labels == labels
        else:
            told = refusal(ConvertedModel, str(tmp_path))
            assert "it tags words with classes that are not IOB or BIOES" in told
        path.write_text(
            json.dumps(content | names | {"architectures": ["ElectraForSequenceClassification"]})
        )
        told = refusal(ConvertedModel, str(tmp_path))
        assert "ForSequenceClassification has a hidden layer before its" in told
