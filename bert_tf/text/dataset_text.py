"""Documents from TensorFlow Datasets, as batches of lines like those of a text file."""

import re
from collections.abc import Iterator

import tensorflow as tf

from bert_tf import progress
from bert_tf.errors import UserError
from bert_tf.text import prepared_datasets

_DOCUMENTS_PER_BATCH = 256

# NAME[/CONFIG][:VERSION][:SPLIT]. A version begins with a digit, which no split does.
_SPECIFICATION = re.compile(r"(?P<name>[^:\[\]]+(:\d[\d.*]*)?)(:(?P<split>[^:\d].*))?")

_SENTENCE_END = re.compile(
    r"""
    (?:
        [!?…]+ | \.\.+ |
        # A full stop, but not behind an initial (J. K. Rowling, the U.S. Army) or a title.
        (?<! \b[^\W\d_] ) (?<! \b(?:Mr|Ms|Dr|St|vs) ) (?<! \b(?:Mrs|Gen|Col) ) (?<! \bProf ) \.
    )
    ["'”’»)\]]* \s+
    | [。！？]+ [”’」』）]*
    """,
    re.VERBOSE,
)


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of `text`, stripped, without the empty ones.

    A sentence ends at a line's end; at . ! ? or an ellipsis (and closing quotes and brackets) with
    white space behind it, unless a lower-case letter follows or it stands behind an initial or one
    of a few English titles; and at an ideographic full stop, question or exclamation mark.
    tensorflow_text's StateBasedSentenceBreaker is not used: it cuts "3.5" and "Mr. Smith" in two,
    and TPU machines have no tensorflow_text.
    """
    sentences = []
    for line in text.splitlines():
        start = 0
        for match in _SENTENCE_END.finditer(line):
            following = line[match.end() : match.end() + 1]
            if match.group()[-1].isspace() and following.islower():
                continue
            sentences.append(line[start : match.end()].strip())
            start = match.end()
        sentences.append(line[start:].strip())
    return [sentence for sentence in sentences if sentence]


def read_tfds(specification: str, data_dir: str | None, text_feature: str) -> Iterator[list[str]]:
    """Yields batches of the sentences of a dataset's documents, "" after each document.

    Args:
        specification: NAME[:SPLIT] of a dataset that is already prepared (nothing is downloaded),
            `--tfds`. The split is "train" unless given and may be sliced, e.g. `train[:10%]`.
        data_dir: where prepared datasets are, `--tfds_data_dir`; None for tfds's own default.
        text_feature: the string feature that holds a document, `--tfds_text_feature`.

    Raises:
        UserError: the dataset, split or feature cannot be found, or a text is not UTF-8.
    """
    dataset, total = _load(specification, data_dir, text_feature)
    number = 0
    with progress.Progress("reading dataset", "documents", total) as work:
        for texts in dataset.batch(_DOCUMENTS_PER_BATCH).as_numpy_iterator():
            lines = []
            for text in texts:
                try:
                    lines.extend(split_sentences(text.decode("utf-8")))
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"--tfds={specification}: {text_feature!r} of example {number} (counted "
                        f"from 0) is not UTF-8: {error.reason}"
                    ) from error
                lines.append("")
                number += 1
            yield lines
            work.advance(len(texts))


def _load(
    specification: str, data_dir: str | None, text_feature: str
) -> tuple[tf.data.Dataset, int]:
    """Returns a dataset of scalar strings and how many there are."""
    match = _SPECIFICATION.fullmatch(specification)
    if match is None:
        raise UserError(f"--tfds must be NAME[:SPLIT]; got {specification!r}")
    name, split = match["name"], match["split"] or "train"
    builder = prepared_datasets.find(name, data_dir, specification)
    dataset, total = prepared_datasets.read_split(builder, split, specification)
    spec = dataset.element_spec
    if not isinstance(spec, dict) or text_feature not in spec:
        names = sorted(spec) if isinstance(spec, dict) else []
        raise UserError(
            f"--tfds_text_feature={text_feature}: {name} has not that feature but "
            f"{', '.join(names)}"
        )
    if spec[text_feature] != tf.TensorSpec([], tf.string):
        raise UserError(
            f"--tfds_text_feature={text_feature} must be one string an example; in {name} it is "
            f"{spec[text_feature]}"
        )
    return dataset.map(lambda example: example[text_feature]), total
