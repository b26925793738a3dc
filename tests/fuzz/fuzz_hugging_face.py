"""Fuzzes what is read of Hugging Face's folders beside the weights: config.json and casing."""

import copy
import json
import random
from pathlib import Path

from bert_tf.files.model_notes import labels_in, write_labels
from bert_tf.model_folder.hugging_face import config as hugging_face_config
from bert_tf.text.casing import read_casing, write_casing
from tests.fuzz.cases import attempt, damage
from tests.support.hugging_face_folders import CONFIG

_VALUES = (
    *(None, True, False, 0, -1, 1, 3, 10**12, 10**400, 0.5, 1e-7, "", "x", "3", "gelu", "GELU"),
    *([], {}, ["gelu"], {"a": 1}, "x" * 5000, ["x" * 5000] * 3, {"x" * 5000: [[]]}, "\ud800"),
    *({"0": "a", "1": "b"}, {"0": "a", "1": "a"}, {"0": "a\n", "1": 2}, {"0": "\ud800", "1": "b"}),
)
_KEYS = (*CONFIG, "id2label", "is_decoder", "add_cross_attention", "architectures")


def _json(random: random.Random, content: object) -> bytes:
    text = json.dumps(content)
    if random.random() < 0.05:
        text = random.choice(["[", '{"a":']) * 100_000
    if random.random() < 0.05:
        text = text.replace("0.5", random.choice(["NaN", "Infinity", "1e999"]))
    data = random.choice([b"", b"\xef\xbb\xbf"]) + text.encode()
    return damage(random, data) if random.random() < 0.2 else data


def fuzz_hugging_face_configurations(random: random.Random, folder: Path) -> None:
    content = copy.deepcopy(CONFIG) | {"id2label": {"0": "no", "1": "yes"}}
    for _ in range(random.choice([0, 1, 1, 2])):
        content[random.choice(_KEYS)] = random.choice(_VALUES)
    content = random.choice([content] * 20 + [[content], None, "x" * 5000])
    path = folder / "config.json"
    path.write_bytes(_json(random, content))

    def read() -> tuple:
        config = hugging_face_config.read_config(str(path))
        bert_config = hugging_face_config.to_bert_config(config, str(path))
        labels = hugging_face_config.class_names(config, 2, str(path))
        task = hugging_face_config.task_of(config)
        hugging_face_config.module_of(bert_config).parts(bert_config, task)
        return config, bert_config, labels

    message, found = attempt(read, naming=str(path))
    if message is not None:
        return
    config, bert_config, labels = found
    assert bert_config.hidden_size % bert_config.num_attention_heads == 0
    sizes = bert_config.to_dict()
    for key, value in sizes.items():
        assert key == "hidden_act" or value == config.get(key, value), key
    assert labels is None or labels == [config["id2label"]["0"], config["id2label"]["1"]]
    write_labels(str(folder), labels)
    assert labels_in(str(folder)) == labels
    # And back: what is written is JSON that is read as the same model.
    written = hugging_face_config.to_config(bert_config, "ForTokenClassification", labels, 2)
    path.write_text(json.dumps(written, allow_nan=False))
    again = hugging_face_config.read_config(str(path))
    assert hugging_face_config.to_bert_config(again, str(path)).to_dict() == sizes
    assert hugging_face_config.class_names(again, 2, str(path)) == labels


def fuzz_casing_records(random: random.Random, folder: Path) -> None:
    content = {"tokenizer_class": "BertTokenizer", "model_max_length": 0.5, "do_lower_case": True}
    for _ in range(random.choice([0, 1, 2])):
        key = random.choice([*content, "strip_accents", "\ud800"])
        content[key] = random.choice(_VALUES)
    path = folder / "tokenizer_config.json"
    path.write_bytes(_json(random, content))
    message, casing = attempt(lambda: read_casing(str(folder)), naming=str(path))
    wanted = random.choice([True, False, None])
    again, _ = attempt(lambda: write_casing(str(folder), wanted), naming=str(path))
    assert again == message
    if message is None:
        assert casing in (True, False, None)
        assert read_casing(str(folder)) is wanted
