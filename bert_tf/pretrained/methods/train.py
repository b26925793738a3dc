"""`fit` and its kin: training from texts in Python, as the programs train from files."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bert_tf.errors import UserError
from bert_tf.files.checkpoints import SLOT_PATTERN
from bert_tf.files.model_input import write_model_input
from bert_tf.files.whole_folders import whole_folder
from bert_tf.hugging_face.vector_settings import VECTOR_FILES, write_vector_settings
from bert_tf.model_folder.writer import CONFIG_FILE, MODEL_NAMES, write_model
from bert_tf.pretrained import course, long_texts
from bert_tf.pretrained.arguments import PATH, check_type, received
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.classification import ClassificationKind, RegressionKind
from bert_tf.pretrained.methods.base import LoadedModel
from bert_tf.pretrained.results import Evaluation
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.runs.training.watch import CallbackWatch

# Head -> the kind of a model that has it, made from the model's classes.
_KINDS: Mapping[str, Callable[[Sequence[str]], Kind]] = {
    "classification": ClassificationKind,
    "regression": lambda labels: RegressionKind(),
}


class Train(LoadedModel):
    """Methods that choose a task, train for it, evaluate and save."""

    _chosen: Kind | None = None

    def for_classification(self, labels: Sequence[str] | None = None) -> Self:
        """Returns a model to train: it will give each text, or pair of texts, a class.

        Args:
            labels: names of the classes, in the order of the model's outputs. None for the classes
                of the labels that `fit` gets, sorted.
        """
        return self._for(ClassificationKind(labels))

    def for_regression(self) -> Self:
        """Returns a model to train: it will give each text, or pair of texts, a number."""
        return self._for(RegressionKind())

    def _for(self, kind: Kind) -> Self:
        """Returns a model with this one's weights, and its head if that is for the same task."""
        folder = self._folder
        is_same = folder.heads[-1:] and folder.heads[-1] in kind.heads
        if not is_same or kind.labels not in (None, folder.labels):
            shapes = {x: shape for x, shape in self._shapes().items() if x.startswith("bert/")}
            folder = dataclasses.replace(folder, shapes=shapes, heads=(), labels=())
        model = type(self)(dataclasses.replace(folder, read=self._read))
        model._chosen = kind
        return model

    def _kind(self, method: str) -> Kind:
        """Returns the task that was chosen, or that the model was trained for."""
        for head in self._folder.heads if self._chosen is None else ():
            if head in _KINDS:
                self._chosen = _KINDS[head](self.labels)
        if self._chosen is None:
            raise UserError(
                f"{method} needs a task. Choose it first, as in model ="
                " model.for_classification(labels=['bad', 'good'])"
            )
        return self._chosen

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        validation_data: Any = None,
        settings: FineTuningSettings | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        strategy: Any = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        verbose: int = 1,
        **options: Any,
    ) -> keras.callbacks.History:
        """Trains the model, as the task's program does; afterwards it answers.

        The same settings give the same weights as the program, bit for bit. The batches of an epoch
        go on in the next one, as in the original, so that an epoch may end within a batch.

        Args:
            x: the texts, or pairs of texts `(a, b)`: a list, a NumPy array or a column of a table.
                Or, without y, a `tf.data.Dataset` or a generator of `(text, label)`.
            y: a label for each text: the class's name, its number from 0, or in a regression a
                number.
            validation_data: `(x, y)`, or a dataset or a generator, to evaluate on after each epoch.
            settings: the program's settings in one object, such as a `ClassifierSettings`. The
                fields that name the model, its vocabulary and the examples are ignored.
            output_dir: folder for checkpoints and results, as of the program: called again, `fit`
                resumes there. None: nothing is kept but the trained model in memory.
            strategy: a `tf.distribute.Strategy`; None for the current one.
            callbacks: Keras's callbacks. The methods for batches are called once for each loop on
                the device. `model.stop_training` ends training.
            verbose: 1 for a progress bar, 2 for a line for each epoch, 0 for neither.
            **options: settings by their names, which are the program's flags, such as
                `learning_rate` and `max_seq_length`. Keras's `epochs`, `batch_size`, `seed` and
                `validation_split` are other names of `num_train_epochs`, `train_batch_size`,
                `random_seed` and `dev_fraction`. `max_seq_length` is at most 128 by default, and at
                most the model's.

        Returns:
            Keras's history: `history.history["loss"]`, the means of the epochs, and with
            `validation_data` also `val_loss` and the task's metrics.

        Raises:
            UserError: examples or settings are wrong, or no task was chosen.
            FloatingPointError: the training diverged.
        """
        kind = self._kind("fit")
        watch = CallbackWatch(_as_list(callbacks), verbose)
        if output_dir is not None:
            check_type("output_dir", output_dir, PATH)
            options["output_dir"] = os.fspath(output_dir)
        with course.as_arguments(), course.working_folder() as folder:
            sets = {"train": kind.example_set("train", x, y)}
            if validation_data is not None:
                pair = validation_data if isinstance(validation_data, tuple) else (validation_data,)
                if not 1 <= len(pair) <= 2:
                    raise UserError(
                        f"validation_data must be (x, y) or a dataset; {received(validation_data)}"
                    )
                own_x, own_y = (*pair, None)[:2]
                sets["eval"] = kind.example_set("eval", own_x, own_y, "validation_data")
            made = course.make_settings(
                kind, self._folder, folder, settings, options, do_train=True, do_predict=False
            )
            trained = course.train(
                kind,
                made,
                self._start(),
                sets,
                strategy or tf.distribute.get_strategy(),
                watch,
                saves=made.output_dir != folder,
            )
        self._set_folder(trained)
        return watch.history

    def _start(self) -> course.Start:
        return course.Start(self._folder, self._read, bool(self._folder.heads))

    def _shapes(self) -> dict[str, Sequence[int]]:
        """Returns the shape of each weight by name, without an optimizer's slots."""
        shapes = self._folder.shapes
        return {name: shapes[name] for name in shapes if not SLOT_PATTERN.match(name)}

    @property
    def _read(self) -> Callable[[str], Any]:
        """Returns a weight by name: the Keras model's if it has it, since it may have changed."""
        variables = {variable.path: variable for variable in self.model.variables}
        read = self._folder.read
        return lambda name: variables[name].numpy() if name in variables else read(name)

    def evaluate(
        self, x: Any, y: Any = None, *, strategy: Any = None, **options: Any
    ) -> Evaluation:
        """Returns the metrics of the task's program, and a report.

        Args:
            x: the texts, see `fit`.
            y: the labels, see `fit`.
            strategy: a `tf.distribute.Strategy`; None for the current one.
            **options: settings by name, such as `eval_batch_size`. `long_text` and `window_stride`
                are those of the training unless one is given.

        Returns:
            The metrics by name, such as `accuracy` and `loss`. Printed, it also shows the report:
            for a classification the scores of each class and the confusion matrix.

        Raises:
            UserError: examples or settings are wrong, or the model is not trained for a task.
        """
        kind = self._kind("evaluate")
        if not self._folder.heads:
            raise UserError("evaluate needs a trained model; call fit first")
        with course.as_arguments(), course.working_folder() as folder:
            example_set = kind.example_set("eval", x, y)
            options.setdefault("max_seq_length", self.max_seq_length)
            if not options.keys() & {"long_text", "window_stride"}:
                options |= long_texts.settings_of(self._folder.trained_on)
            made = course.make_settings(kind, self._folder, folder, None, options, do_eval=True)
            return course.evaluate(
                kind, made, self._start(), example_set, strategy or tf.distribute.get_strategy()
            )

    def predict(self, x: Any) -> NDArray[np.float64]:
        """Returns the model's outputs for each example as an array.

        The probabilities of the classes in the order of `labels`, [texts, classes]; in a regression
        the numbers, [texts].

        Args:
            x: see `fit`.

        Raises:
            UserError: the model is not trained for a task, or has another one.
        """
        return self._kind("predict").predict(self, x)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model to a folder, which `load`, the programs and the tools take.

        Args:
            folder: a new folder, or one that an earlier `save` wrote, which is replaced.

        Raises:
            UserError: the folder has other files, or cannot be written.
            OSError: writing failed for a reason that may be temporary, such as a full disk.
        """
        check_type("folder", folder, PATH)
        held, path = self._folder, os.fspath(folder)
        names = (*MODEL_NAMES, *VECTOR_FILES)
        labels = held.labels if {"classification", "tagging"} & {*held.heads} else None
        labels = () if "regression" in held.heads else labels
        weights = {name: self._read(name) for name in self._shapes()}
        with whole_folder(path, "folder", CONFIG_FILE, names, "one that save wrote") as place:
            files, casing = held.tokenizer.files, held.tokenizer.do_lower_case
            write_model(place, weights, held.config, files, casing, labels)
            write_model_input(place, held.trained_on)
            write_vector_settings(place, held.vectors, held.config.hidden_size)


def _as_list(callbacks: Any) -> list[Any]:
    is_several = isinstance(callbacks, list | tuple)
    return list(callbacks) if is_several else [] if callbacks is None else [callbacks]
