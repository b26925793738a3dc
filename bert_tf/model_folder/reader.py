"""`ModelFiles`: finds and reads the files of a trained model."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from absl import logging

from bert_tf.errors import UserError, given, listed, quoted
from bert_tf.files import checkpoints, storage, weight_files
from bert_tf.files.checkpoint_names import files_of
from bert_tf.files.model_notes import LABELS_FILE, ModelInput, labels_in, read_model_input
from bert_tf.files.paths import names_in
from bert_tf.files.weight_files import SAFETENSORS, SHARDS
from bert_tf.files.whole_folders import Unreplaced
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import CONFIG_FILES, AlbertConfig, ElectraConfig, read_config
from bert_tf.model_folder.hugging_face.config import is_tagger
from bert_tf.model_folder.hugging_face.config import read_config as read_config_json
from bert_tf.model_folder.hugging_face.conversion import ConvertedModel
from bert_tf.model_folder.hugging_face.vector_settings import (
    VectorSettings,
    read_score_function,
    read_vector_settings,
    tokenizer_length,
    transformer_folder,
)
from bert_tf.model_folder.writer import MODEL_NAMES
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.byte_pairs import BytePairTokenizer
from bert_tf.text.casing import find_casing
from bert_tf.text.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.tokenizers import VOCABULARY_FILES, load_tokenizer, read_vocabulary, vocabulary_in

# If one of these files changes, the folder has a different model.
_NAMES = (*MODEL_NAMES, "config.json", SAFETENSORS, SHARDS, TOKENIZER_FILE, "checkpoint")


class ModelFiles:
    """The files of a trained model. Each is read once, on first use.

    A model in Hugging Face's format is a folder with `config.json` and `model.safetensors` (or its
    shards and their index), or with a `modules.json` of sentence-transformers that names such a
    folder. Other models are checkpoints with `bert_config.json` and `labels.txt` in the same
    folder: a released model, an --output_dir, an --export_dir. A run's OUTPUT_DIR/best lacks a
    configuration; missing files are read from OUTPUT_DIR.

    Args:
        path: the folder, or the prefix of a checkpoint.
        flag, config_flag: the flags (no dashes) that gave the paths, for messages.
        config_file, vocab_file: override the files in the folder. `config_file` must not be given
            for Hugging Face's format.
        only_checkpoint: whether to ignore a `model.safetensors`.

    Attributes:
        unreplaced: a context manager that raises an error if the files change before its end.
    """

    def __init__(
        self,
        path: str,
        flag: str | None = None,
        config_file: str | None = None,
        vocab_file: str | None = None,
        config_flag: str = "bert_config_file",
        only_checkpoint: bool = False,
    ):
        storage.check_file_system(path, flag)
        self._root = path
        self.path = path = path if only_checkpoint else transformer_folder(path)
        self.unreplaced = Unreplaced(checkpoints.folder_of(path), _NAMES, given(path, flag))
        safetensors = None if only_checkpoint else weight_files.safetensors_in(path)
        self.is_hugging_face = safetensors is not None
        self._flag = flag
        self._config_file, self._config_flag = config_file, config_flag
        self._vocab_file = vocab_file

    @classmethod
    def of_flag(
        cls,
        path: str,
        flag: str = "init_checkpoint",
        config_file: str | None = None,
        config_flag: str = "bert_config_file",
    ) -> Self:
        """Returns the files of the model that a program's flag names; checks that the model exists.

        A checkpoint takes precedence over a `model.safetensors` beside it, to match the original.
        """
        storage.check_file_system(path, flag)
        path = weight_files.folder_named(path)
        only_checkpoint = weight_files.has_checkpoint(path)
        files = cls(path, flag, config_file, None, config_flag, only_checkpoint)
        if not files.is_hugging_face:
            checkpoints.find_prefix(path, flag)
        return files

    def check_model(self, allow_two: bool = False) -> None:
        """Checks that there is one model; `allow_two` allows a checkpoint beside safetensors."""
        path, place = self.path, given(self.path, self._flag)
        if checkpoints.folder_of(path) != path:  # not a folder: `checkpoint` reports errors
            return
        has_checkpoint = weight_files.has_checkpoint(path)
        if has_checkpoint and self.is_hugging_face and not allow_two:
            raise UserError(
                f"{place} must have one model; it has {SAFETENSORS} and a checkpoint. Name the"
                " prefix of the checkpoint, such as bert_model.ckpt, or move one of the two away"
            )
        if not has_checkpoint and not self.is_hugging_face:
            names = sorted(names_in(path))
            weight_files.check_no_other_weights(path, place)
            raise UserError(
                f"{place} must have a model: a checkpoint (PREFIX.index,"
                f" PREFIX.data-00000-of-...), or {SAFETENSORS} with config.json; it has"
                f" {listed(names) or 'no files'}"
            )

    # --- where the files are ----------------------------------------------------------------------

    @functools.cached_property
    def folder(self) -> str:
        """The folder of the weights; for a module of TF Hub, the module's folder."""
        if self.is_hugging_face:
            return self.path
        prefix = self.checkpoint.prefix
        return checkpoints.module_of(prefix) or os.path.dirname(prefix)

    @functools.cached_property
    def home(self) -> str:
        """The folder of the configuration and the vocabulary: for OUTPUT_DIR/best, OUTPUT_DIR.

        A folder named `best` with its own configuration is a complete model.
        """
        if not self.is_hugging_face and checkpoints.is_best_of_run(self.folder):
            return os.path.dirname(self.folder.rstrip("/"))
        return self.folder

    @functools.cached_property
    def config_file(self) -> str:
        """The file with the configuration, or a checkpoint's prefix if there is no such file."""
        if not self.is_hugging_face:
            remedy = (
                f"Name the model's configuration with {self._config_flag}, or move the other away"
            )
            path = self._config_file or storage.only_file(self.home, CONFIG_FILES, remedy)
            if not path and self.checkpoint.sizes is not None:
                return self.checkpoint.prefix
            return path or self._must_have(CONFIG_FILES, self._config_flag)
        config_file = os.path.join(self.path, "config.json")
        if self._config_file:
            raise UserError(
                f"{self._config_flag} must not be given with {SAFETENSORS}, whose"
                f" configuration is {config_file}; received {quoted(self._config_file)}. Leave it"
                " out"
            )
        return config_file

    @functools.cached_property
    def vocab_file(self) -> str | None:
        """The path of the vocabulary, or of a `tokenizer.json` that contains it, if found."""
        own = self._vocab_file or vocabulary_in(self.folder) or vocabulary_in(self.home)
        own = own or vocabulary_in(os.path.join(self.folder, "assets"))  # TF Hub's modules
        return own or storage.first_file(self.home, [TOKENIZER_FILE])

    @property
    def weight_paths(self) -> list[str]:
        """The files of the weights; in Hugging Face's format all files of the folder."""
        if self.is_hugging_face:
            return [os.path.join(self.path, name) for name in names_in(self.path)]
        return files_of(checkpoints.find_prefix(self.path, self._flag))

    @property
    def labels_file(self) -> str:
        """The path of the file that names the classes."""
        return self.config_file if self.is_hugging_face else os.path.join(self.folder, LABELS_FILE)

    def _must_have(self, names: Sequence[str], argument: str) -> str:
        remedy = f"--{argument}" if self._flag else f"load(..., {argument}=...)"
        raise UserError(
            f"{given(self.path, self._flag)} must have {' or '.join(names)}, which the model was"
            f" trained with; {self.home or 'this folder'} has none. Copy the file there, or give"
            f" {remedy}"
        )

    # --- what the files hold ----------------------------------------------------------------------

    @functools.cached_property
    def checkpoint(self) -> checkpoints.CheckpointReader:
        """The checkpoint; not for a model in Hugging Face's format."""
        return checkpoints.CheckpointReader(self.path, self._flag)

    @functools.cached_property
    def _converted(self) -> ConvertedModel:
        return ConvertedModel(self.path)

    @property
    def weights(self) -> checkpoints.WeightReader:
        """Reads the weights, and from a checkpoint also the optimizer's slots."""
        return self._converted if self.is_hugging_face else self.checkpoint

    @functools.cached_property
    def config(self) -> BertConfig:
        path = self.config_file  # raises if the caller gave one for Hugging Face's format
        if self.is_hugging_face:
            return self._converted.config
        if self._config_file or os.path.basename(path) in CONFIG_FILES:
            return read_config(path, self._config_flag)
        return config_of_weights(self.checkpoint, given(self.path, self._flag))

    @functools.cached_property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Name in a checkpoint -> shape, for every weight and every slot of an optimizer."""
        if self.is_hugging_face:
            return self._converted.shapes
        shapes = self.checkpoint.shapes
        classes = list(shapes.get("output_bias", [1]))
        if len(classes) != 1 or classes == [0]:
            raise UserError(
                f"{given(self.path, self._flag)}: output_bias must have a number for each class, so"
                f" its shape must be [classes]; it is {classes}. Choose a different checkpoint"
            )
        return shapes

    def read(self, name: str) -> np.ndarray:
        return self.weights.read(name)

    def forget(self) -> None:
        """Frees the weights that `read` keeps in memory; `read` then reads the file again."""
        if self.is_hugging_face:
            self._converted.forget()

    def read_weights(self) -> dict[str, np.ndarray]:
        """Returns all weights by their names in a checkpoint, without an optimizer's slots."""
        return self.weights.read_weights()

    @functools.cached_property
    def labels(self) -> list[str] | None:
        """The classes in the order of the logits; [] for a regression, None if unknown."""
        return self._converted.labels if self.is_hugging_face else labels_in(self.folder)

    @functools.cached_property
    def is_tagger(self) -> bool:
        """Whether the classifier labels words, by `architectures` or else by classes and shapes."""
        if self.is_hugging_face and self._converted.task:
            return self._converted.task == "ForTokenClassification"
        return is_tagger(self.shapes, self.labels)

    @functools.cached_property
    def vocabulary(self) -> dict[str, bytes]:
        """Name of a vocabulary file -> its content, see `read_vocabulary`."""
        if not self.vocab_file:
            return {}
        return read_vocabulary(self.vocab_file, self.is_hugging_face)

    def tokenizer(self, do_lower_case: bool | None = None) -> Tokenizer:
        """Returns the tokenizer; `do_lower_case` None detects the casing, see `find_casing`."""
        path = self.vocab_file or self._must_have(VOCABULARY_FILES, "vocab_file")
        tokenizer = load_tokenizer(
            path,
            bool(do_lower_case),
            hugging_face=self.is_hugging_face,
            drop_category_c=self.config.drop_category_c,
        )
        if do_lower_case is None:
            has_casing = not isinstance(tokenizer, BytePairTokenizer)
            found = (tokenizer.vocab, tokenizer.settings, self.is_hugging_face and has_casing)
            do_lower_case = find_casing(self.home, path, *found) is not False
        return tokenizer.with_casing(do_lower_case)

    @functools.cached_property
    def model_input(self) -> ModelInput:
        """The inputs of fine-tuning; in Hugging Face's format the tokenizer may give the length."""
        found = read_model_input(self.home)
        in_settings = found.max_seq_length or self.vector_settings.max_seq_length
        if self.is_hugging_face and not in_settings:
            length = tokenizer_length(self.path)
            if length and length < self.config.longest_sequence:
                return dataclasses.replace(found, max_seq_length=length)
        return found

    def usual_length(self, default: int | None = None) -> int:
        """Returns the length of inputs that the folder asks for, in word pieces.

        That is the smallest of the length in the settings of vectors, the length in training, and
        the model's limit. If the first two are unknown, `default` replaces them.
        """
        longest = self.config.longest_sequence
        known = self.vector_settings.max_seq_length, self.model_input.max_seq_length
        lengths = [*filter(None, known)] or [default or longest]
        return min(longest, *lengths)

    @functools.cached_property
    def score_function(self) -> str:
        """How a cross-encoder's single output becomes a score, see `read_score_function`."""
        folder = self._root if self.is_hugging_face else self.home
        config = read_config_json(self.config_file) if self.is_hugging_face else None
        outputs = self.shapes.get("output_bias", (0,))
        has_classes = list(outputs) > [1] and not self.config.is_multi_label
        return read_score_function(folder, config, has_classes)

    @functools.cached_property
    def vector_settings(self) -> VectorSettings:
        """How sentence-transformers makes a text's vector with this model."""
        return read_vector_settings(self._root if self.is_hugging_face else self.home)


_HEAD_SIZE = 64  # of every BERT and ELECTRA that Google released, and most ALBERTs
_GROUP = "bert/encoder/transformer/group_0/inner_group_0/"


def config_of_weights(checkpoint: checkpoints.CheckpointReader, place: str) -> BertConfig:
    """Returns the configuration of a checkpoint of Model Garden or TF Hub.

    Shapes do not show the activation or the dropout rates, so Google's are assumed. `place` names
    the checkpoint in messages.
    """
    shapes, sizes = checkpoint.shapes, checkpoint.sizes or {}
    kind: type[BertConfig] = BertConfig
    layer, query, inner = "bert/encoder/layer_0/", "attention/self/query", "intermediate/dense"
    if any(name.startswith(_GROUP) for name in shapes):
        kind = AlbertConfig
        layer, query, inner = _GROUP, "attention_1/self/query", "ffn_1/intermediate/dense"
    elif any(name.startswith("electra/") for name in shapes):
        kind, layer = ElectraConfig, "electra/encoder/layer_0/"
    embeddings = f"{kind.scope}/embeddings"
    dimensions = {
        "vocab_size": (f"{embeddings}/word_embeddings", 0),
        "embedding_size": (f"{embeddings}/word_embeddings", 1),
        "max_position_embeddings": (f"{embeddings}/position_embeddings", 0),
        "type_vocab_size": (f"{embeddings}/token_type_embeddings", 0),
        "hidden_size": (f"{layer}{query}/kernel", 0),
        "intermediate_size": (f"{layer}{inner}/kernel", 1),
    }
    if missing := sorted({name for name, _ in dimensions.values()} - shapes.keys()):
        raise UserError(
            f"{place} must be a checkpoint of BERT, ALBERT or ELECTRA; it lacks {listed(missing)}"
        )
    sizes = {key: shapes[name][axis] for key, (name, axis) in dimensions.items()} | sizes
    if kind is not AlbertConfig:
        names = [name for name in shapes if name.startswith(f"{kind.scope}/encoder/layer_")]
        sizes["num_hidden_layers"] = len({name.split("/")[2] for name in names})
    elif "num_hidden_layers" not in sizes:
        raise UserError(
            f"{place} has an ALBERT whose layers share their weights, so the checkpoint does"
            " not say how many layers it has. Write an albert_config.json beside it, or give"
            " --bert_config_file"
        )
    else:
        sizes["num_hidden_groups"] = sizes["num_hidden_layers"]
    if kind is BertConfig:
        del sizes["embedding_size"]
    guessed = f"hidden_act is assumed to be {'gelu_erf' if kind is ElectraConfig else 'gelu'}"
    if "num_attention_heads" not in sizes:
        guessed += f", and the size of an attention head {_HEAD_SIZE}"
        sizes["num_attention_heads"] = max(1, sizes["hidden_size"] // _HEAD_SIZE)
    logging.warning(
        "%s has no configuration beside it. The sizes are read from its weights; %s, as in Google's"
        " models. If that is wrong, write a bert_config.json",
        *(place, guessed),
    )
    return kind.from_dict(sizes)
