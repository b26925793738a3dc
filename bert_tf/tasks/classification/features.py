"""Converts examples to records: [CLS] text_a [SEP] text_b [SEP], and the label."""

from collections.abc import Iterator, Sequence

from absl import logging

from bert_tf import progress
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import records
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

_EXAMPLES_PER_BATCH = 2048  # examples in one call of the tokenizer
_LOGGED_EXAMPLES = 5  # as in the original's file_based_convert_examples_to_features


def write_records(
    examples: Sequence[InputExample],
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: Tokenizer,
    output_file: str,
) -> int:
    """Writes one record for each example, in the same order; returns their number.

    The records, and the log lines of the first five, are those of the original's
    `file_based_convert_examples_to_features`. The file is written atomically.

    Args:
        examples: the examples.
        label_list: the classes in the order of the logits; None for regression.
        max_seq_length: length of the sequences; longer texts are cut at their ends.
        tokenizer: its vocabulary must have the tokens of its `layout`.
        output_file: the TFRecord file.

    Raises:
        UserError: `max_seq_length` is too small, an example has no valid label, or the file cannot
            be written.
    """
    least = tokenizer.layout.num_special(is_pair=True) + 1
    if max_seq_length < least:
        raise UserError(
            f"--max_seq_length must be at least {least}, for the special tokens of a pair and one"
            f" token of the text; got {max_seq_length}"
        )
    schema = classification_schema(max_seq_length, regression=label_list is None)
    label_ids = None if label_list is None else {name: i for i, name in enumerate(label_list)}
    with (
        records.write_files([output_file], "output_dir") as write,
        progress.Progress("writing records", "examples", len(examples)) as work,
    ):
        written = 0
        for start in range(0, len(examples), _EXAMPLES_PER_BATCH):
            batch = examples[start : start + _EXAMPLES_PER_BATCH]
            for example, ids_a, ids_b in _tokenize(batch, tokenizer):
                # A second text without tokens is left out, as in the original.
                values = sequences.truncate_and_pack(ids_a, ids_b, max_seq_length, tokenizer.layout)
                values["label_ids"] = [_label(example, label_ids)]
                values["is_real_example"] = [1]
                if written < _LOGGED_EXAMPLES:
                    _log(example, values, tokenizer)
                write(records.serialize(values, schema))
                written += 1
            work.advance(len(batch))
    return written


def _tokenize(
    examples: Sequence[InputExample], tokenizer: Tokenizer
) -> Iterator[tuple[InputExample, list[int], list[int]]]:
    """Yields each example with the ids of text_a and of text_b ([] if it has none)."""
    texts = []
    for example in examples:
        texts += [example.text_a, example.text_b or ""]
    ids, splits = tokenizer.encode(texts)
    for i, example in enumerate(examples):
        start, middle, end = splits[2 * i : 2 * i + 3]
        yield example, ids[start:middle].tolist(), ids[middle:end].tolist()


def _label(example: InputExample, label_ids: dict[str, int] | None) -> int | float:
    """Returns the number of the example's class, or its label for regression."""
    if label_ids is None:
        return float(example.label)
    if example.label not in label_ids:
        raise UserError(
            f"Example {quoted(example.guid)}: label {quoted(example.label)} must be one of"
            f" {listed(label_ids)}; change the label, or what get_labels of the task's processor"
            " returns"
        )
    return label_ids[example.label]


def _log(example: InputExample, values: dict[str, list], tokenizer: Tokenizer) -> None:
    """Logs a record as the original does."""
    logging.debug("*** Example ***")
    logging.debug("guid: %s", example.guid)
    logging.debug("tokens: %s", " ".join(sequences.unpadded_tokens(values, tokenizer.inv_vocab)))
    for name in ("input_ids", "input_mask", "segment_ids"):
        logging.debug("%s: %s", name, " ".join(map(str, values[name])))
    logging.debug("label: %s (id = %s)", example.label, values["label_ids"][0])
