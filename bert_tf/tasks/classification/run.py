"""From a task's files to a fine-tuned model and its results: the one call of run_classifier."""

import dataclasses
import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import fine_tuning, reporting
from bert_tf.configuration import BertConfig
from bert_tf.label_file import LABELS_FILE, write_labels
from bert_tf.tasks.classification import scores, submission
from bert_tf.tasks.classification.examples import DataProcessor
from bert_tf.tasks.classification.features import write_records
from bert_tf.tasks.classification.model import ClassificationTask
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.whole_files import write_whole

_SETS = {"train": "train", "eval": "dev", "predict": "test"}  # as the processors call them


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning.EvaluationSettings):
    """What run_classifier is told beyond `fine_tuning.Settings`; the fields are its flags."""

    data_dir: str


def run_classifier(
    config: BertConfig,
    processor: DataProcessor,
    strategy: tf.distribute.Strategy,
    tuning: fine_tuning.Settings,
    settings: Settings,
    model_options: dict,
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
        tuning: the flags that every fine-tuning program has.
        settings: the flags of this one.
        model_options: further arguments of `ClassificationModel`.

    Raises:
        ValueError: settings, files and checkpoint do not fit together.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or a gradient is not finite.
    """
    tokenizer = fine_tuning.make_tokenizer(config, tuning, ("[CLS]", "[SEP]"))
    label_list = processor.get_labels()
    schema = classification_schema(tuning.max_seq_length, regression=label_list is None)
    task = ClassificationTask(config, label_list and len(label_list), **model_options)

    # Everything is read before anything is computed: what is wrong shows at once.
    sets = {"": processor, **{f"_{name}": other for name, other in processor.also.items()}}
    examples = {}
    for name in fine_tuning.needed_sets(strategy, tuning, settings):
        which = _SETS[name]
        for suffix, source in sets.items():
            if not suffix or (name != "train" and source.has(which, settings.data_dir)):
                read = getattr(source, f"get_{which}_examples")
                examples[name + suffix] = read(settings.data_dir)

    metric = processor.best_metric
    with fine_tuning.FineTuner(config, task, strategy, tuning, schema, metric) as tuner:
        _check_labels(tuning, label_list or ())

        def file_of(name: str) -> str:
            return os.path.join(tuning.output_dir, f"{name}.tf_record")

        num_examples = {}
        for name in list(examples):
            num_examples[name] = len(examples[name])
            # They are in the records then, and need not stay in memory.
            write_records(
                examples.pop(name),
                label_list,
                tuning.max_seq_length,
                tokenizer,
                file_of(name),
            )

        def predict(name: str, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
            return tuner.predict(file_of(name), num_examples[name], batch_size)

        def evaluate() -> dict[str, float]:
            results = {}
            for suffix in sets:
                if f"eval{suffix}" in num_examples:
                    outputs = predict(f"eval{suffix}", settings.eval_batch_size)
                    part = _evaluate(processor, list(outputs), settings.eval_batch_size)
                    results |= {f"{key}{suffix}": value for key, value in part.items()}
            return results

        if tuning.do_train:
            write_labels(tuning.output_dir, label_list or ())
            tuner.train(file_of("train"), num_examples["train"], evaluate)
        results = None
        if settings.do_eval:
            logging.info("***** Running evaluation *****")
            results = tuner.write_results(evaluate())
        for suffix, source in sets.items() if settings.do_predict else ():
            if f"predict{suffix}" in num_examples:
                logging.info("***** Running prediction*****")
                rows = predict(f"predict{suffix}", settings.predict_batch_size)
                outputs = np.stack([row["outputs"] for row in rows])
                _write_test_results(tuning.output_dir, f"test_results{suffix}.tsv", outputs)
                submission.write_submission(tuning.output_dir, source, outputs)
        return results


def _check_labels(tuning: fine_tuning.Settings, labels: Sequence[str]) -> None:
    """Raises if the model was trained with other classes, or with these in another order."""
    learned = fine_tuning.learned_labels(tuning)
    if learned not in (None, list(labels)):
        raise ValueError(
            "The classes must be those that the model in --output_dir or --init_checkpoint was"
            f" trained with, in their order: {','.join(learned) or 'none'} ({LABELS_FILE} beside"
            f" it); they are {','.join(labels) or 'none'}. A table's can be named by --labels; else"
            " choose another model, or train into another --output_dir"
        )


def _evaluate(
    processor: DataProcessor, rows: list[dict[str, np.ndarray]], batch_size: int
) -> dict[str, float]:
    """Returns the results of an evaluation: the original's, and the metrics of the task."""
    outputs, label_ids, losses = (
        np.stack([row[name] for row in rows])
        for name in ("outputs", "label_ids", "per_example_loss")
    )
    return {
        **reporting.mean_losses(losses, batch_size),
        **scores.evaluate(processor.metrics, label_ids, outputs),
    }


def _write_test_results(output_dir: str, name: str, outputs: np.ndarray) -> None:
    """Writes the original's test_results.tsv: an example a line, a column for each class."""
    path = os.path.join(output_dir, name)
    logging.info("Writing predictions to: %s", path)
    lines = ["\t".join(map(str, row)) for row in outputs.reshape(len(outputs), -1)]
    write_whole(path, "".join(f"{line}\n" for line in lines))
