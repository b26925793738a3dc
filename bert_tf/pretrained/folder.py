"""The content of a folder with a trained model: weights, sizes, vocabulary, heads, classes."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert_tf.errors import UserError, first_of, listed
from bert_tf.files.model_notes import MODEL_INPUT_FILE, PAIRS, TEXTS, ModelInput
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.config import default_names
from bert_tf.model_folder.hugging_face.vector_settings import SIGMOID, VectorSettings
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.pretrained.pooling import POOLINGS
from bert_tf.tasks import arguments
from bert_tf.tasks.registry import HEADS
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.model_vocabulary import check_padding

if TYPE_CHECKING:
    import keras

_LAYER = re.compile(r"(?:bert|electra)/encoder/layer_(\d+)/")


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """The content of a model's folder."""

    path: str  # as the caller gave it
    config: BertConfig
    shapes: Mapping[str, Sequence[int]]  # by the weights' names in a checkpoint
    read: Callable[[str], np.ndarray]  # returns a weight, float32, by its name
    tokenizer: Tokenizer
    heads: tuple[str, ...]  # some of the names in `registry.HEADS`
    labels: tuple[str, ...]  # in the order of the logits; () without classes
    max_seq_length: int  # longest input in word pieces, [CLS] and [SEP] included
    # Arguments of `read_folder` that load the same model again, from any working directory and even
    # if there are newer checkpoints.
    source: Mapping[str, Any]
    vectors: VectorSettings = VectorSettings()  # default settings of `encode`
    trained_on: ModelInput = ModelInput()  # what the model was fine-tuned on
    has_sigmoid: bool = False  # whether the score of a pair of texts is a sigmoid
    forget: Callable[[], None] = lambda: None  # frees the weights, until `read` is called again
    _warned: list[bool] = dataclasses.field(default_factory=list, repr=False, compare=False)

    def __str__(self) -> str:
        config = self.config
        casing = "uncased" if self.tokenizer.do_lower_case else "cased"
        heads = ", ".join(HEADS[head].shown for head in self.heads) or "no head"
        classes = f"; classes: {listed(self.labels)}" if self.labels else ""
        return (
            f"{self.path}: {config.NAME} of {config.num_hidden_layers} layers, hidden size"
            f" {config.hidden_size}, {casing}, {len(self.tokenizer.vocab)} tokens; {heads}{classes}"
        )

    def check_head(self, head: str, method: str) -> None:
        """Raises UserError if the model lacks the head that a method of `Pretrained` needs."""
        if head not in self.heads:
            if head == "masked_lm" and any(x.startswith("generator/") for x in self.shapes):
                raise UserError(
                    f"{method} needs a generator without a discriminator; {self.path} has both."
                    " Write the generator to a folder with tools.convert_checkpoint"
                    " --output_format=electra_generator, and load that folder"
                )
            untrained = not self.heads and head not in ("masked_lm", "next_sentence")
            fit = ". Choose its task, as with for_classification(), and call fit first"
            raise UserError(
                f"{method} needs a model with the head that {HEADS[head].trained_by} trains;"
                f" {self.path} has {listed(self.heads) or 'no head'}{fit if untrained else ''}"
            )

    def poolings(self, pooling: str | None) -> Sequence[str]:
        """Returns the poolings for a call, by default the folder's; see `Pretrained.encode`."""
        arguments.check_type("pooling", pooling, arguments.STRING, "for the folder's setting")
        poolings = self.vectors.poolings if pooling is None else (pooling,)
        for name in poolings:
            arguments.check_choice("pooling", name, POOLINGS)
        if "pooled" in poolings and "bert/pooler/dense/kernel" not in self.shapes:
            raise UserError(
                f"{self.path} has no pooler, so pooling must be mean or cls, not pooled"
            )
        return poolings

    def warn_of_other_input(self, texts: Sequence[str | tuple[str, str]]) -> None:
        """Warns once if a classifier of pairs is given single texts, or the other way round."""
        reads, num_pairs = self.trained_on.reads, sum(isinstance(text, tuple) for text in texts)
        others = {PAIRS: len(texts) - num_pairs, TEXTS: num_pairs}.get(reads or "", 0)
        if others and not self._warned:
            self._warned.append(True)
            known = "pairs of texts" if reads == PAIRS else "single texts"
            found = "single texts; pass pairs, (a, b)" if reads == PAIRS else "pairs"
            logging.warning(
                "The model of %s was trained on %s, but %d of %d texts are %s",
                *(self.path, known, others, len(texts), found),
            )

    def check_unchanged(self, model: "keras.Model") -> None:
        """Raises UserError if a weight of a model differs from the weight now in the folder."""
        now = ModelFiles(self.source["path"])
        found = dataclasses.replace(self, shapes=now.shapes, read=now.read)
        for variable in model.variables:
            if not found.is_unchanged(variable):
                raise UserError(
                    f"A pickle or a copy of a model is loaded from its folder, {self.path}, but"
                    f" {variable.path} in memory differs from the folder's. Save the weights to a"
                    " folder, and load that"
                )

    def is_unchanged(self, variable: "keras.Variable") -> bool:
        """Returns whether a variable has the folder's weight, rounded to the variable's dtype."""
        if variable.path not in self.shapes:  # no output depends on it
            return True
        value = variable.numpy()
        return np.array_equal(value, self.read(variable.path).astype(value.dtype))


def read_folder(
    path: str | os.PathLike[str],
    bert_config_file: str | os.PathLike[str] | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    flag: str | None = None,
) -> ModelFolder:
    """Reads a model's folder; messages name `flag`. For the other arguments see `bert_tf.load`."""
    arguments.check_type("folder", path, arguments.PATH)
    arguments.check_type("do_lower_case", do_lower_case, arguments.SWITCH, "which detects it")
    path = os.fspath(path)
    bert_config_file = bert_config_file and os.fspath(bert_config_file)
    vocab_file = vocab_file and os.fspath(vocab_file)
    if not path:
        raise UserError("folder must be a path; received '' (str)")
    files = ModelFiles(path, flag, bert_config_file, vocab_file)
    with files.unreplaced:
        files.check_model()
        _check_layers(files)
        labels = _labels(files)
        tokenizer = files.tokenizer(do_lower_case)
        named = files.vocab_file, files.config_file
        check_vocabulary_size(tokenizer.vocab, files.config, *named)
        check_padding(tokenizer.vocab, files.config.pad_token_id, *named)
        heads = heads_of(files.shapes, labels, files.is_tagger)
        if max_seq_length is None:
            max_seq_length = files.usual_length()
            _warn_of_unknown_length(files, heads, "--" if flag else "")
        rule = f"{files.config.length_rule} of {files.config_file}"
        longest = files.config.longest_sequence
        default = "for the model's limit"
        arguments.check_count("max_seq_length", max_seq_length, 4, longest, rule, default)
        return ModelFolder(
            path=path,
            config=files.config,
            shapes=files.shapes,
            read=files.read,
            forget=files.forget,
            tokenizer=tokenizer,
            heads=heads,
            labels=labels,
            max_seq_length=int(max_seq_length),
            source={
                "path": _absolute(path if files.is_hugging_face else files.checkpoint.prefix),
                "bert_config_file": bert_config_file and _absolute(bert_config_file),
                "vocab_file": vocab_file and _absolute(vocab_file),
                "do_lower_case": do_lower_case,
            },
            vectors=files.vector_settings,
            trained_on=files.model_input,
            has_sigmoid=files.score_function == SIGMOID,
        )


def _check_layers(files: ModelFiles) -> None:
    layers = [int(found[1]) for found in map(_LAYER.match, files.shapes) if found]
    if max(layers, default=-1) >= files.config.num_hidden_layers:
        raise UserError(
            f"{files.config_file}: num_hidden_layers is {files.config.num_hidden_layers}, but"
            f" {files.path} has weights of {max(layers) + 1} layers. Are the files from the same"
            " model?"
        )


def _warn_of_unknown_length(files: ModelFiles, heads: tuple[str, ...], prefix: str) -> None:
    """Warns if a fine-tuned model's folder does not say which --max_seq_length was used."""
    known = files.vector_settings.max_seq_length or files.model_input.max_seq_length
    was_fine_tuned = not {*heads} <= {"masked_lm", "next_sentence"}
    if was_fine_tuned and not (known or files.is_hugging_face):
        logging.warning(
            "%s does not say which --max_seq_length the model was fine-tuned with:"
            " earlier versions wrote no %s. Texts are cut at %d word pieces, the model's"
            " limit. If it was trained with 128, set %smax_seq_length=128",
            *(files.path, MODEL_INPUT_FILE, files.config.longest_sequence, prefix),
        )


def check_vocabulary_size(
    vocab: Mapping[str, int], config: BertConfig, vocab_file: str, config_file: str
) -> None:
    """Raises UserError if a vocabulary has more tokens than the model; warns if it has fewer."""
    size = max(vocab.values()) + 1
    if size > config.vocab_size:
        raise UserError(
            f"{vocab_file} must be the vocabulary that the model was trained with: it has {size}"
            f" tokens, but vocab_size of {config_file} is {config.vocab_size}"
        )
    if size < config.vocab_size:
        logging.warning(
            "%s has %d tokens, and vocab_size of %s is %d: the other embeddings are not used."
            " That is right if they are padding; if the file lost a line, every later token has"
            " a wrong embedding",
            *(vocab_file, size, config_file, config.vocab_size),
        )


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _labels(files: ModelFiles) -> tuple[str, ...]:
    """Returns the classifier's classes; unknown classes get Hugging Face's default names."""
    if "output_bias" not in files.shapes:
        return ()
    (count,) = files.shapes["output_bias"]
    labels = files.labels
    if labels is None or (count == 1 and not labels):
        labels = default_names(count)
    if len(labels) != count:
        raise UserError(
            f"{files.labels_file} must name each of the {count} classes of the model; it names"
            f" {len(labels)}: {first_of(labels)}"
        )
    # A model with one output is a regression, even if the output has a name, because its softmax
    # is always 1. Multi-label models and taggers are exceptions.
    is_number = count == 1 and not (files.is_tagger or files.config.is_multi_label)
    return () if is_number else tuple(labels)


def heads_of(
    shapes: Mapping[str, Sequence[int]], labels: Sequence[str], tagging: bool
) -> tuple[str, ...]:
    classifier = "tagging" if tagging else "classification" if labels else "regression"
    # An ELECTRA with a separate generator is loaded without its generator.
    has_generator = any(name.startswith("generator/") for name in shapes)
    found = {
        "masked_lm": not (has_generator or shapes.keys().isdisjoint(HEADS["masked_lm"].biases)),
        "next_sentence": "cls/seq_relationship/output_bias" in shapes,
        classifier: "output_bias" in shapes,
        "multiple_choice": "output_weights" in shapes and "output_bias" not in shapes,
        "squad": not shapes.keys().isdisjoint(HEADS["squad"].biases),
    }
    return tuple(head for head, there in found.items() if there)
