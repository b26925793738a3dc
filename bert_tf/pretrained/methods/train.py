"""`fit`, `evaluate`, `predict` and `save`: what the programs do, from Python."""

import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed
from bert_tf.files.checkpoints import SLOT_PATTERN
from bert_tf.files.model_notes import write_model_input
from bert_tf.files.whole_folders import whole_folder
from bert_tf.model.configuration import BertConfig
from bert_tf.model.layers import dtype_name
from bert_tf.model_folder.hugging_face import vector_settings
from bert_tf.model_folder.writer import CONFIG_FILE, MODEL_NAMES, write_model
from bert_tf.pretrained.build import KerasRuntime, answering_dtype, initialize
from bert_tf.pretrained.folder import ModelFolder, heads_of
from bert_tf.pretrained.forward import batches_of
from bert_tf.pretrained.methods.base import LoadedModel, check_process, mark_loaded
from bert_tf.pretrained.text_input import of_folder
from bert_tf.runs.flags.settings import FineTuningOptions
from bert_tf.runs.results.reports import Evaluation
from bert_tf.runs.training.watch import CallbackWatch, progress_of
from bert_tf.tasks import course
from bert_tf.tasks.arguments import PATH, WHOLE_NUMBER, check_type, whole
from bert_tf.tasks.class_weights import entries_of
from bert_tf.tasks.classification.rows import ClassificationRows, MultiLabelRows, RegressionRows
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.registry import HEADS, TASKS
from bert_tf.tasks.rows import Rows, of_dataset
from bert_tf.tasks.sentences.data import SentenceRows
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging.data import TaggingRows
from bert_tf.tasks.task import FineTuningTask, Start


class Train(LoadedModel):
    """A Keras model with the methods that train, evaluate and save it; see `Pretrained`."""

    model: keras.Model
    _chosen: Rows | None = None

    def __init__(self, folder: ModelFolder, dtype: Any = None):
        mark_loaded()
        self._dtype = dtype_name(dtype)
        self._set_folder(folder)

    def _set_folder(self, folder: ModelFolder) -> None:
        runtime = KerasRuntime(folder, answering_dtype(self._dtype))
        self.model = runtime.main
        self._hold(folder, runtime)

    @property
    def _folder(self) -> ModelFolder:
        check_process()
        return self._own_folder

    def for_classification(
        self, labels: Sequence[str] | None = None, multi_label: bool = False
    ) -> Self:
        """Returns a model to train: it will give each text, or pair of texts, a class.

        Args:
            labels: names of the classes, in the order of the model's outputs. None for the classes
                of the labels that `fit` gets, sorted.
            multi_label: whether a text can have several classes, or none. `fit` then takes a list
                of classes for each text, or an array of 0 and 1, [texts, classes].
        """
        with course.as_arguments():
            rows = MultiLabelRows(labels) if multi_label else ClassificationRows(labels)
        return self._for(rows)

    def for_regression(self) -> Self:
        """Returns a model to train: it will give each text, or pair of texts, a number."""
        return self._for(RegressionRows())

    def for_tagging(self, labels: Sequence[str] | None = None) -> Self:
        """Returns a model to train: it will give each word a tag.

        `fit` takes lists of words, such as `text.split()`, and lists of their tags.

        Args:
            labels: the tags, such as `["O", "B-PER", "I-PER"]`; numbers in the data index
                them. None for the tags that `fit` gets, sorted.
        """
        return self._for(TaggingRows(labels))

    def for_answers(self) -> Self:
        """Returns a model to train: it will find the answer to a question in a context.

        `fit` takes pairs `(question, context)`, and for each the answer: `(text, start)`, with the
        start in characters from 0; or only the text, if it occurs once; or a dictionary with the
        lists `text` and `answer_start`; or None if the context has no answer.
        """
        return self._for(SquadRows())

    def for_multiple_choice(self) -> Self:
        """Returns a model to train: it will choose one of several texts.

        `fit` takes `(text, [choice, choice, ...])`, all with the same number of choices, and the
        number of the right choice, from 0.
        """
        return self._for(MultipleChoiceRows())

    def for_sentences(self) -> Self:
        """Returns a model to train: its vectors will tell how similar two texts are.

        `fit` takes pairs `(a, b)` and their scores; with `loss="in_batch_negatives"` pairs that
        mean the same, or triplets `(a, b, negative)`, without scores; with `loss="teacher"` also
        single texts. See run_sentence_similarity.
        """
        path = os.path.join(self._folder.path, vector_settings.MODULES_FILE)
        vector_settings.check_are_means(self._folder.vectors, path)
        return self._for(SentenceRows())

    def _for(self, rows: Rows) -> Self:
        """Returns a model with the same weights, and the same head if task and classes match."""
        folder = self._folder
        is_same = rows.head in folder.heads and rows.multi_label == folder.config.is_multi_label
        if not is_same or rows.labels not in (None, folder.labels):
            folder = self._without_head()
        model = type(self)(dataclasses.replace(folder, read=self._read), self._dtype)
        model._chosen = rows
        return model

    def _without_head(self) -> ModelFolder:
        folder = self._folder
        scope = f"{folder.config.scope}/"
        shapes = {x: shape for x, shape in self._shapes().items() if x.startswith(scope)}
        config = copy.copy(folder.config)
        config.problem_type, config.threshold = None, BertConfig.threshold
        return dataclasses.replace(
            folder, config=config, shapes=shapes, heads=(), labels=(), has_sigmoid=False
        )

    def _rows(self, method: str) -> Rows:
        """Returns a copy of the chosen task, or the task that the model was trained for."""
        rows = copy.copy(self._chosen)
        for task in TASKS.values() if rows is None else ():
            for head in {*self._folder.heads} & {*task.heads}:
                several = head == "classification" and self.config.is_multi_label
                cls: Any = MultiLabelRows if several else task.rows_class(head)
                rows = cls(self.labels) if self.labels else cls()
        if rows is None:
            raise UserError(
                f"{method} needs a task. Choose it first, as in model ="
                " model.for_classification(labels=['bad', 'good'])"
            )
        return rows

    def _trained_rows(self, method: str) -> Rows:
        """Returns the task with the model's classes; raises UserError if the model is untrained."""
        rows = self._rows(method)
        if rows.head and not self._folder.heads:
            raise UserError(f"{method} needs a trained model; call fit first")
        if rows.labels is None:
            rows.labels = self._folder.labels
        return rows

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        validation_data: Any = None,
        settings: FineTuningOptions | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        strategy: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        verbose: int | str = "auto",
        **options: Any,
    ) -> keras.callbacks.History:
        """Trains the model as the task's program does; then it can answer.

        The same settings give the same weights as the program, bit for bit. A batch may continue
        into the next epoch, as in the original; for the ends of epochs see `CallbackWatch`.

        Args:
            x: the texts, or pairs of texts `(a, b)`: a list, a NumPy array or a column of a table.
                Or, without y, a `tf.data.Dataset` or a generator of `(text, label)`.
            y: a label for each text: the class's name, its number from 0, or in a regression a
                number.
            validation_data: `(x, y)`, or a dataset or a generator, to evaluate on after each epoch.
            settings: the task's options in one object, such as a `ClassifierOptions`; or the
                program's settings, whose model and examples are ignored.
            output_dir: folder for checkpoints and results, as in the program: called again, `fit`
                resumes there, or loads the finished model. None for `settings.output_dir`;
                without settings only the trained model in memory is kept.
            strategy: a `tf.distribute.Strategy`; None for the current one.
            sample_weight: how much each example counts in the loss, numbers of at least 0; only in
                classification, regression and tagging (one for each sentence).
            class_weight: how much the examples of each class, or the words of each tag, count, by
                name or number: `{"bad": 1, "good": 3}`; or "balanced", as in scikit-learn.
            callbacks: Keras's callbacks. The methods for batches are called once for each loop on
                the device. After `model.stop_training`, `fit` continues in `output_dir` only
                without callbacks or with more epochs. What a callback remembers, such as
                the best value of EarlyStopping, is lost when a run is resumed; the setting
                `early_stopping_patience` remembers it.
            verbose: 1 or "auto" for a progress bar, 2 for a line for each epoch, 0 for neither.
            **options: settings by their names, which are the program's flags, such as
                `learning_rate` and `max_seq_length`. Keras's `epochs`, `batch_size`, `seed` and
                `validation_split` are other names of `num_train_epochs`, `train_batch_size`,
                `random_seed` and `dev_fraction`. `max_seq_length` defaults to 128, or the
                model's maximum if lower.

        Returns:
            Keras's history: `history.history["loss"]`, the means of the epochs, and with
            `validation_data` also `val_loss` and the task's metrics.

        Raises:
            UserError: examples or settings are wrong, or no task was chosen.
            FloatingPointError: the training diverged.
        """
        rows = self._rows("fit")
        given = [] if callbacks is None else callbacks
        watch = CallbackWatch(given if isinstance(given, list | tuple) else [given], verbose)
        if output_dir is not None:
            check_type("output_dir", output_dir, PATH)
        with progress_of(verbose), course.as_arguments():
            examples = {"train": rows.examples("train", x, y, sample_weight)}
            if validation_data is not None:
                is_tuple = isinstance(validation_data, tuple)
                parts = validation_data if is_tuple else (validation_data,)
                examples["eval"] = rows.examples("validation", *parts)
            if class_weight is not None:
                options["class_weights"] = entries_of(class_weight, rows.labels)
            task = self._task(rows, settings, options, "train")
            place = os.fspath(output_dir or task.settings.output_dir)
            strategy = strategy or tf.distribute.get_strategy()
            trained = course.fine_tune(task, self._start(rows), examples, place, strategy, watch)
        self._keep(trained, rows, task)
        return watch.history

    def _task(
        self, rows: Rows, settings: Any, options: Mapping[str, Any], purpose: str
    ) -> FineTuningTask:
        folder = self._folder
        of_model = folder.shapes, folder.max_seq_length, folder.tokenizer.do_lower_case
        return course.make_task(rows, settings, options, purpose, *of_model)

    def _keep(self, trained: course.Trained, rows: Rows, task: FineTuningTask) -> None:
        shapes = {name: list(value.shape) for name, value in trained.weights.items()}
        labels = tuple(rows.labels or ())
        folder = dataclasses.replace(
            self._folder,
            config=trained.config,
            shapes=shapes,
            read=trained.weights.__getitem__,
            heads=heads_of(shapes, labels, rows.head == "tagging"),
            labels=labels,
            max_seq_length=task.settings.max_seq_length,
            source={},
            trained_on=trained.model_input,
            has_sigmoid=False,
            _warned=[],
            vectors=task.vector_settings or vector_settings.VectorSettings(),
        )
        self._set_folder(folder)
        self._chosen = rows

    def _start(self, rows: Rows) -> Start:
        """Returns the `Start` of a run, with the head only if its classes are the task's."""
        is_same = rows.labels in (None, self._folder.labels)
        folder = self._folder if is_same else self._without_head()
        weights = functools.partial(initialize, folder, self._read)
        files = folder.tokenizer.files
        return Start(folder.config, folder.tokenizer, files, weights, folder.path)

    def _shapes(self) -> dict[str, Sequence[int]]:
        shapes = self._folder.shapes
        return {name: shapes[name] for name in shapes if not SLOT_PATTERN.match(name)}

    @property
    def _read(self) -> Callable[[str], Any]:
        """A function that reads a weight by name, from the Keras model, where it may have changed.

        Weights that the model lacks, and unchanged rounded weights, are read from the folder.
        """
        variables = {variable.path: variable for variable in self.model.variables}
        folder = self._folder

        def read(name: str) -> Any:
            variable = variables.get(name)
            is_rounded = variable is not None and variable.dtype == "bfloat16"
            if variable is None or (is_rounded and folder.is_unchanged(variable)):
                return folder.read(name)
            return variable.numpy().astype(np.float32, copy=False)

        return read

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        strategy: Any = None,
        verbose: int | str = "auto",
        **options: Any,
    ) -> Evaluation:
        """Returns the metrics of the task's program, and a report.

        Args:
            x: the texts, see `fit`.
            y: the labels, see `fit`.
            sample_weight: see `fit`.
            strategy: a `tf.distribute.Strategy`; None for the current one.
            verbose: 0 to show no progress.
            **options: settings by name, and `batch_size`. `long_text` and `window_stride` are as in
                training unless one of them is given.

        Returns:
            The metrics by name, such as `accuracy` and `loss`. Printing them also shows the report:
            for a classification the scores of each class and the confusion matrix.

        Raises:
            UserError: examples or settings are wrong, or the model is not trained for a task.
        """
        rows = self._trained_rows("evaluate")
        with progress_of(verbose), course.as_arguments():
            examples = rows.examples("eval", x, y, sample_weight)
            task = self._trained_task(rows, options, "eval")
            strategy = strategy or tf.distribute.get_strategy()
            return course.evaluate(task, self._start(rows), examples, strategy)

    def _trained_task(self, rows: Rows, options: dict[str, Any], purpose: str) -> FineTuningTask:
        length = options.get("max_seq_length", self.max_seq_length)
        check_type("max_seq_length", length, WHOLE_NUMBER)
        values: dict[str, Any] = {"max_seq_length": length}
        if self.model.variable_dtype == "bfloat16":
            values["dtype"] = "bfloat16"
        fields = TASKS[rows.task].task_class().options.__dataclass_fields__
        if "long_text" in fields:
            given = (options.get("long_text"), options.get("window_stride"))
            found = of_folder(*given, self._folder.trained_on, length)
            options = {**options, "long_text": found[0], "window_stride": found[1]}
        if "max_query_length" in fields:  # as in `answer`
            values["max_query_length"] = max(1, min(64, length // 2))
        return self._task(rows, None, {**values, **options}, purpose)

    def predict(
        self,
        x: Any,
        *,
        batch_size: int | None = None,
        strategy: Any = None,
        verbose: int | str = "auto",
        **options: Any,
    ) -> Any:
        """Returns the model's outputs for each example.

        Classes: the probabilities in the order of `labels`, float [texts, classes]. Regression: the
        numbers, float [texts]. Tagging: lists of the words' tags. Answers: the texts; "" for no
        answer, which is possible only with a `null_score_diff_threshold`. The threshold is 0 by
        default if this object was trained on questions without answers; otherwise, and after
        `load`, it is None. Multiple choice: the probabilities, float [questions, choices]. Sentence
        vectors: the cosine of each pair, float [pairs].

        Args:
            x: the inputs, see `fit`; or a `tf.data.Dataset` of them.
            batch_size: number of texts, or of their windows, in a batch; None for 32 with classes,
                numbers and answers, otherwise for the program's default.
            strategy: see `evaluate`; not for classes, numbers and answers.
            verbose: 0 to show no progress.
            **options: for classification and regression `long_text` and `window_stride`, see
                `classify`; for answers the options of `answer`; otherwise settings by name, see
                `evaluate`.

        Raises:
            UserError: the inputs are wrong, or the model is not trained for a task.
        """
        rows = self._trained_rows("predict")
        with progress_of(verbose), course.as_arguments():
            if isinstance(x, tf.data.Dataset):
                x = whole(of_dataset(x, rows.inputs, rows.ranks[0]), rows.inputs)
            if rows.predict_options is not None:
                _check_options(rows.predict_options, options, strategy)
                with batches_of(batch_size):
                    return rows.predict(self, x, options)
            if batch_size is not None:
                options["batch_size"] = batch_size
            examples = rows.examples("predict", x)
            task = self._trained_task(rows, options, "predict")
            strategy = strategy or tf.distribute.get_strategy()
            outputs = course.predict(task, self._start(rows), examples, strategy)
            return rows.answers(outputs)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model to a folder that `load`, the programs and the tools can read.

        Args:
            folder: a new folder, or one that an earlier `save` wrote, which is replaced.

        Raises:
            UserError: the folder has other files, or cannot be written.
            OSError: writing failed for a reason that may be temporary, such as a full disk.
        """
        check_type("folder", folder, PATH)
        if self._chosen is not None:
            self._trained_rows("save")
        held, path = self._folder, os.fspath(folder)
        has_labels = any(HEADS[head].takes_num_labels for head in held.heads)
        labels = held.labels if has_labels else None
        weights = {name: self._read(name) for name in self._shapes()}
        held.forget()
        names, rule = (*MODEL_NAMES, *vector_settings.VECTOR_FILES), "one that save wrote"
        with course.as_arguments(), whole_folder(path, "folder", CONFIG_FILE, names, rule) as place:
            files, casing = held.tokenizer.files, held.tokenizer.do_lower_case
            write_model(place, weights, held.config, files, casing, labels)
            write_model_input(place, held.trained_on)
            vector_settings.write_vector_settings(place, held.vectors, held.config.hidden_size)
            if "regression" in held.heads and held.has_sigmoid:
                vector_settings.write_score_function(place, vector_settings.SIGMOID)


def held_folder(model: Train) -> ModelFolder:
    """Returns a model as a folder in memory, with the model's current weights."""
    if model._chosen is not None:
        model._trained_rows("export_model")
    return dataclasses.replace(model._folder, shapes=model._shapes(), read=model._read)


def _check_options(known: Collection[str], options: Mapping[str, Any], strategy: Any) -> None:
    if strategy is not None:
        raise UserError("strategy must be left out: this task's predict runs on one device")
    for name in options:
        if name not in known:
            raise UserError(f"{name} must be an option of predict: one of {listed(sorted(known))}")
