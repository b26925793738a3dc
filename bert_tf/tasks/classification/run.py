"""From a task's files to a fine-tuned model and its results: the one call of run_classifier."""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.engine.prediction import Columns, join
from bert_tf.errors import UserError
from bert_tf.files.label_file import LABELS_FILE
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import fine_tuning_checks as fine_tuning_settings
from bert_tf.runs import reporting
from bert_tf.runs.fine_tuning import FineTuner
from bert_tf.runs.settings import model_options
from bert_tf.tasks.classification import scores, submission
from bert_tf.tasks.classification.examples import DataProcessor
from bert_tf.tasks.classification.features import write_records
from bert_tf.tasks.classification.model import ClassificationTask
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.text.sequences import REQUIRED_TOKENS


def run_classifier(
    config: BertConfig,
    processor: DataProcessor,
    strategy: tf.distribute.Strategy,
    settings: ClassifierSettings,
) -> dict[str, float] | None:
    """Returns the results of the evaluation, if there is one.

    In `output_dir` are then the records `train.tf_record`, `eval.tf_record` and
    `predict.tf_record`, checkpoints, `labels.txt` with the classes in the order of the logits (of
    regression there are none), `eval_results.txt`, `test_results.tsv` with the probabilities of the
    classes, and GLUE's submission file. Tasks with a second dev or test set have files of that
    name, too.

    Args:
        config: of the model.
        processor: the task.
        strategy: where to compute.
        settings: see its fields.

    Raises:
        UserError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    tokenizer = fine_tuning_settings.make_tokenizer(config, settings, REQUIRED_TOKENS)
    label_list = processor.get_labels()
    schema = classification_schema(settings.max_seq_length, regression=label_list is None)
    options = model_options(settings, strategy)
    task = ClassificationTask(config, label_list and len(label_list), **options)

    # Everything is read before anything is computed: what is wrong shows at once.
    sources = {"": processor, **{f"_{name}": other for name, other in processor.also.items()}}
    examples = {}
    for name in fine_tuning_settings.needed_sets(strategy, settings):
        for suffix, source in sources.items():
            which, read = {
                "train": ("train", source.get_train_examples),
                "eval": ("dev", source.get_dev_examples),
                "predict": ("test", source.get_test_examples),
            }[name]
            if not suffix or (name != "train" and source.has(which, settings.data_dir)):
                examples[name + suffix] = read(settings.data_dir)

    metric, labels = processor.best_metric, label_list or ()
    with FineTuner(config, task, strategy, settings, schema, metric, labels) as tuner:
        _check_labels(settings, labels)
        num_examples = {}
        for name in list(examples):
            # They are in the records then, and need not stay in memory.
            num_examples[name] = write_records(
                examples.pop(name),
                label_list,
                settings.max_seq_length,
                tokenizer,
                tuner.record_file(name),
            )

        def evaluate() -> dict[str, float]:
            results = {}
            for suffix in sources:
                name, batch_size = f"eval{suffix}", settings.eval_batch_size
                if name in num_examples:
                    columns = join(tuner.predict(name, num_examples[name], batch_size))
                    part = _evaluate(processor, columns, batch_size)
                    results |= {f"{key}{suffix}": value for key, value in part.items()}
            return results

        def predict() -> None:
            for suffix, source in sources.items():
                name = f"predict{suffix}"
                if name in num_examples:
                    windows = tuner.predict(name, num_examples[name], settings.predict_batch_size)
                    outputs = join(windows)["outputs"]
                    path = os.path.join(settings.output_dir, f"test_results{suffix}.tsv")
                    reporting.write_probabilities(path, outputs)
                    submission.write_submission(settings.output_dir, source, outputs)

        return tuner.train_evaluate_predict(num_examples.get("train"), evaluate, predict)


def _check_labels(settings: ClassifierSettings, labels: Sequence[str]) -> None:
    """Raises if the model was trained with other classes, or with these in another order."""
    learned = fine_tuning_settings.learned_labels(settings)
    if learned not in (None, list(labels)):
        raise UserError(
            "The classes must be those that the model in --output_dir or --init_checkpoint was"
            f" trained with, in their order: {','.join(learned) or 'none'} ({LABELS_FILE} beside"
            f" it); they are {','.join(labels) or 'none'}. A table's can be named by --labels; if"
            " these are the same classes in the same order under other names, write them into that"
            " file; else choose another model, or train into another --output_dir"
        )


def _evaluate(processor: DataProcessor, columns: Columns, batch_size: int) -> dict[str, float]:
    """Returns the results of an evaluation: the original's, and the metrics of the task."""
    return {
        **reporting.mean_losses(columns["per_example_loss"], batch_size),
        **scores.evaluate(processor.metrics, columns["label_ids"], columns["outputs"]),
    }
