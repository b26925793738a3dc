"""What a folder with a trained model holds: weights, sizes, vocabulary, heads, classes."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import checkpoints, storage
from bert_tf.files.label_file import LABELS_FILE, labels_in
from bert_tf.hugging_face import config as hugging_face_config
from bert_tf.hugging_face.conversion import SAFETENSORS_NAME, read_safetensors
from bert_tf.hugging_face.sentence_settings import sentence_settings
from bert_tf.hugging_face.tokenizer_file import read_byte_pairs, read_tokenizer
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import CONFIG_FILES, read_config
from bert_tf.text.byte_pairs import BytePairTokenizer
from bert_tf.text.casing import is_cased, read_casing
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.model_vocabulary import check_padding
from bert_tf.text.tokenizers import (
    TOKENIZER_FILE,
    VOCABULARY_FILES,
    Tokenizer,
    load_tokenizer,
    vocabulary_in,
)

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_LISTED_HEADS = {
    "masked_lm": "masked language model",
    "next_sentence": "next sentence",
    "classification": "classification",
    "regression": "regression",
    "tagging": "tagging",
    "multiple_choice": "multiple choice",
    "squad": "answers (SQuAD)",
}


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """What a folder holds.

    path: as it was given.
    config: sizes of the model.
    shapes: shape of each weight by its name in a checkpoint.
    read: returns a weight, float32, by its name.
    tokenizer: with the model's vocabulary and casing.
    heads: of `masked_lm`, `next_sentence`, `classification`, `regression`, `tagging`,
        `multiple_choice`, `squad`.
    labels: classes in the order of the logits; () without any.
    max_seq_length: longest input in word pieces, [CLS] and [SEP] included.
    pooling: how the vector of a text is made by default: "mean" or "cls".
    normalize: whether that vector is divided by its length by default.
    """

    path: str
    config: BertConfig
    shapes: Mapping[str, Sequence[int]]
    read: Callable[[str], np.ndarray]
    tokenizer: Tokenizer
    heads: tuple[str, ...]
    labels: tuple[str, ...]
    max_seq_length: int
    pooling: str = "mean"
    normalize: bool = False

    def __str__(self) -> str:
        config = self.config
        casing = "uncased" if self.tokenizer.do_lower_case else "cased"
        heads = ", ".join(_LISTED_HEADS[head] for head in self.heads) or "no head"
        classes = f"; classes: {listed(self.labels)}" if self.labels else ""
        return (
            f"{self.path}: {config.NAME} of {config.num_hidden_layers} layers, hidden size"
            f" {config.hidden_size}, {casing}, {len(self.tokenizer.vocab)} tokens; {heads}{classes}"
        )


def read_folder(
    path: str,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
) -> ModelFolder:
    """Finds out what a folder holds.

    Args:
        path: a released model's folder, an --output_dir, an --export_dir or a folder of Hugging
            Face's; or the prefix of a checkpoint.
        bert_config_file, vocab_file: instead of the files in the folder; the former not with a
            folder of Hugging Face's.
        do_lower_case: casing of the vocabulary; None finds it out.
        max_seq_length: longest input in word pieces; None for what the folder or the model says.

    Raises:
        UserError: the folder has no model or several, or its files do not fit each other.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"The folder of a model must be a path; received {quoted(path)}")
    path = os.fspath(path)
    storage.check_file_system(path, None)
    folder = checkpoints.folder_of(path) or "."
    if _is_hugging_face(path):
        config_file = os.path.join(path, "config.json")
        if bert_config_file:
            raise UserError(
                f"bert_config_file must not be given with {SAFETENSORS_NAME}, whose configuration"
                f" is {config_file}; received {quoted(bert_config_file)}. Leave it out"
            )
        weights, config, class_names, task = read_safetensors(path)
        shapes = {name: list(value.shape) for name, value in weights.items()}
        labels = _labels(shapes, class_names, config_file)
        tagging = (
            task == "ForTokenClassification"
            if task
            else hugging_face_config.is_tagger(shapes, labels)
        )
        read = weights.__getitem__
    else:
        reader = checkpoints.CheckpointReader(path, flag=None)
        config_file = bert_config_file or _find(folder, CONFIG_FILES, "bert_config_file")
        config = read_config(config_file)
        shapes, read = reader.shapes, reader.read
        labels = _labels(shapes, labels_in(folder), os.path.join(folder, LABELS_FILE))
        tagging = hugging_face_config.is_tagger(shapes, labels)
    tokenizer, vocab_place = _tokenizer(folder, vocab_file, do_lower_case)
    _check_vocabulary(tokenizer.vocab, vocab_place, config, config_file)
    longest = config.longest_sequence
    pooling, normalize, sentence_length = sentence_settings(folder)
    if max_seq_length is None:
        max_seq_length = min(longest, sentence_length or longest)
    if not 4 <= max_seq_length <= longest:
        raise UserError(
            f"max_seq_length must be between 4 and {longest} ({config.length_rule} of"
            f" {config_file}); received {quoted(max_seq_length)}"
        )
    return ModelFolder(
        path=path,
        config=config,
        shapes=shapes,
        read=read,
        tokenizer=tokenizer,
        heads=_heads(shapes, labels, tagging),
        labels=tuple(labels or ()),
        max_seq_length=max_seq_length,
        pooling=pooling,
        normalize=normalize,
    )


def _is_hugging_face(path: str) -> bool:
    """Returns whether a folder is one of Hugging Face's; refuses one without a model, or two."""
    if checkpoints.folder_of(path) != path:
        if not tf.io.gfile.glob(f"{path}.index") and not tf.io.gfile.exists(path):
            raise UserError(f"{path}: there is no such folder, and no checkpoint of that prefix")
        return False
    names = sorted(tf.io.gfile.listdir(path))
    has_checkpoint = any(name == "checkpoint" or name.endswith(".index") for name in names)
    has_safetensors = SAFETENSORS_NAME in names
    if has_checkpoint and has_safetensors:
        raise UserError(
            f"{path} must have one model; it has {SAFETENSORS_NAME} and a checkpoint. Name the"
            " prefix of the checkpoint, such as bert_model.ckpt, or move one of them away"
        )
    if not has_checkpoint and not has_safetensors:
        raise UserError(
            f"{path} must have a model: a checkpoint (PREFIX.index, PREFIX.data-00000-of-...), or"
            f" {SAFETENSORS_NAME} with config.json; it has {listed(names) or 'no files'}"
        )
    return has_safetensors


def _find(folder: str, names: Sequence[str], argument: str) -> str:
    """Returns a file's path in a folder. Beside best/ it may be in the folder of the run.

    Args:
        folder: of the model.
        names: that the file may have.
        argument: of `load` that names another file, for messages.
    """
    folders = [folder]
    if os.path.basename(folder.rstrip("/")) == "best":
        folders.append(os.path.dirname(folder.rstrip("/")))
    for place in folders:
        if path := storage.first_file(place, names):
            return path
    raise UserError(
        f"{folder} must have {' or '.join(names)}, with which the model was trained; copy it there,"
        f" or give load(..., {argument}=...)"
    )


def _labels(
    shapes: Mapping[str, Sequence[int]], labels: Sequence[str] | None, place: str
) -> list[str] | None:
    """Returns the classes of the classifier: [] for a regression, None without a classifier.

    Unknown classes get Hugging Face's default names.
    """
    if "output_bias" not in shapes:
        return None
    (count,) = shapes["output_bias"]
    if labels is None:
        return [f"LABEL_{i}" for i in range(count)]
    if len(labels) != count and (labels or count != 1):
        raise UserError(
            f"{place} must name each of the {count} classes of the model; it names {len(labels)}:"
            f" {listed(labels) or 'none'}"
        )
    return list(labels)


def _heads(
    shapes: Mapping[str, Sequence[int]], labels: Sequence[str] | None, tagging: bool
) -> tuple[str, ...]:
    classifier = "tagging" if tagging else "classification" if labels else "regression"
    found = {
        "masked_lm": "cls/predictions/output_bias" in shapes,
        "next_sentence": "cls/seq_relationship/output_bias" in shapes,
        classifier: "output_bias" in shapes,
        "multiple_choice": "output_weights" in shapes and "output_bias" not in shapes,
        "squad": "cls/squad/output_bias" in shapes,
    }
    return tuple(head for head, there in found.items() if there)


def _tokenizer(
    folder: str, vocab_file: str | None, do_lower_case: bool | None
) -> tuple[Tokenizer, str]:
    """Returns the tokenizer, and the file of its vocabulary for messages."""
    recorded = read_casing(folder)
    tokenizer_file = os.path.join(folder, TOKENIZER_FILE)
    own = vocabulary_in(folder)
    if vocab_file is None and not own and tf.io.gfile.exists(tokenizer_file):
        if files := read_byte_pairs(tokenizer_file):
            required = BytePairTokenizer.sequence_tokens
            tokenizer = BytePairTokenizer(tokenizer_file, bool(do_lower_case), required, files)
            return tokenizer, tokenizer_file
        vocab, lowercase = read_tokenizer(tokenizer_file)
        tokenizer = FastTokenizer(vocab)
        vocab_file = tokenizer_file
        recorded = lowercase if recorded is None else recorded
        missing = [token for token in _SPECIAL if token not in vocab]
        if missing:
            raise UserError(f"{tokenizer_file}: the vocabulary must have {listed(missing)}")
    else:
        vocab_file = vocab_file or _find(folder, VOCABULARY_FILES, "vocab_file")
        tokenizer = load_tokenizer(vocab_file, bool(do_lower_case))
        vocab = tokenizer.vocab
        if recorded is None:
            recorded = read_casing(os.path.dirname(vocab_file))
    if do_lower_case is None:
        do_lower_case = not is_cased(vocab) if recorded is None else recorded
    return tokenizer.with_casing(do_lower_case), vocab_file


def _check_vocabulary(
    vocab: Mapping[str, int], vocab_file: str, config: BertConfig, config_file: str
) -> None:
    size = max(vocab.values()) + 1
    if size > config.vocab_size:
        raise UserError(
            f"{vocab_file} must be the vocabulary that the model was trained with: it has {size}"
            f" tokens, but vocab_size of {config_file} is {config.vocab_size}"
        )
    check_padding(vocab, config.pad_token_id, vocab_file, config_file)
