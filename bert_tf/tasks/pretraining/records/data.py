"""Converts text to pre-training records (create_pretraining_data.py)."""

import random
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from bert_tf.datasets.documents import Documents, Lines, read_documents
from bert_tf.datasets.text_files import read_files
from bert_tf.datasets.tfds import read_tfds
from bert_tf.errors import UserError
from bert_tf.files import records, storage
from bert_tf.files.overwriting import check_overwrites
from bert_tf.tasks.pretraining.records import manifest
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.instances import create_instances
from bert_tf.tasks.pretraining.records.manifest import RecordCounts, manifest_of
from bert_tf.tasks.pretraining.records.masking import Masks, check_predictions
from bert_tf.tasks.pretraining.records.ngram_masking import TOKEN_BOUNDARY, NgramMasks
from bert_tf.tasks.pretraining.records.packed_records import packed_rows
from bert_tf.tasks.pretraining.records.spill_file import SpillFile
from bert_tf.tasks.pretraining.schema import MLM, MLM_SOP, pretraining_schema
from bert_tf.text.casing import check_casing
from bert_tf.text.sequences import unpadded_tokens
from bert_tf.text.tokenizers import Tokenizer, load_tokenizer, vocabulary_files

# Wikipedia's articles give 45%, and documents of two sentences a third: when the second text is
# random, the unused sentence becomes a pair of its own, which is random, too.
_LEAST_REAL_PAIRS = 0.3
_LOGGED_INSTANCES = 20  # original: write_instance_to_example_files


def warn_of_few_real_pairs(real_pairs: int, instances: int, objective: str) -> None:
    """Warns if so few of the pairs are real that next sentences can hardly be learned."""
    if objective != MLM and instances and real_pairs < _LEAST_REAL_PAIRS * instances:
        logging.warning(
            "only %d of %d pairs (%.1f%%) are real, the second text following the first; about half"
            " should be. Pairs need documents of several sentences, each sentence on a line of its"
            " own and shorter than --max_seq_length, and empty lines only between documents. For"
            " text without pairs use --objective=mlm",
            *(real_pairs, instances, 100 * real_pairs / instances),
        )


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
    if settings.tfds:
        lines = read_tfds(settings.tfds, settings.tfds_data_dir, settings.tfds_text_feature)
    else:
        lines = (lines for _, lines in read_files(files, "input_file", settings.text_field))
    counts = write_records(lines, tokenizer, settings, output_files, settings.random_seed)
    warn_of_few_real_pairs(counts.real_pairs, counts.instances, settings.objective)
    return counts.instances


def prepare(
    settings: PretrainingDataSettings, output_files: list[str]
) -> tuple[Tokenizer, list[str]]:
    """Checks the settings; returns the tokenizer and the files of --input_file ([] with --tfds)."""
    if settings.mask:
        check_predictions(
            settings.max_seq_length, settings.max_predictions_per_seq, settings.masked_lm_prob
        )
    tokenizer = load_tokenizer(settings.vocab_file, settings.do_lower_case, needs_mask=True)
    check_casing(settings.do_lower_case, tokenizer.vocab, settings.vocab_file)
    least = tokenizer.layout.num_special(is_pair=True) + 2
    if settings.objective != MLM and settings.max_seq_length < least:
        raise UserError(
            f"--max_seq_length={settings.max_seq_length} must be at least {least}, for the special"
            " tokens of a pair and one token of each text"
        )
    files = [] if settings.tfds else storage.expand_files(settings.input_file, "input_file")
    vocabulary = vocabulary_files(settings.vocab_file).values()
    check_overwrites(output_files, "output_file", {"vocab_file": vocabulary, "input_file": files})
    if files:
        logging.info("*** Reading from input files ***")
    for path in files:
        logging.info("  %s", path)
    return tokenizer, files


def write_records(
    lines: Lines,
    tokenizer: Tokenizer,
    settings: PretrainingDataSettings,
    output_files: list[str],
    seed: int,
) -> RecordCounts:
    """Writes the records of a text and counts them; for errors see `create_pretraining_data`.

    The arguments replace the settings for input, output and seed, which are ignored.
    """

    def beside(sizes: Mapping[str, int]) -> dict[str, str]:
        return manifest.beside(manifest_of(settings, tokenizer.vocab, counts), sizes)

    rng = random.Random(seed)
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
        documents = _read_documents(lines, tokenizer, settings)
        documents.shuffle(rng)
        real_pairs = 0
        for instance in create_instances(documents, settings, masks, rng):
            real_pairs += instance.get("next_sentence_labels") == [0]
            num_tokens = sum(instance["input_mask"]) if settings.pack else 0
            spill.add(records.serialize(instance, schema), num_tokens)
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
    if settings.do_whole_word_mask or not settings.mask or settings.objective == MLM_SOP:
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
    if len(documents) == 1:
        logging.warning(
            "all text is one document, so random next sentences come from that document, too;"
            " separate documents by empty lines"
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
