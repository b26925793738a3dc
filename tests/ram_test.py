"""Everything is read and written through tf.io.gfile: a whole run on a file system of TensorFlow's.

`ram://` lives in this process alone, so the library's calls are chained here, not the programs.
"""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.engine import input_pipeline, loops
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.records import data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.schema import pretraining_schema
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings
from tests.support.pretraining_runs import CONFIG, settings_of_flags, variables, write_text

FILES = ["ram://made/0.tfrecord", "ram://made/1.tfrecord"]


def run(output_dir, num_steps, **more):
    flags = {"input_file": "ram://made/*.tfrecord", "output_dir": output_dir, "max_seq_length": 16}
    flags |= {"max_predictions_per_seq": 3, "train_batch_size": 4, "num_train_steps": num_steps}
    flags |= {"eval_batch_size": 5, "learning_rate": 1e-2, "num_warmup_steps": 2, "do_train": True}
    flags |= {"do_eval": True, "save_checkpoints_steps": 5, "keep_checkpoint_max": 2, **more}
    config = BertConfig.from_json_file("ram://made/bert_config.json")
    settings = settings_of_flags(PretrainingSettings, **flags, max_eval_steps=0)
    return run_pretraining(config, tf.distribute.get_strategy(), settings)


@pytest.mark.slow
def test_records_training_resume_and_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "may_compile", lambda strategy: False)
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    files = {"output_file": ",".join(FILES), "max_seq_length": 16, "max_predictions_per_seq": 3}
    for flag, path in {**write_text(tmp_path), "": f"{tmp_path}/bert_config.json"}.items():
        files[flag] = f"ram://made/{os.path.basename(path)}"
        tf.io.gfile.copy(path, files[flag])
    del files[""]
    data.create_pretraining_data(PretrainingDataSettings(**files, dupe_factor=3, random_seed=5))
    begin = "ram://out/resumed"
    run(begin, 14, do_eval=False)
    results = run(begin, 21)
    assert results["global_step"] == 21
    with tf.io.gfile.GFile(f"{begin}/eval_results.txt") as reader:
        text = reader.read()
    assert text.count("\n") == 6 and "global_step = 21\n" in text
    names = set(tf.io.gfile.listdir(begin))
    kept = {"model.ckpt-20.index", "model.ckpt-21.index"}
    assert {n for n in names if n.endswith(".index") and "input" not in n} == kept
    assert not {n for n in names if "unfinished" in n or "heartbeat" in n or "probe" in n}
    # The schedule is that of 21 steps in both, so the runs are not the same; what follows is.
    assert run("ram://out/straight", 21) != results
    assert run(begin, 21, do_train=False) == results

    checkpoint = f"{begin}/model.ckpt-21"
    run("ram://out/next", 1, do_eval=False, init_checkpoint=checkpoint)
    before, after = variables(checkpoint), variables("ram://out/next/model.ckpt-0")
    for name in before.keys() - {"global_step"}:
        if "/adam_" not in name:
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    windows = input_pipeline.record_chunks(FILES, pretraining_schema(16, 3), 40)
    examples = sum(1 for _ in tf.data.TFRecordDataset(FILES))
    assert sum(len(window["input_ids"]) for window in windows) == examples
    assert not os.path.exists("ram:")  # nothing has taken it for a local folder
