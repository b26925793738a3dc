"""What the tools and the library do with the folder of an ELECTRA, as its pre-training left it."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.files import checkpoints
from bert_tf.model.family import ElectraConfig
from bert_tf.tasks.extraction.run import extract_features
from bert_tf.tasks.extraction.settings import ExtractionSettings
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from bert_tf.tasks.squad.model import JointSquadModel
from tests.support.model_folders import CONFIG, VOCAB, write_model
from tests.support.objectives import set_random_weights
from tests.support.refusals import refuses
from tools.extend_vocabulary import ExtensionSettings, extend_vocabulary

SIZES = {**CONFIG, "model_type": "electra", "embedding_size": 6}


def written(folder, model):
    """Writes a model with random weights and returns the path of the folder and the weights."""
    weights = set_random_weights(model, seed=3)
    path = Path(write_model(folder, weights))
    (path / "bert_config.json").write_text(json.dumps(SIZES))
    return path, weights


@pytest.mark.parametrize("untied", [False, True])
def test_new_words_reach_every_table_of_an_electra(tmp_path, untied):
    options = {"generator_hidden_size": 0.5, "untied_generator_embeddings": untied}
    config = ElectraConfig.from_dict(SIZES)
    path, weights = written(tmp_path / "old", ElectraPretrainingModel(config, **options))
    (path / "text.txt").write_text("cats cats cats do\ue000gs dogs\n")
    files = {"input_file": "text.txt", "init_checkpoint": "bert_model.ckpt"}
    files |= {"bert_config_file": "bert_config.json", "vocab_file": "vocab.txt"}
    files = {flag: str(path / name) for flag, name in files.items()}
    output = tmp_path / "new"
    extend_vocabulary(ExtensionSettings(**files, output_dir=str(output), num_words=2, min_count=2))
    found = checkpoints.CheckpointReader(str(output)).read_weights()
    tables = {"electra/embeddings/word_embeddings", "generator_predictions/output_bias"}
    tables |= {"generator/embeddings/word_embeddings"} if untied else set()
    pieces = [[VOCAB.index(word), VOCAB.index("##s")] for word in ("cat", "dog")]
    for name, value in weights.items():
        if name in tables:
            value = np.concatenate([value, [value[rows].mean(axis=0) for rows in pieces]])
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
    assert (output / "vocab.txt").read_text().split()[len(VOCAB) :] == ["cats", "dogs"]
    settings = json.loads((output / "tokenizer_config.json").read_text())
    assert settings == {"do_lower_case": True, "drop_category_c": True}


def test_vectors_of_an_electra(tmp_path):
    config = ElectraConfig.from_dict(SIZES)
    path, _ = written(tmp_path, ElectraPretrainingModel(config, generator_hidden_size=1.0))
    (path / "text.txt").write_text("the cat sat\n")
    files = {"input_file": "text.txt", "init_checkpoint": "bert_model.ckpt"}
    files |= {"vocab_file": "vocab.txt", "output_file": "found.npz"}
    options = {"output_format": "npz", "outputs": "pooled_vector,mean_vector", "layers": "-1"}
    options |= {flag: str(path / name) for flag, name in files.items()}
    settings = ExtractionSettings(**options, max_seq_length=8)
    extract_features(config, tf.distribute.get_strategy(), settings)
    found = np.load(path / "found.npz")
    model = bert_tf.load(path)
    for pooling, name in (("cls", "pooled_vector"), ("mean", "mean_vector")):
        vector = model.encode(["the cat sat"], pooling=pooling, normalize=False)
        np.testing.assert_allclose(found[name].reshape(1, -1), vector, rtol=1e-5, atol=1e-6)


def test_electra_s_heads_for_answers_are_not_exported(tmp_path):
    path, _ = written(tmp_path / "squad", JointSquadModel(ElectraConfig.from_dict(SIZES)))
    for output_format in ("saved_model", "onnx", "litert"):
        output = tmp_path / output_format
        settings = ExportSettings(input=str(path), format=output_format, output=str(output))
        refuses("has ELECTRA's heads for questions, which cannot be", export, settings)
        assert not output.exists()
