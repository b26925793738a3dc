"""Converts text to pre-training records (create_pretraining_data.py)."""

import dataclasses
import functools
import random
from collections.abc import Callable, Mapping

from absl import logging

from bert_tf.datasets.documents import Documents, Lines, read_documents
from bert_tf.datasets.text_files import read_files
from bert_tf.datasets.tfds import read_tfds
from bert_tf.errors import UserError
from bert_tf.files import records, storage
from bert_tf.files.overwriting import check_overwrites
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records import closing_lines, manifest, sharding
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.electra_segments import document_lines
from bert_tf.tasks.pretraining.records.instances import create_instances
from bert_tf.tasks.pretraining.records.manifest import (
    RecordCounts,
    check_place,
    manifest_file,
    manifest_of,
)
from bert_tf.tasks.pretraining.records.masking import Masks, check_predictions
from bert_tf.tasks.pretraining.records.ngram_masking import TOKEN_BOUNDARY, NgramMasks
from bert_tf.tasks.pretraining.records.packed_records import packed_rows
from bert_tf.tasks.pretraining.records.spill_file import SpillFile
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM, MLM_SOP, pretraining_schema
from bert_tf.text.casing import check_casing
from bert_tf.text.sequences import unpadded_tokens
from bert_tf.text.tokenizers import Tokenizer, load_tokenizer, vocabulary_files

_LOGGED_INSTANCES = 20  # original: write_instance_to_example_files


def create_pretraining_data(settings: PretrainingDataSettings) -> int:
    """Writes pre-training records for a text; returns the number of instances.

    The original's create_pretraining_data.py writes the same records in the same files and order.
    Memory holds the tokenized text (`Documents`) and 8 bytes for each instance. The instances wait
    in a temporary file, because they are written in random order.

    Raises:
        UserError: `num_shards` is given, which is for `shards.create_shards`; the input is missing,
            not UTF-8 or without tokens; the vocabulary lacks tokens; the casing is wrong (see
            `casing.check_casing`); an output file is an input file; or a file cannot be written. In
            all cases no output file is written.
        OSError: writing failed, but a retry may succeed, for example after freeing disk space.
    """
    if settings.num_shards is not None:
        raise UserError(
            f"num_shards={settings.num_shards} is for bert_tf.tasks.pretraining.records.shards"
            ".create_shards; call that function, or leave num_shards out"
        )
    output_files = settings.output_file.split(",")
    tokenizer, files = prepare(settings, output_files)
    for path in output_files:
        check_place(path, "output_file")
    if settings.tfds:
        lines = read_tfds(settings.tfds, settings.tfds_data_dir, settings.tfds_text_feature)
    else:
        found = read_files(
            files, "input_file", settings.text_field, split_lines=settings.split_sentences
        )
        if settings.objective == ELECTRA:
            lines = document_lines(found, settings.blanks_separate_docs)
        else:
            lines = (lines for _, lines in found)
    num_documents = num_repeated = 0

    def read() -> Documents:
        nonlocal num_documents, num_repeated
        documents = _read_documents(lines, tokenizer, settings)
        num_documents, num_repeated = len(documents), documents.num_repeated
        if settings.heldout_fraction:
            heldout = documents.take_heldout(settings.heldout_fraction)
            if not documents or not heldout:
                raise no_heldout(settings, num_documents, len(heldout))
            logging.info("%d of %d documents are held out", len(heldout), num_documents)
            write_heldout(heldout, tokenizer, settings)
        return documents

    counts = _write_documents(read, tokenizer, settings, output_files, settings.random_seed)
    closing_lines.report_repeated(num_repeated, num_documents)
    closing_lines.report(counts, settings)
    return counts.instances


def no_heldout(
    settings: PretrainingDataSettings, num_documents: int | None, num_heldout: int
) -> UserError:
    """Returns the error if no document is held out, or all are; None if their number is unknown."""
    all_of = "the" if num_documents is None else f"all {num_documents}"
    found = f"{all_of} documents are held out" if num_heldout else f"none of {all_of} documents is"
    return UserError(
        f"--heldout_fraction={settings.heldout_fraction} must hold out some documents and leave"
        f" some: {found}. {'Lower' if num_heldout else 'Raise'} it, or give more text. If all text"
        " is one document, separate documents by empty lines"
    )


def write_heldout(
    text: Documents | Lines, tokenizer: Tokenizer, settings: PretrainingDataSettings
) -> RecordCounts:
    """Writes the records of the held-out documents, in one pass over them."""

    def read() -> Documents:
        return text if isinstance(text, Documents) else _read_documents(text, tokenizer, settings)

    settings = dataclasses.replace(settings, dupe_factor=1)
    seed = sharding.shard_seed(sharding.HELDOUT, settings.random_seed)
    logging.info("Held-out documents: --heldout_output_file=%s", settings.heldout_output_file)
    return _write_documents(read, tokenizer, settings, [settings.heldout_output_file], seed)


def prepare(
    settings: PretrainingDataSettings, output_files: list[str]
) -> tuple[Tokenizer, list[str]]:
    """Checks the settings; returns the tokenizer and the files of --input_file ([] with --tfds)."""
    if settings.mask:
        check_predictions(
            settings.max_seq_length, settings.max_predictions_per_seq, settings.masked_lm_prob
        )
    tokenizer = tokenizer_of(settings)
    check_casing(settings.do_lower_case, tokenizer.vocab, settings.vocab_file)
    least = tokenizer.layout.num_special(is_pair=True) + 2
    if settings.objective != MLM and settings.max_seq_length < least:
        raise UserError(
            f"--max_seq_length={settings.max_seq_length} must be at least {least}, for the special"
            " tokens of a pair and one token of each text"
        )
    files = [] if settings.tfds else storage.expand_files(settings.input_file, "input_file")
    vocabulary = vocabulary_files(settings.vocab_file).values()
    read = {"vocab_file": vocabulary, "input_file": files}
    written = [*output_files, *map(manifest_file, output_files)]
    check_overwrites(written, "output_file", read)
    if heldout := settings.heldout_output_file:
        check_place(heldout, "heldout_output_file")
        check_overwrites(
            [heldout, manifest_file(heldout)],
            "heldout_output_file",
            {**read, "output_file": written},
        )
    if files:
        logging.info("*** Reading from input files ***")
    for path in files:
        logging.info("  %s", path)
    return tokenizer, files


def tokenizer_of(settings: PretrainingDataSettings) -> Tokenizer:
    """Returns the tokenizer; for errors see `load_tokenizer`."""
    is_electra = settings.objective == ELECTRA
    return load_tokenizer(
        settings.vocab_file, settings.do_lower_case, needs_mask=True, drop_category_c=is_electra
    )


def write_records(
    lines: Lines,
    tokenizer: Tokenizer,
    settings: PretrainingDataSettings,
    output_files: list[str],
    seed: int,
) -> RecordCounts:
    """Writes the records of a text and counts them; for errors see `create_pretraining_data`.

    The arguments replace the settings for input, output, seed and held-out text, which are ignored.
    """
    read = functools.partial(_read_documents, lines, tokenizer, settings)
    return _write_documents(read, tokenizer, settings, output_files, seed)


def _write_documents(
    read: Callable[[], Documents],
    tokenizer: Tokenizer,
    settings: PretrainingDataSettings,
    output_files: list[str],
    seed: int,
) -> RecordCounts:
    """Writes the records of the documents that `read` returns; see `write_records`."""

    def beside(sizes: Mapping[str, int]) -> dict[str, str]:
        return manifest.beside(manifest_of(settings, tokenizer.vocab, counts), sizes)

    rng = random.Random(seed)
    in_order = settings.objective == ELECTRA  # as in its original
    is_ngram = settings.objective == MLM_SOP and settings.mask
    if is_ngram:
        masks = NgramMasks(tokenizer, settings, rng, seed)
    else:
        masks = Masks(tokenizer, settings, rng)
    length = settings.max_seq_length
    schema = pretraining_schema(length, masks.num_places, settings.objective)
    if is_ngram:
        schema[TOKEN_BOUNDARY] = records.int64_feature([length], "max_seq_length", low=0, high=1)
    # Opening the files before the long work reports a missing folder at once.
    with (
        records.write_files(output_files, "output_file", beside) as write,
        SpillFile(settings.spill_dir, output_files[0]) as spill,
    ):
        documents = read()
        if not in_order:
            documents.shuffle(rng)
        real_pairs = 0
        serialize = records.Serializer(schema)
        for instance in create_instances(documents, settings, masks, rng):
            real_pairs += instance.get("next_sentence_labels") == [0]
            num_tokens = sum(instance["input_mask"]) if settings.pack else 0
            spill.add(serialize(instance), num_tokens)
        if not in_order:
            spill.shuffle(rng)
        logging.info("*** Writing to output files ***")
        for path in output_files:
            logging.info("  %s", path)
        made = spill.in_order()
        if settings.pack:
            made = packed_rows(spill, schema, settings.max_sequences_per_pack, seed)
        for number, record in enumerate(made):
            if number < _LOGGED_INSTANCES:
                _log_record(record, tokenizer.inv_vocab)
            write(record)
        tokens = documents.num_tokens
        counts = RecordCounts(
            documents=len(documents),
            sentences=documents.num_sentences,
            tokens=tokens,
            lost_tokens=tokens - documents.num_used,
            instances=len(spill),
            real_pairs=real_pairs,
        )
    logging.info("Wrote %d total instances", len(spill))
    return counts


def _read_documents(
    lines: Lines, tokenizer: Tokenizer, settings: PretrainingDataSettings
) -> Documents:
    ids = tokenizer.vocab.values()
    encode = tokenizer.encode
    # These need to know where words begin.
    numbers_words = not settings.mask and settings.objective != ELECTRA
    if settings.do_whole_word_mask or numbers_words or settings.objective == MLM_SOP:
        ids = [*ids, *tokenizer.aliases]
        encode = tokenizer.encode_for_masking
    # ALBERT removes combining marks before it looks for empty lines (create_training_instances).
    documents = read_documents(lines, encode, max(ids) + 1, tokenizer.simplified)
    logging.info("%d documents, %d tokens", len(documents), documents.num_tokens)
    if not len(documents):
        flag, value = "input_file", settings.input_file
        if settings.tfds:
            flag, value = "tfds", settings.tfds
        raise UserError(f"The text of --{flag}={value} must have tokens; there are none")
    if tokenizer.unknown_id is not None:
        num_unknown = documents.count(tokenizer.unknown_id)
        closing_lines.warn_of_unknown(num_unknown, documents.num_tokens, settings)
    if len(documents) == 1 and settings.objective != ELECTRA:
        logging.warning(
            "all text is one document, so random next sentences come from that document, too;"
            " separate documents by empty lines. If each line is a document, `sed G` puts an empty"
            " line after each"
        )
    return documents


def _log_record(record: bytes, inv_vocab: Mapping[int, str]) -> None:
    """Logs a record as in the original."""
    features = tf.train.Example.FromString(record).features.feature
    values = {name: x.int64_list.value or x.float_list.value for name, x in features.items()}
    logging.debug("*** Example ***")
    logging.debug("tokens: %s", " ".join(unpadded_tokens(values, inv_vocab)))
    for name in sorted(values):
        logging.debug("%s: %s", name, " ".join(map(str, values[name])))
