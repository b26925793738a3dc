"""Examples to records: [CLS] text_a [SEP] text_b [SEP] with a label."""

from collections.abc import Iterator, Sequence

from absl import logging

from bert_tf import progress
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.tasks.classification.examples import InputExample, shown
from bert_tf.tasks.classification.schema import classification_schema
from bert_tf.text import fast_tokenization, sequences

# Texts for one call of the tokenizer.
_EXAMPLES_PER_BATCH = 2048
_LOGGED_EXAMPLES = 5


def write_records(
    examples: Sequence[InputExample],
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: fast_tokenization.FastTokenizer,
    output_file: str,
) -> int:
    """Returns the number of records written, one for each example and in the same order.

    The file is that of `file_based_convert_examples_to_features` in the original; the first five
    records are logged as there. It takes its name when it is complete.

    Args:
        examples: what to write.
        label_list: the classes in the order of the logits; None for regression.
        max_seq_length: length of the sequences; longer texts lose tokens at their ends.
        tokenizer: must know `sequences.REQUIRED_TOKENS`.
        output_file: the TFRecord file.

    Raises:
        UserError: `max_seq_length` has no room for a token, an example has no valid label, or the
            file cannot be written.
    """
    if max_seq_length < 4:
        raise UserError(
            "--max_seq_length must be at least 4, for [CLS], a token of the text and two [SEP]; "
            f"got {max_seq_length}"
        )
    schema = classification_schema(max_seq_length, regression=label_list is None)
    cls_id, sep_id = (tokenizer.vocab[token] for token in sequences.REQUIRED_TOKENS)
    label_ids = None if label_list is None else {name: i for i, name in enumerate(label_list)}
    with (
        records.write_files([output_file], "output_dir") as write,
        progress.Progress("writing records", "examples", len(examples)) as work,
    ):
        written = 0
        for start in range(0, len(examples), _EXAMPLES_PER_BATCH):
            batch = examples[start : start + _EXAMPLES_PER_BATCH]
            for example, ids_a, ids_b in _tokenize(batch, tokenizer):
                # A second text without tokens counts as none, as in the original.
                values = sequences.truncate_and_pack(ids_a, ids_b, max_seq_length, cls_id, sep_id)
                values["label_ids"] = [_label(example, label_ids)]
                values["is_real_example"] = [1]
                if written < _LOGGED_EXAMPLES:
                    _log(example, values, tokenizer)
                write(records.serialize(values, schema))
                written += 1
            work.advance(len(batch))
    return written


def _tokenize(
    examples: Sequence[InputExample], tokenizer: fast_tokenization.FastTokenizer
) -> Iterator[tuple[InputExample, list[int], list[int]]]:
    """Yields (example, ids of text_a, ids of text_b or none) of each example."""
    texts = []
    for example in examples:
        texts += [example.text_a, example.text_b or ""]
    ids, splits = tokenizer.encode(texts)
    for i, example in enumerate(examples):
        start, middle, end = splits[2 * i : 2 * i + 3]
        yield example, ids[start:middle].tolist(), ids[middle:end].tolist()


def _label(example: InputExample, label_ids: dict[str, int] | None) -> int | float:
    if label_ids is None:
        return float(example.label)
    if example.label not in label_ids:
        raise UserError(
            f"example {example.guid}: unknown label {example.label!r}; it must be one of "
            f"{shown(label_ids)}"
        )
    return label_ids[example.label]


def _log(
    example: InputExample, values: dict[str, list], tokenizer: fast_tokenization.FastTokenizer
) -> None:
    """Logs a record as the original does its first five."""
    length = sum(values["input_mask"])
    logging.debug("*** Example ***")
    logging.debug("guid: %s", example.guid)
    tokens = [tokenizer.inv_vocab[token_id] for token_id in values["input_ids"][:length]]
    logging.debug("tokens: %s", " ".join(tokens))
    for name in ("input_ids", "input_mask", "segment_ids"):
        logging.debug("%s: %s", name, " ".join(map(str, values[name])))
    logging.debug("label: %s (id = %s)", example.label, values["label_ids"][0])
