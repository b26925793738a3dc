"""Converts questions to records: for each choice [CLS] context [SEP] beginning ending [SEP]."""

import itertools
from collections.abc import Iterator, Sequence

from absl import logging

from bert_tf import progress
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.tasks.multiple_choice.schema import NUM_CHOICES, multiple_choice_schema
from bert_tf.tasks.multiple_choice.swag import Question
from bert_tf.text import sequences
from bert_tf.text.tokenizers import Tokenizer

_QUESTIONS_PER_BATCH = 1000  # questions in one call of the tokenizer
_LOGGED_EXAMPLES = 5  # as in the original's file_based_convert_examples_to_features


def write_records(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    max_seq_length: int,
    output_file: str,
) -> int:
    """Writes one record for each question, in the same order; returns their number.

    The file is written atomically. Of a pair that is too long, the longer text is cut at its end,
    one token at a time, as in run_classifier.

    Args:
        questions: the questions; one without a label gets label 0.
        tokenizer: its vocabulary must have the tokens of its `layout`.
        max_seq_length: length of each sequence.
        output_file: the TFRecord file.

    Raises:
        UserError: `max_seq_length` is too small, or the file cannot be written.
    """
    least = tokenizer.layout.num_special(is_pair=True) + 2
    if max_seq_length < least:
        raise UserError(
            f"--max_seq_length must be at least {least}, for the special tokens of a pair and one"
            f" token of each text; got {max_seq_length}"
        )
    schema = multiple_choice_schema(max_seq_length)
    written = 0
    with (
        records.write_files([output_file], "output_dir") as write,
        progress.Progress("writing records", "questions", len(questions)) as work,
    ):
        for start in range(0, len(questions), _QUESTIONS_PER_BATCH):
            batch = questions[start : start + _QUESTIONS_PER_BATCH]
            for question, context, choices in _tokenize(batch, tokenizer):
                packed = [
                    sequences.truncate_and_pack(context, choice, max_seq_length, tokenizer.layout)
                    for choice in choices
                ]
                label = question.label or 0
                if written < _LOGGED_EXAMPLES:
                    _log(packed, label, tokenizer)
                # Each feature has the sequences of all choices one after another.
                values = {name: sum((choice[name] for choice in packed), []) for name in packed[0]}
                write(records.serialize({**values, "label_ids": [label]}, schema))
                written += 1
            work.advance(len(batch))
    return written


def _tokenize(
    questions: Sequence[Question], tokenizer: Tokenizer
) -> Iterator[tuple[Question, list[int], list[list[int]]]]:
    """Yields each question with the ids of its context and of each choice."""
    texts = []
    for question in questions:
        texts.append(question.context)
        texts += [f"{question.beginning} {ending}" for ending in question.endings]
    ids, splits = tokenizer.encode(texts)
    pieces = iter([ids[i:j].tolist() for i, j in itertools.pairwise(splits)])
    for question in questions:
        yield question, next(pieces), list(itertools.islice(pieces, NUM_CHOICES))


def _log(packed: Sequence[dict[str, list[int]]], label: int, tokenizer: Tokenizer) -> None:
    """Logs a record in the style of the original's programs."""
    logging.debug("*** Example ***")
    for i, choice in enumerate(packed):
        tokens = sequences.unpadded_tokens(choice, tokenizer.inv_vocab)
        logging.debug("tokens of choice %d: %s", i, " ".join(tokens))
    logging.debug("label: %d", label)
