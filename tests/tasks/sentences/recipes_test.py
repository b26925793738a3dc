"""Tests of flags/sentences: Sentence-BERT's settings and figure; the small tables."""

import dataclasses

from bert_tf.datasets.tables import table_path
from bert_tf.tasks.sentences.data import read_sentences
from bert_tf.tasks.sentences.settings import SentenceSettings
from tests.tasks.classification.recipes_test import FLAGS, comment, values


def test_there_is_no_other_recipe():
    assert [path.name for path in (FLAGS / "sentences").iterdir()] == ["stsb_base.flags"]


def test_settings_of_sentence_bert():
    path = FLAGS / "sentences" / "stsb_base.flags"
    found = values(path)
    assert found.keys() <= {f.name for f in dataclasses.fields(SentenceSettings)} | {
        "bert_config_file"
    }
    assert found["bert_config_file"] == "flags/models/uncased_L-12_H-768_A-12/bert_config.json"
    # Its section 3.1, and the range of the scores of STS-B.
    assert found["train_batch_size"] == "16" and found["learning_rate"] == "2e-5"
    assert found["warmup_proportion"] == "0.1" and found["score_scale"] == "5"
    assert "loss" not in found and SentenceSettings.loss == "cosine"
    assert "84.67 on the test set" in comment(path).split("Expected:")[1]


def test_the_small_files_beside_the_quickstart_can_be_read():
    folder = FLAGS / "quickstart" / "sentences"
    columns = {"text_a_column": "sentence1", "text_b_column": "sentence2"}
    texts = {}
    for name, count in (("train", 160), ("dev", 48), ("test", 5)):
        more = {} if name == "test" else {"label_column": "score"}
        path = table_path(name, str(folder))
        pairs = read_sentences(path, {**columns, **more}, True, None, "It", score_scale=5.0)
        assert len(pairs) == count
        texts[name] = {text for pair in pairs for text in pair.texts}
    assert not texts["dev"] & texts["train"] and not texts["test"] & texts["train"]
