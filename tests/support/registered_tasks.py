"""All tasks in `registry.TASKS` with their examples in flags/, in all variants of the model."""

import functools
import json
import string
import tempfile
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from bert_tf.files import records
from bert_tf.modeling import BertConfig
from bert_tf.runs.flags.setting_fields import flags_of
from bert_tf.tasks.fine_tuning import run_fine_tuning
from bert_tf.tasks.registry import TASKS
from bert_tf.tasks.task import FineTuningTask
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS

ROOT = Path(__file__).resolve().parents[2]
# The flags of classification for the table of tests/support/small_classification.py.
REVIEWS = {"task_name": "table", "text_a_column": "review", "label_column": "stars"}
_REGRESSION = {**TASKS["sentences"].example, "text_a_column": "sentence1", "regression": True}
_FEATURES = {"feature_based": True, "feature_layers": "last", "lstm_size": 6}
_NEGATIVES = {"loss": "in_batch_negatives", "score_scale": 1.0, "min_positive_score": 0.0}
# Name -> the task, and the flags that differ from its example.
VARIANTS = {
    **{name: (name, {}) for name in TASKS},
    "regression": ("classification", _REGRESSION),
    "tagging_by_features": ("tagging", _FEATURES),
    "sentences_in_batch_negatives": ("sentences", _NEGATIVES),
}


class Prepared(NamedTuple):
    """A task with the labels and the records of its example."""

    task: FineTuningTask
    labels: list[str] | None
    schema: records.Schema

    def build(self, config: BertConfig, **options):
        return self.task.build(config, self.labels, **options)


def task_with(name, values):
    """Returns a task with these values of its flags; flags that it does not have are left out."""
    values = {"output_dir": "unused", "vocab_file": "unused", **values}
    settings = []
    for cls in TASKS[name].settings_classes():
        names = {field.name for field in flags_of(cls)} & values.keys()
        settings.append(cls(**{name: values[name] for name in names}))
    return TASKS[name].files_class().from_settings(*settings)


def make_task(name, **flags):
    """Returns a variant of a task on its example; flags that it does not have are left out."""
    registered, differing = VARIANTS[name]
    values = {**TASKS[registered].example, **differing, **flags}
    for flag, value in values.items():
        if isinstance(value, str) and value.startswith("flags/"):
            values[flag] = str(ROOT / value)
    return task_with(registered, values)


def run_in(folder, name, config=None, strategy=None, **flags):
    """Returns the results of a task, run in this process on the model and the data of a folder.

    The output goes to `out` in it, and batches have one length, unless flags say otherwise.
    `config` has changes of the model's configuration.
    """
    known = {f.name for cls in TASKS[name].settings_classes() for f in flags_of(cls)}
    assert flags.keys() <= known
    values = {"data_dir": str(folder), "output_dir": f"{folder}/out", "length_buckets": "none"}
    values |= {"vocab_file": f"{folder}/vocab.txt", **flags}
    values = {n: str(value) if isinstance(value, Path) else value for n, value in values.items()}
    model = json.loads(Path(folder, "bert_config.json").read_text())
    config = BertConfig.from_dict({**model, **(config or {})})
    strategy = strategy or tf.distribute.get_strategy()
    return run_fine_tuning(task_with(name, values), config, strategy)


def write_letters(path):
    """Writes a vocabulary of letters, which has pieces for every English text; returns its path."""
    letters = string.ascii_letters + string.digits + string.punctuation
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{x}" for x in letters)]
    Path(path).write_text("\n".join(pieces) + "\n")
    return str(path)


@functools.cache
def prepare(name, max_seq_length):
    """Returns a variant of a task with the labels of its example, for records of a length."""
    task = make_task(name, max_seq_length=max_seq_length, max_query_length=2)
    sets = {"train": task.read_sets("train")}
    labels = task.labels(sets)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = FastTokenizer(write_letters(f"{folder}/vocab.txt"), True, SEQUENCE_TOKENS)
    schema = task.encoder(sets["train"][0], tokenizer, labels).schema
    return Prepared(task, labels, schema)
