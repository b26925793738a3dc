"""Finds, reads, restores and writes checkpoints in the format of google-research/bert.

The files `model.ckpt-STEP.index` and `model.ckpt-STEP.data-00000-of-00001` hold every variable
under its name, its Adam slots as `NAME/adam_m` and `NAME/adam_v`, and `global_step`: the name-based
format of TensorFlow 1. `model.ckpt-STEP` is the checkpoint's *prefix*. The file `checkpoint` in the
same directory lists the prefixes.

Checkpoints of TensorFlow Model Garden and modules of TF Hub are read under the same names.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from absl import logging

from bert_tf.errors import UserError, given, listed, quoted
from bert_tf.files import checkpoint_names, object_graphs, storage, weight_files
from bert_tf.files.paths import names_in
from bert_tf.files.whole_files import check_no_pointer
from bert_tf.files.whole_folders import Unreplaced
from bert_tf.start import lazy_tensorflow as tf

if TYPE_CHECKING:
    import keras

SLOT_PATTERN = re.compile(r"(.*/adam_[mv]|global_step)$")
BEST_FOLDER = "best"  # the best checkpoint's folder in --output_dir

_INDEX, _DATA = ".index", ".data-00000-of-"  # follow the prefix in the names of files
_ENCODER = "bert/encoder/", "electra/encoder/"  # begin the names of the layers in every model
_MODULE = "module/"  # begins names in a graph that uses a TF1 module of TF Hub
_VARIABLES = os.path.join("variables", "variables")  # prefix of a module of TF Hub
# Flag of a checkpoint -> the flag of its configuration.
_CONFIG_FLAGS = {
    "init_checkpoint": "--bert_config_file",
    "teacher_checkpoint": "--teacher_config_file",
}
# A model's name on huggingface.co, with or without the owner.
_HUB_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
_NAME_ONE = "name a prefix such as MODEL/bert_model.ckpt, or the directory of a run"


class DamagedCheckpointError(UserError):
    """A checkpoint is missing or incomplete: files deleted, truncated or only partly copied."""


# --- finding --------------------------------------------------------------------------------------


def find_prefix(path: str, flag: str | None = "init_checkpoint") -> str:
    """Returns the prefix of the checkpoint at `path`.

    `path` is a prefix (`.../bert_model.ckpt`), one of the checkpoint's files, or a directory. In a
    directory the file `checkpoint` names the newest checkpoint; without that file the directory
    must hold exactly one checkpoint. A run's directory stands for its best checkpoint if it kept
    one, a module of TF Hub for its variables. `flag` (no dashes) gave the path, for messages.
    """
    storage.check_file_system(path, flag)
    place, prefix = given(path, flag), path
    if _is_directory(path):
        best = os.path.join(path, BEST_FOLDER)
        kept = checkpoint_names.listed_in(best) if is_best_of_run(best) else []
        kept = kept or checkpoint_names.listed_in(path)
        if not kept:
            found = sorted(name for name in names_in(path) if name.endswith(".index"))
            if not found and module_of(os.path.join(path, _VARIABLES)):
                found = [f"{_VARIABLES}.index"]
            if not found:
                weight_files.check_not_hugging_face(path, place)
            if len(found) != 1:
                names = ", ".join(name.removesuffix(".index") for name in found)
                raise UserError(
                    f"{place} is a directory without a file `checkpoint` that names the"
                    f" newest checkpoint; {f'choose one of {names}' if found else _NAME_ONE}"
                )
            kept = [os.path.join(path, found[0])]
        prefix = kept[-1]
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", prefix)
    if not _is_directory(path):
        weight_files.check_not_hugging_face(path, place)
    there = " ".join(_suffixes(prefix))
    if not there:
        raise DamagedCheckpointError(place + _what_is_at(path))
    if missing := [f"{prefix}{x}" for x in (_INDEX, f"{_DATA}*") if x.rstrip("*") not in there]:
        raise DamagedCheckpointError(
            f"{place}: a checkpoint is named by its prefix and consists of the files"
            f" PREFIX.index and PREFIX.data-00000-of-...; not found: {', '.join(missing)}."
            f" {_NAME_ONE[0].upper() + _NAME_ONE[1:]}"
        )
    return prefix


def _what_is_at(path: str) -> str:
    """Returns what is at a path that is neither a folder nor a checkpoint's prefix."""
    if tf.io.gfile.exists(path):
        return f" is a file, not a checkpoint; give the folder that it is in, or {_NAME_ONE}"
    download = ""
    if _HUB_NAME.fullmatch(path) and not _is_directory(os.path.dirname(path)):
        download = (
            ". Nothing is downloaded: if it is a model on huggingface.co, run `pip install"
            f" huggingface_hub` and `hf download {path} --local-dir {path}`, then give the folder"
        )
    nearest = storage.nearest(path)
    return f": there is no such folder, and no checkpoint with that prefix{nearest}{download}"


def _suffixes(prefix: str) -> list[str]:
    """Returns the suffixes of a checkpoint's index and data files; [] if there are none."""
    directory, name = os.path.split(prefix)
    with contextlib.suppress(tf.errors.OpError):
        ends = [x.removeprefix(name) for x in names_in(directory) if x.startswith(name)]
        return [x for x in ends if x == _INDEX or x.startswith(_DATA)]
    return []


def is_best_of_run(folder: str) -> bool:
    """Returns whether a folder's name marks the best checkpoint of the run in its parent folder.

    A folder with a configuration is a complete model instead.
    """
    if os.path.basename(folder.rstrip("/")) != BEST_FOLDER:
        return False
    return not storage.first_file(folder, ["bert_config.json", "albert_config.json"])


def folder_of(path: str) -> str:
    """Returns the directory of the checkpoint at `path` (see `find_prefix`); it need not exist."""
    return path if _is_directory(path) else os.path.dirname(path)


def _is_directory(path: str) -> bool:
    # On ram:// every prefix of a file's name counts as a directory.
    return tf.io.gfile.isdir(path) and not tf.io.gfile.exists(path + ".index")


# --- reading --------------------------------------------------------------------------------------


class WeightReader(Protocol):
    """Reads the weights of a model by their names in a checkpoint, whatever the format."""

    prefix: str

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Name of a tensor -> its shape."""

    @property
    def dtypes(self) -> Mapping[str, tf.DType]:
        """Name of a tensor -> its dtype."""

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor."""

    def read_weights(self) -> dict[str, np.ndarray]:
        """Returns every weight by its name."""


class CheckpointReader:
    """Reads the tensors of a checkpoint by name; see `find_prefix` for the arguments.

    Attributes:
        prefix: the prefix of the checkpoint's files.
        shapes, dtypes: name of a tensor -> its shape, a list, and its dtype.
        sizes: for a checkpoint of Model Garden or a module of TF Hub, settings of the configuration
            that follow from its object graph; None for any other checkpoint.
    """

    def __init__(self, path: str, flag: str | None = "init_checkpoint"):
        self.prefix = find_prefix(path, flag)
        self._place = given(path, flag) + (f": {self.prefix}" if self.prefix != path else "")
        folder, name = os.path.split(self.prefix)
        self._files = Unreplaced(folder, [name + _INDEX], self._place)
        for file in (self.prefix + suffix for suffix in _suffixes(self.prefix)):
            check_no_pointer(file, f"{self._place}: {file}")
        readable = self._readable(flag)
        with self._explained("cannot be read"):
            self._reader = tf.compat.v1.train.NewCheckpointReader(readable)
            self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
            self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()
        self.sizes: dict[str, int] | None = {} if module_of(self.prefix) else None
        self._sources = {x.removeprefix(_MODULE): (x, shape) for x, shape in self.shapes.items()}
        if object_graphs.GRAPH in self.shapes:
            with self._explained("its object graph cannot be read"):
                graph = self._reader.get_tensor(object_graphs.GRAPH)
            self._sources, self.sizes = object_graphs.find_weights(graph, self.shapes, self._place)
        self.dtypes = {name: self.dtypes[key] for name, (key, _) in self._sources.items()}
        self.shapes = {name: shape for name, (_, shape) in self._sources.items()}

    def _readable(self, flag: str | None) -> str:
        """Returns a prefix of the files that TensorFlow does not read as a glob pattern."""
        if not re.search(r"[\[\\]", self.prefix):
            return self.prefix
        if "://" in self.prefix:  # a bucket has no links
            checkpoint_names.check_path(self.prefix, flag)
        self._links = tempfile.TemporaryDirectory(prefix="bert_tf_")
        prefix = os.path.join(self._links.name, "model.ckpt")
        name = os.path.basename(self.prefix)
        for file in checkpoint_names.files_of(self.prefix):
            os.symlink(os.path.abspath(file), prefix + os.path.basename(file).removeprefix(name))
        return prefix

    @contextlib.contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, RuntimeError, ValueError, LookupError) as error:
            self._files.check()
            raise DamagedCheckpointError(
                f"{self._place} is damaged, perhaps only partly copied or downloaded: {problem}"
                f" ({quoted(str(error))})"
            ) from error

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor."""
        with self._explained(f"{name} cannot be read"):
            key, shape = self._sources[name]
            value = self._reader.get_tensor(key)
            if "/.ATTRIBUTES/" in key:  # from an object graph
                value = value.T if name.endswith("output_weights") else value.reshape(shape)
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise DamagedCheckpointError(
                f"{self._place}: every weight must be a finite number, but"
                f" {np.sum(~np.isfinite(value))} of {value.size} in {name} are not"
            )
        number = checkpoint_names.number_of(self.prefix)
        if name == "global_step" and (value < 0 or number not in (None, value)):
            rule = "at least 0" if number is None else f"{number}, as the files' names say"
            raise DamagedCheckpointError(
                f"{self._place}: global_step must be {rule}, and is {value}; these may be the files"
                " of two checkpoints"
            )
        return value

    def read_weights(self) -> dict[str, np.ndarray]:
        """Returns every tensor by its name, without the optimizer's slots and the step."""
        names = [name for name in self.shapes if not SLOT_PATTERN.match(name)]
        return {name: self.read(name) for name in sorted(names)}


def load_weights(model: keras.Model, path: str) -> list[str]:
    """Sets the weights of a model from a checkpoint, and returns the names of the weights it set.

    Weights that the checkpoint lacks, such as a new head's, keep their values. Warnings list them
    and the weights that only the checkpoint has.

    Args:
        model: a model of this library; for your own model, pass the `BertModel` in it.
        path: a checkpoint in the format of google-research/bert: its prefix
            (`MODEL/bert_model.ckpt`), or a folder, such as an --output_dir, whose best (or newest)
            checkpoint is used.

    Raises:
        UserError: there is no checkpoint at `path`, or it does not fit the model: a weight differs
            in shape or type, or all weights of the model or of its encoder are missing. The message
            lists both sides.
        DamagedCheckpointError: a file of the checkpoint is missing or damaged.
    """
    return initialize({variable.path: variable.value for variable in model.variables}, path, None)


def initialize(
    variables: Mapping[str, tf.Variable],
    init_checkpoint: str,
    flag: str | None = "init_checkpoint",
    reader: WeightReader | None = None,
    needed: Collection[str] = (),
) -> list[str]:
    """Sets a model's variables, given by name; otherwise like `load_weights`.

    Slots and step are ignored, as in the original's get_assignment_map_from_checkpoint. A `reader`
    reads models in other formats. A UserError names the variables of `needed` that are missing.
    """
    reader = reader or CheckpointReader(init_checkpoint, flag)
    place = given(init_checkpoint, flag)
    configuration = _CONFIG_FLAGS.get(flag or "", "the model's configuration")
    common, missing, unexpected = _compare(variables, reader)
    if not common:
        raise UserError(
            f"{place} has none of the model's variables.\n"
            f"Missing: {_lines(missing)}\nUnexpected: {_lines(unexpected)}"
        )
    # Otherwise a BERT could get an ALBERT's embeddings and pooler, and keep its random layers.
    layers, other_layers, common_layers = (
        [name for name in names if name.startswith(_ENCODER)]
        for names in (missing, unexpected, common)
    )
    if layers and other_layers and not common_layers:
        raise UserError(
            f"{place} must be the kind of model that {configuration} describes. The model's encoder"
            f" has {layers[0]} and {len(layers) - 1} more; the checkpoint's encoder has none of"
            f" these, but {other_layers[0]} and {len(other_layers) - 1} more"
        )
    if lacking := [name for name in missing if name in needed]:
        raise UserError(
            f"{place} must have every weight that the outputs of this model depend on; it lacks"
            f" {listed(lacking)}. Train the model first, or name a different checkpoint"
        )
    _check_shapes(variables, reader, common, place, configuration if flag else "it")
    for name in common:
        variables[name].assign(reader.read(name))
    logging.info("Initialised %d variables from %s", len(common), reader.prefix)
    if missing:
        logging.warning("Not in %s, so left at their initial values: %s", place, _lines(missing))
    if unexpected:
        logging.warning("Only in %s, so not used: %s", place, _lines(unexpected))
    return common


def restore(variables: Mapping[str, tf.Variable], prefix: str) -> None:
    """Sets every variable, slots and `global_step` included, from the checkpoint at `prefix`."""
    reader = CheckpointReader(prefix, "output_dir")
    names, missing, unexpected = _compare(variables, reader)
    if missing:
        raise UserError(
            f"The checkpoint {prefix} in --output_dir must hold every variable of this run, which"
            f" resumes from it.{_generator_sizes(missing)}\nMissing: {_lines(missing)}\nUnexpected:"
            f" {_lines(unexpected)}\nChoose another --output_dir; to start from the weights of this"
            " checkpoint, give it as --init_checkpoint."
        )
    _check_shapes(variables, reader, names, f"The checkpoint {prefix} in --output_dir")
    if unexpected:
        logging.warning("Only in %s, so not used: %s", prefix, _lines(unexpected))
    for name in names:  # one at a time, to save memory
        variables[name].assign(reader.read(name))


def _compare(
    variables: Mapping[str, tf.Variable], reader: WeightReader
) -> tuple[list[str], list[str], list[str]]:
    """Returns the names in both, only in `variables`, and only in the checkpoint.

    Slots are left out of the last: weights may be frozen now, or this run may only evaluate.
    """
    shapes = reader.shapes
    common = [name for name in variables if name in shapes]
    missing = [name for name in variables if name not in shapes]
    unexpected = sorted(n for n in shapes if n not in variables and not SLOT_PATTERN.match(n))
    return common, missing, unexpected


def _check_shapes(
    variables: Mapping[str, tf.Variable],
    reader: WeightReader,
    names: Sequence[str],
    checkpoint: str,
    configuration: str = "--bert_config_file",
) -> None:
    shapes, dtypes = reader.shapes, reader.dtypes
    different = [
        f"{name}: {dtypes[name].name} {[*shapes[name]]} in the checkpoint,"
        f" {variables[name].dtype.name} {variables[name].shape.as_list()} in the model"
        for name in names
        if [*shapes[name]] != variables[name].shape.as_list()
        or dtypes[name] != variables[name].dtype
    ]
    if different:
        raise UserError(
            f"{checkpoint} does not fit the configuration; check {configuration} (vocab_size is the"
            " first dimension of embeddings/word_embeddings) and the number of classes (the"
            f" first dimension of output_weights).{_generator_sizes(different)}\nDifferent:"
            f" {_lines(different)}"
        )


def _generator_sizes(names: Sequence[str]) -> str:
    """Returns a note on the sizes of ELECTRA's generator if `names` has its variables, else ""."""
    if not any(name.startswith("generator") for name in names):
        return ""
    return " The generator's sizes are --generator_hidden_size and --generator_layers."


def _lines(names: Sequence[str]) -> str:
    return "".join(f"\n  {name}" for name in names) or "nothing"


def module_of(prefix: str) -> str | None:
    """Returns the folder of the module of TF Hub whose variables have this prefix, or None."""
    folder, name = os.path.split(os.path.dirname(prefix))
    saved_model = os.path.join(folder, weight_files.SAVED_MODEL)
    return folder if name == "variables" and tf.io.gfile.exists(saved_model) else None


def casing_of_module(folder: str) -> bool | None:
    """Returns `do_lower_case` of a TF2 module of TF Hub, if known."""
    prefix = os.path.join(folder, _VARIABLES)
    if not module_of(prefix) or not _suffixes(prefix):
        return None
    reader = tf.train.load_checkpoint(prefix)
    key = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
    return bool(reader.get_tensor(key)) if reader.has_tensor(key) else None


# --- writing --------------------------------------------------------------------------------------


def write(prefix: str, tensors: Mapping[str, tf.Tensor | tf.Variable | np.ndarray]) -> None:
    """Writes a checkpoint of named tensors; the files get their final names once complete."""
    names = sorted(tensors)
    with tf.device("CPU:0"):
        values = [tf.convert_to_tensor(tensors[name]) for name in names]
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )
