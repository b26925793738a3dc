"""Everything is read and written through tf.io.gfile: a whole run on a file system of TensorFlow's.

`ram://` lives in this process alone, so the library's calls are chained here, not the programs.
"""

import dataclasses
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import input_pipeline
from bert_tf.files import storage
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.records import data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, RecordBatches
from tests.support.pretraining_runs import CONFIG, variables
from tests.support.trainers import make_trainer

WORDS = [f"word{i}" for i in range(30)]


def write(path, text):
    with tf.io.gfile.GFile(path, "w") as writer:
        writer.write(text)


def make_records(output_file):
    rng = np.random.RandomState(1)
    documents = [
        "\n".join(" ".join(rng.choice(WORDS, rng.randint(3, 7))) for _ in range(12))
        for _ in range(9)
    ]
    write("ram://made/text.txt", "\n\n".join(documents))
    write("ram://made/vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    settings = PretrainingDataSettings(
        input_file="ram://made/text.txt",
        output_file=output_file,
        vocab_file="ram://made/vocab.txt",
        max_seq_length=16,
        max_predictions_per_seq=3,
        dupe_factor=3,
        random_seed=5,
    )
    data.create_pretraining_data(settings)


def run(output_dir, num_steps, **more):
    config = BertConfig.from_json_file("ram://made/bert_config.json")
    settings = PretrainingSettings(
        input_file="ram://made/*.tfrecord",
        output_dir=output_dir,
        phases=[RecordBatches(16, num_steps, 4, 3)],
        evaluation_batches=RecordBatches(16, 0, 5, 3),
        do_train=True,
        do_eval=True,
        learning_rate=1e-2,
        num_warmup_steps=2,
        save_checkpoints_steps=5,
        keep_checkpoint_max=2,
    )
    settings = dataclasses.replace(settings, **more)
    return run_pretraining(config, tf.distribute.get_strategy(), settings)


@pytest.mark.slow
def test_records_training_resume_and_evaluation():
    make_records("ram://made/0.tfrecord,ram://made/1.tfrecord")
    write("ram://made/bert_config.json", json.dumps({**CONFIG, "vocab_size": 35}))
    begin, straight = "ram://out/resumed", "ram://out/straight"
    run(begin, 14, do_eval=False)
    results = run(begin, 21)
    assert results["global_step"] == 21
    with tf.io.gfile.GFile(f"{begin}/eval_results.txt") as reader:
        text = reader.read()
    assert text.count("\n") == 6 and "global_step = 21\n" in text
    names = set(tf.io.gfile.listdir(begin))
    assert {n for n in names if n.endswith(".index") and "input" not in n} == {
        "model.ckpt-20.index",
        "model.ckpt-21.index",
    }
    assert not {n for n in names if "unfinished" in n or "heartbeat" in n or "probe" in n}
    # The schedule is that of 21 steps in both, so the runs are not the same; what follows is.
    assert run(straight, 21) != results
    again = run(begin, 21, do_train=False)
    assert again == results

    config = BertConfig.from_dict({**CONFIG, "vocab_size": 35})
    storage.make_output_dir("ram://out/other")
    trainer = make_trainer(
        lambda: PretrainingModel(config),
        tf.distribute.get_strategy(),
        "ram://out/other",
        None,
        init_checkpoint=f"{begin}/model.ckpt-21",
    )
    weights = variables(f"{begin}/model.ckpt-21")
    for variable in trainer.model.variables:
        np.testing.assert_array_equal(variable.numpy(), weights[variable.path])
    files = ["ram://made/0.tfrecord", "ram://made/1.tfrecord"]
    windows = input_pipeline.record_chunks(files, pretraining_schema(16, 3), 40)
    examples = sum(1 for _ in tf.data.TFRecordDataset(files))
    assert sum(len(window["input_ids"]) for window in windows) == examples
    assert not os.path.exists("ram:")  # nothing has taken it for a local folder
