"""Fine-tunes, evaluates and predicts classification (run_classifier.py)."""

import dataclasses
import functools
import json
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.engine.prediction import Columns, join
from bert_tf.errors import UserError, listed
from bert_tf.files.label_file import LABELS_FILE, check_label
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags.settings import model_options
from bert_tf.runs.folder import reporting
from bert_tf.runs.training.fine_tuning import FineTuner
from bert_tf.runs.training.fine_tuning_checks import learned_labels, make_tokenizer, needed_sets
from bert_tf.runs.training.teacher import (
    check_hidden_sizes,
    load_teacher,
    read_teacher_config,
    teacher_files,
)
from bert_tf.tasks.classification import scores, submission
from bert_tf.tasks.classification.distillation import DistilledClassification, copy_head
from bert_tf.tasks.classification.examples import DataProcessor, InputExample
from bert_tf.tasks.classification.features import ClassificationEncoder
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.example_records import write_records
from bert_tf.text.model_vocabulary import check_model_vocabulary
from bert_tf.text.tokenizer_files import TOKENIZER_CONFIG
from bert_tf.text.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleSet:
    """The examples that a processor has for training, evaluation or prediction.

    Attributes:
        purpose: "train", "eval" or "predict".
        processor: reads the examples.
        suffix: end of the names of its files and results: "" for the task's own set, `_KEY` for one
            of `DataProcessor.also`.
    """

    purpose: str
    processor: DataProcessor
    suffix: str = ""

    @property
    def split(self) -> str:
        """The set's name for the processor: "train", "dev" or "test"."""
        return {"train": "train", "eval": "dev", "predict": "test"}[self.purpose]

    @property
    def record_name(self) -> str:
        """The name of its record file, see `FineTuner.record_file`."""
        return self.purpose + self.suffix

    def read(self, data_dir: str) -> list[InputExample]:
        """Returns the examples.

        Raises:
            UserError: there are none, or the processor cannot read them.
        """
        read_split = {
            "train": self.processor.get_train_examples,
            "dev": self.processor.get_dev_examples,
            "test": self.processor.get_test_examples,
        }
        examples = read_split[self.split](data_dir)
        if not examples:
            raise UserError(
                f"The {self.split} set must have at least one example; get_{self.split}_examples of"
                f" {type(self.processor).__name__} returned none for --data_dir={data_dir or ''}"
            )
        return examples


def run_classifier(
    config: BertConfig,
    processor: DataProcessor,
    strategy: tf.distribute.Strategy,
    settings: ClassifierSettings,
) -> dict[str, float | int] | None:
    """Fine-tunes, evaluates and predicts; returns the results of the evaluation, if there is one.

    It writes to `output_dir`:
        train.tf_record, eval.tf_record, predict.tf_record: the examples.
        checkpoints, and labels.txt: the classes in the order of the logits; empty for regression.
        eval_results.txt: the results of the evaluation.
        test_results.tsv: the probabilities of the classes, or the numbers, of each test example.
        the submission file of a GLUE task.
    Records and predictions of a second dev or test set (`DataProcessor.also`) have its suffix.

    Args:
        processor: the task.

    Raises:
        UserError: settings, files and checkpoint do not fit each other.
        OSError: `output_dir` cannot be written to.
        FloatingPointError: a loss or gradient is not finite.
    """
    tokenizer = make_tokenizer(config, settings, settings.init_checkpoint, settings.output_dir)
    label_list = processor.get_labels()
    for label in label_list or ():
        check_label(label, f"get_labels of {type(processor).__name__}")
    schema = classification_schema(settings.max_seq_length, regression=label_list is None)
    options = model_options(settings, strategy)
    num_labels = 1 if label_list is None else len(label_list)  # 1 is a regression
    if label_list is not None and num_labels < 2:
        raise UserError(
            f"A classification must have at least two classes; get_labels of"
            f" {type(processor).__name__} returned {listed(label_list) or 'none'}. For a regression"
            " it returns None"
        )
    build = functools.partial(ClassificationModel, config, num_labels, **options)
    teaching = {}
    if settings.teacher_checkpoint and settings.do_train:
        teacher = _load_teacher(config, strategy, settings, tokenizer, label_list or ())
        teaching["objective"] = lambda student: DistilledClassification(
            student, teacher, settings.alphas, settings.temperature, settings.cos_all_layers
        )
        if settings.copy_teacher_head:
            teaching["initialize"] = lambda student: copy_head(student, teacher)

    # All files are read first, so that their errors show before anything is computed.
    sets = _example_sets(processor, strategy, settings)
    examples = {example_set: example_set.read(settings.data_dir) for example_set in sets}

    encoder = ClassificationEncoder(tokenizer, settings.max_seq_length, label_list)
    metric, labels = processor.best_metric, label_list or ()
    arguments = (config, build, strategy, settings, schema, metric, labels)
    with FineTuner(*arguments, **teaching) as tuner:
        _check_labels(settings, labels)
        num_examples = {}
        for example_set in sets:
            num_examples[example_set] = write_records(
                tuner.record_file(example_set.record_name),
                examples.pop(example_set),  # frees their memory
                encoder,
            )

        def predictions(example_set: ExampleSet, batch_size: int) -> Columns:
            name, count = example_set.record_name, num_examples[example_set]
            return join(tuner.predict(name, count, batch_size))

        def evaluate() -> dict[str, float]:
            results = {}
            for example_set in sets:
                if example_set.purpose == "eval":
                    columns = predictions(example_set, settings.eval_batch_size)
                    part = _evaluate(processor, columns, settings.eval_batch_size)
                    results |= {f"{key}{example_set.suffix}": part[key] for key in part}
            return results

        def predict() -> None:
            for example_set in sets:
                if example_set.purpose == "predict":
                    outputs = predictions(example_set, settings.predict_batch_size)["outputs"]
                    path = tuner.run.path(f"test_results{example_set.suffix}.tsv")
                    reporting.write_probabilities(path, outputs)
                    submission.write_submission(settings.output_dir, example_set.processor, outputs)

        num_train = next((num_examples[s] for s in sets if s.purpose == "train"), None)
        return tuner.train_evaluate_predict(num_train, evaluate, predict)


def _load_teacher(
    student: BertConfig,
    strategy: tf.distribute.Strategy,
    settings: ClassifierSettings,
    tokenizer: Tokenizer,
    labels: Sequence[str],
) -> ClassificationModel:
    """Returns the teacher.

    Raises:
        UserError: the teacher has another vocabulary or casing or other classes, or cannot be read.
    """
    files = teacher_files(settings)
    config = read_teacher_config(files, student, settings.max_seq_length)
    check_model_vocabulary(tokenizer.vocab, settings.vocab_file, files.home, "teacher_checkpoint")
    casing = files.recorded_casing
    if casing not in (None, settings.do_lower_case):
        raise UserError(
            f"--teacher_checkpoint={settings.teacher_checkpoint} must have learned from text in the"
            f" same case: do_lower_case in its {TOKENIZER_CONFIG} is {json.dumps(casing)}, and"
            f" --do_lower_case={settings.do_lower_case}. Choose another teacher, or set"
            f" --do_lower_case={casing} for a student that was pre-trained so"
        )
    learned = files.labels
    if learned not in (None, list(labels)):
        raise UserError(
            f"--teacher_checkpoint={settings.teacher_checkpoint} must have the classes of the task"
            f" in the same order: its {LABELS_FILE} has {listed(learned) or 'none'}, and the task"
            f" {listed(labels) or 'none'}. Fine-tune the teacher for this task, or set --labels"
        )
    outputs = (files.shapes.get("output_bias", [0])[0], max(1, len(labels)))
    if outputs[0] != outputs[1]:
        raise UserError(
            f"--teacher_checkpoint={settings.teacher_checkpoint} must have a classifier with an"
            f" output for each class of the task, or one for a regression: {outputs[1]}; it has"
            f" {outputs[0]}. Fine-tune the teacher for this task first"
        )
    if settings.alpha_cos:
        check_hidden_sizes(student, config)
    if settings.copy_teacher_head:
        _check_same_head(student, config)
    options = model_options(settings, strategy) | {"recompute_activations": False}
    build = functools.partial(ClassificationModel, config, outputs[1], **options)
    teacher, _ = load_teacher(build, files, strategy)
    return teacher


def _check_same_head(student: BertConfig, teacher: BertConfig) -> None:
    """Checks that the teacher's pooler and classifier fit the student.

    Raises:
        UserError: they do not.
    """
    for name in ("hidden_size", "pooler_activation"):
        sizes = getattr(student, name), getattr(teacher, name)
        if sizes[0] != sizes[1]:
            raise UserError(
                "--copy_teacher_head needs models whose pooler takes the same vectors: the"
                f" student's {name} is {sizes[0]} and the teacher's {sizes[1]}. Change"
                " --bert_config_file, or leave this flag out"
            )


def _example_sets(
    processor: DataProcessor, strategy: tf.distribute.Strategy, settings: ClassifierSettings
) -> list[ExampleSet]:
    """Returns the sets that a run reads: the task's own, and second dev and test sets."""
    found = []
    for purpose in needed_sets(strategy, settings):
        found.append(ExampleSet(purpose, processor))
        if purpose != "train":
            seconds = [ExampleSet(purpose, p, f"_{key}") for key, p in processor.also.items()]
            found += [s for s in seconds if s.processor.has(s.split, settings.data_dir)]
    return found


def _check_labels(settings: ClassifierSettings, labels: Sequence[str]) -> None:
    """Checks that the model was trained with these classes in this order, if it was trained."""
    learned = learned_labels(settings)
    if learned not in (None, list(labels)):
        raise UserError(
            "The classes must be those that the model in --output_dir or --init_checkpoint was"
            f" trained with, in their order: {listed(learned) or 'none'} ({LABELS_FILE} beside"
            f" it); they are {listed(labels) or 'none'}. For --task_name=table set --labels or"
            f" --regression. If the classes only have other names, edit {LABELS_FILE}. Else choose"
            " another model, or another --output_dir to train into"
        )


def _evaluate(processor: DataProcessor, columns: Columns, batch_size: int) -> dict[str, float]:
    """Returns the original's results of an evaluation, and the metrics of the task."""
    return {
        **reporting.mean_losses(columns["per_example_loss"], batch_size),
        **scores.evaluate(processor.metrics, columns["label_ids"], columns["outputs"]),
    }
