"""Questions -> records: for each choice [CLS] context [SEP] beginning ending [SEP]."""

from collections.abc import Sequence

from absl import logging

from bert_tf import progress
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.tasks.multiple_choice.schema import NUM_CHOICES, multiple_choice_schema
from bert_tf.tasks.multiple_choice.swag import Question
from bert_tf.text import sequences
from bert_tf.text.fast_tokenization import FastTokenizer

_QUESTIONS_PER_BATCH = 1000  # texts of so many go through the tokenizer together
_LOGGED_EXAMPLES = 5  # as in the original's file_based_convert_examples_to_features


def write_records(
    questions: Sequence[Question],
    tokenizer: FastTokenizer,
    max_seq_length: int,
    output_file: str,
) -> int:
    """Returns the number of records written, one for each question and in the same order.

    The file takes its name when it is complete.

    Pairs that are too long lose tokens at the end of the longer text, as in run_classifier.

    Args:
        questions: what to write; those without a label get label 0.
        tokenizer: must know `sequences.REQUIRED_TOKENS`.
        max_seq_length: length of each sequence.
        output_file: the TFRecord file.

    Raises:
        UserError: `max_seq_length` has no room for tokens, or the file cannot be written.
    """
    if max_seq_length < 5:
        raise UserError(
            "--max_seq_length must be at least 5, for [CLS], two texts of a token and two [SEP];"
            f" got {max_seq_length}"
        )
    schema = multiple_choice_schema(max_seq_length)
    written = 0
    with (
        records.write_files([output_file], "output_dir") as write,
        progress.Progress("writing records", "questions", len(questions)) as work,
    ):
        for start in range(0, len(questions), _QUESTIONS_PER_BATCH):
            batch = questions[start : start + _QUESTIONS_PER_BATCH]
            texts = []
            for question in batch:
                texts.append(question.context)
                texts += [f"{question.beginning} {ending}" for ending in question.endings]
            ids, splits = tokenizer.encode(texts)
            pieces = [ids[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]
            for i, question in enumerate(batch):
                context, *choices = pieces[i * (1 + NUM_CHOICES) : (i + 1) * (1 + NUM_CHOICES)]
                values = _pack(context, choices, tokenizer, max_seq_length)
                values["label_ids"] = [question.label or 0]
                if written < _LOGGED_EXAMPLES:
                    _log(values, tokenizer, max_seq_length)
                write(records.serialize(values, schema))
                written += 1
            work.advance(len(batch))
    return written


def _pack(
    context: list[int], choices: list[list[int]], tokenizer: FastTokenizer, max_seq_length: int
) -> dict[str, list[int]]:
    """Returns the sequence features, those of all choices one after another."""
    cls_id, sep_id = (tokenizer.vocab[token] for token in sequences.REQUIRED_TOKENS)
    values: dict[str, list[int]] = {"input_ids": [], "input_mask": [], "segment_ids": []}
    for choice in choices:
        packed = sequences.truncate_and_pack(context, choice, max_seq_length, cls_id, sep_id)
        for name, numbers in packed.items():
            values[name] += numbers
    return values


def _log(values: dict[str, list[int]], tokenizer: FastTokenizer, max_seq_length: int) -> None:
    """Logs a record in the manner of the original's programs."""
    logging.debug("*** Example ***")
    for i in range(NUM_CHOICES):
        ids = values["input_ids"][i * max_seq_length : (i + 1) * max_seq_length]
        length = sum(values["input_mask"][i * max_seq_length : (i + 1) * max_seq_length])
        tokens = [tokenizer.inv_vocab[token_id] for token_id in ids[:length]]
        logging.debug("tokens of choice %d: %s", i, " ".join(tokens))
    logging.debug("label: %d", values["label_ids"][0])
