"""Makes the files of tests/kept/COMMIT in a checkout of that commit.

There `PYTHONPATH=. python PATH_OF_THIS_FILE FOLDER` writes to a new folder: a fine-tuned model, its
export, records, and a run that was stopped while it trained on them.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

import bert_tf
from tests.support.exported_heads import LABELS, write_head
from tests.support.pretraining_runs import run, variables, write_config, write_text

TEXTS = ["the cat sat", "a dog ran on a mat , paris is in france", "un ##aff ' b"]
STEPS, SAVED = 8, 4
FILE_FLAGS = "--do_lower_case=True --max_seq_length=16 --max_predictions_per_seq=3 --dupe_factor=1"


def flags_of_run(folder: Path, output: Path) -> list[str]:
    return [
        *(f"--input_file={folder}/train.tfrecord", f"--bert_config_file={folder}/config.json"),
        *(f"--output_dir={output}", "--do_train", "--train_batch_size=4", "--learning_rate=0.01"),
        *(f"--num_train_steps={STEPS}", f"--save_checkpoints_steps={SAVED}"),
        *("--max_seq_length=16", "--max_predictions_per_seq=3", "--num_warmup_steps=2"),
    ]


def make(folder: Path) -> None:
    """Writes the files to a new folder."""
    folder.mkdir(parents=True)
    work = folder / "work"
    model = bert_tf.load(write_head(work / "head", "classification"))
    options = {"num_train_epochs": 2, "train_batch_size": 3, "max_seq_length": 9}
    trained = model.for_classification(LABELS["classification"])
    trained.fit(TEXTS, LABELS["classification"], verbose=0, **options)
    trained.save(folder / "model")
    bert_tf.export_model(trained, folder / "export", format="onnx")
    answers = [list(found.probabilities.values()) for found in trained.classify(TEXTS)]
    (folder / "answers.json").write_text(json.dumps(answers))

    text = write_text(work)
    records = folder / "run"
    records.mkdir()
    # Without dropout, whose masks a release may change.
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    write_config(records / "config.json", **still)
    files = [f"--{name}={value}" for name, value in text.items()]
    files.append(f"--output_file={records}/train.tfrecord")
    run(*files, *FILE_FLAGS.split(), program="create_pretraining_data.py")
    run(*flags_of_run(records, work / "out"))
    np.savez_compressed(folder / "expected.npz", **variables(work / "out" / f"model.ckpt-{STEPS}"))
    for path in (work / "out").glob(f"model.ckpt-{SAVED}.*"):
        shutil.copy(path, records)
    shutil.rmtree(work)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
