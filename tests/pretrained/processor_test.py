"""Which dtype a loaded model answers in, and what bfloat16 changes: no answer by much."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.files import checkpoints
from bert_tf.model import layers
from bert_tf.model.layers import ROUNDED
from bert_tf.pretrained import build
from tests.support.model_folders import random_weights, write_model
from tests.support.refusals import refusal

TEXTS = ["the cat sat on a mat .", ("paris is in france", "the dogs ran"), "a dog"]


def cpu_info(vendor, flags):
    core = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: X\nflags\t\t: fpu {flags} sse2\n"
    return 2 * f"{core}bugs\t\t: amx_bf16_is_none\n\n"


PROCESSORS = {
    "Sapphire Rapids": (cpu_info("GenuineIntel", "avx512_bf16 amx_bf16 amx_tile"), True),
    "Sapphire Rapids, AMX hidden": (cpu_info("GenuineIntel", "avx512f avx512_bf16"), False),
    "Zen 4": (cpu_info("AuthenticAMD", "avx512f avx512_bf16"), True),
    "Zen 3": (cpu_info("AuthenticAMD", "avx2"), False),
    "ARM": ("processor\t: 0\nFeatures\t: fp asimd bf16\n", False),
    "macOS": (None, False),
}


@pytest.fixture
def set_cpu(tmp_path, monkeypatch):
    def set_to(content):
        path = tmp_path / ("none" if content is None else "cpuinfo")
        if content is not None:
            path.write_text(content)
        monkeypatch.setattr(build, "_CPU_INFO", path)

    return set_to


def test_auto_is_bfloat16_where_the_processor_multiplies_it(set_cpu):
    for name, (content, multiplies) in PROCESSORS.items():
        set_cpu(content)
        assert build.multiplies_bfloat16() == multiplies, name
        assert build.answering_dtype("auto") == (ROUNDED if multiplies else "float32"), name


def test_slow_bfloat16_is_warned_of_once(set_cpu, caplog):
    build._warn.cache_clear()
    set_cpu(PROCESSORS["Zen 4"][0])
    assert build.answering_dtype("bfloat16") is ROUNDED
    assert not caplog.messages
    set_cpu(PROCESSORS["Zen 3"][0])
    for _ in range(3):
        assert build.answering_dtype("bfloat16") is ROUNDED
        assert build.answering_dtype("auto") == build.answering_dtype("float32")
    (message,) = caplog.messages
    assert message == (
        'dtype="bfloat16" is slow on this processor, which lacks fast bfloat16: on a similar'
        ' processor float32 was 1.9 times as fast. load(..., dtype="auto") chooses float32 here'
    )


def test_a_policy_or_a_dtype_stands_for_its_name_and_others_are_refused(folder):
    for dtype in ("float16", "bf16", 16):
        told = refusal(bert_tf.load, folder, dtype=dtype)
        assert "dtype must be one of float32, bfloat16, mixed_bfloat16" in told
    for dtype, name in (
        *((keras.DTypePolicy(x), x) for x in ("float32", "mixed_bfloat16", "bfloat16")),
        *((tf.bfloat16, "bfloat16"), (np.float32, "float32"), (np.dtype("float32"), "float32")),
    ):
        model = bert_tf.load(folder, dtype=dtype)
        assert model._dtype == name and model.model.dtype_policy.name == name


def test_vectors_are_float32_and_what_is_saved_is_not_rounded(folder, weights, tmp_path):
    rounded = bert_tf.load(folder, dtype="bfloat16")
    bert = rounded.model.bert
    kinds = {variable.dtype for variable in bert.variables if "LayerNorm" not in variable.path}
    assert kinds == {"bfloat16"}
    found, expected = rounded.encode(TEXTS), bert_tf.load(folder).encode(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert np.abs(found - expected).max() > 0
    saved = tmp_path / "saved"
    rounded.save(saved)
    reader = checkpoints.CheckpointReader(str(saved / "bert_model.ckpt"))
    for name in ("bert/embeddings/word_embeddings", "bert/encoder/layer_1/output/dense/kernel"):
        np.testing.assert_array_equal(reader.read(name), weights[name])
    bert.pooler.dense.bias.assign(np.ones(12))
    assert rounded._read("bert/pooler/dense/bias").tolist() == [1] * 12


@pytest.mark.slow
def test_every_method_answers_in_bfloat16(tmp_path_factory, folder):
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    tagger = write_model(tmp_path_factory.mktemp("tagger"), random_weights("tagger"), tags)
    answers = []
    for dtype in ("bfloat16", "float32"):
        model = bert_tf.load(folder, dtype=dtype)
        tagging = bert_tf.load(tagger, dtype=dtype)
        entities = tagging.tag("the cat ran", "none")
        assert [len(tags) for tags in tagging.predict([["the", "cat"]])] == [2]  # as a program
        again = pickle.loads(pickle.dumps(model))
        answers.append(
            [
                *[row.probability for row in model.classify(TEXTS)],
                *[filling.probability for filling in model.fill_mask("the [MASK] ran", 26)[0]],
                *model.attention("a cat").probabilities.ravel(),
                *again.encode(TEXTS, "pooled").ravel(),
                *[entity.probability for entity in entities],
                model.answer("who ran", "the cat ran in paris").log_odds,
            ]
        )
    found, expected = answers
    differences = np.abs(np.subtract(found, expected))
    # Where oneDNN has no bfloat16, more operations round: one of 163 numbers by 0.035.
    bound = 0.03 if layers._has_one_dnn() else 0.05
    assert 0 < np.sqrt(np.mean(differences**2)) < 0.008 and differences.max() < bound
