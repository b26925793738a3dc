"""What a folder with a trained model holds: weights, sizes, vocabulary, heads, classes."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError, listed, quoted
from bert_tf.hugging_face.config import default_names
from bert_tf.hugging_face.vector_settings import VectorSettings
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.model_vocabulary import check_padding

_LISTED_HEADS = {
    "masked_lm": "masked language model",
    "next_sentence": "next sentence",
    "classification": "classification",
    "regression": "regression",
    "tagging": "tagging",
    "multiple_choice": "multiple choice",
    "squad": "answers (SQuAD)",
}
_TRAINED_BY = {
    "masked_lm": "run_pretraining.py",
    "classification": "run_classifier.py",
    "squad": "run_squad.py",
    "tagging": "run_tagging.py",
}


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """What a model's folder holds.

    path: the path as the caller gave it.
    shapes: shape of each weight by its name in a checkpoint.
    read: returns a weight, float32, by its name.
    tokenizer: has the model's vocabulary and casing.
    heads: some of `masked_lm`, `next_sentence`, `classification`, `regression`, `tagging`,
        `multiple_choice`, `squad`.
    labels: classes in the order of the logits; () without classes.
    max_seq_length: longest input in word pieces, [CLS] and [SEP] included.
    vectors: how a text's vector is made by default.
    """

    path: str
    config: BertConfig
    shapes: Mapping[str, Sequence[int]]
    read: Callable[[str], np.ndarray]
    tokenizer: Tokenizer
    heads: tuple[str, ...]
    labels: tuple[str, ...]
    max_seq_length: int
    vectors: VectorSettings = VectorSettings()

    def __str__(self) -> str:
        config = self.config
        casing = "uncased" if self.tokenizer.do_lower_case else "cased"
        heads = ", ".join(_LISTED_HEADS[head] for head in self.heads) or "no head"
        classes = f"; classes: {listed(self.labels)}" if self.labels else ""
        return (
            f"{self.path}: {config.NAME} of {config.num_hidden_layers} layers, hidden size"
            f" {config.hidden_size}, {casing}, {len(self.tokenizer.vocab)} tokens; {heads}{classes}"
        )

    def check_head(self, head: str, method: str) -> None:
        """Raises UserError if the model lacks the head that a method of `Pretrained` needs."""
        if head not in self.heads:
            raise UserError(
                f"{method} needs a model with the head that {_TRAINED_BY[head]} trains;"
                f" {self.path} has {listed(self.heads) or 'no head'}"
            )

    def check_segment(self, segment: int) -> None:
        """Raises UserError if the model has no embedding for a segment."""
        size = self.config.type_vocab_size
        if segment >= size:
            raise UserError(
                f"{self.path} takes no pairs of texts: the vocabulary gives the second text the"
                f" segment {segment}, and type_vocab_size of the model's configuration is {size}."
                " Give single texts, or a model for pairs"
            )


def read_folder(
    path: str,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
) -> ModelFolder:
    """Returns what a model's folder holds; for arguments and errors see `pretrained.model.load`."""
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"The folder of a model must be a path; received {quoted(path)}")
    path = os.fspath(path)
    files = ModelFiles(path, None, bert_config_file, vocab_file)
    files.check_model()
    config, shapes = files.config, files.shapes
    labels = _labels(shapes, files.labels, files.labels_file, config.is_multi_label)
    tokenizer = files.tokenizer(do_lower_case)
    size = max(tokenizer.vocab.values()) + 1
    if size > config.vocab_size:
        raise UserError(
            f"{files.vocab_file} must be the vocabulary that the model was trained with: it has"
            f" {size} tokens, but vocab_size of {files.config_file} is {config.vocab_size}"
        )
    check_padding(tokenizer.vocab, config.pad_token_id, files.vocab_file, files.config_file)
    longest = config.longest_sequence
    if max_seq_length is None:
        max_seq_length = min(longest, files.vector_settings.max_seq_length or longest)
    if not 4 <= max_seq_length <= longest:
        raise UserError(
            f"max_seq_length must be between 4 and {longest} ({config.length_rule} of"
            f" {files.config_file}); received {quoted(max_seq_length)}"
        )
    return ModelFolder(
        path=path,
        config=config,
        shapes=shapes,
        read=files.read,
        tokenizer=tokenizer,
        heads=_heads(shapes, labels, files.is_tagger),
        labels=labels,
        max_seq_length=max_seq_length,
        vectors=files.vector_settings,
    )


def _labels(
    shapes: Mapping[str, Sequence[int]],
    labels: Sequence[str] | None,
    place: str,
    is_multi_label: bool,
) -> tuple[str, ...]:
    """Returns the classifier's classes; unknown classes get Hugging Face's default names.

    A single output without a name is a number, not a class, unless the model `is_multi_label`.
    """
    if "output_bias" not in shapes:
        return ()
    (count,) = shapes["output_bias"]
    if labels is None and count == 1 and not is_multi_label:
        return ()
    if labels is None:
        return tuple(default_names(count))
    if len(labels) != count and (labels or count != 1):
        raise UserError(
            f"{place} must name each of the {count} classes of the model; it names {len(labels)}:"
            f" {listed(labels) or 'none'}"
        )
    return tuple(labels)


def _heads(
    shapes: Mapping[str, Sequence[int]], labels: Sequence[str], tagging: bool
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
