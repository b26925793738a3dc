"""Converts text to pre-training records (create_pretraining_data.py), and logs what is lost."""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping

from absl import logging

from bert_tf.datasets.documents import Documents, Lines, read_documents
from bert_tf.datasets.text_files import is_plain_text, read_files
from bert_tf.datasets.tfds import read_tfds
from bert_tf.errors import UserError
from bert_tf.files import records, storage
from bert_tf.model_folder.hugging_face.vector_settings import read_as_hugging_face
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records import manifest
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.instances import create_instances
from bert_tf.tasks.pretraining.records.manifest import RecordCounts, manifest_of
from bert_tf.tasks.pretraining.records.masking import Masks, NgramMasks, check_predictions
from bert_tf.tasks.pretraining.records.packing import packed_rows
from bert_tf.tasks.pretraining.records.shuffling import SpillFile
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM, MLM_NSP, MLM_SOP
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.casing import check_casing
from bert_tf.text.sequences import unpadded_tokens
from bert_tf.text.tokenizers import load_tokenizer, vocabulary_files

_LOGGED_INSTANCES = 20  # original: write_instance_to_example_files
# 45% of the pairs from Wikipedia are real, and a third of the pairs from documents of two
# sentences: if the second text is random, the unused sentence begins another random pair.
_LEAST_REAL_PAIRS = 0.3
_MOST_LOST_TOKENS = 0.05
_MOST_UNKNOWN = 0.1
_HELDOUT = -1  # the held-out documents' number in `shard_seed`
_SEED_BITS = 31  # every program accepts seeds of 31 bits


def create_pretraining_data(settings: PretrainingDataSettings) -> int:
    """Writes the original's records in the same order; returns the number of instances.

    Memory holds the tokenized text (`Documents`) and 8 bytes for each instance. The instances wait
    in a temporary file, because they are written in random order.
    """
    output_files = settings.output_file.split(",")
    tokenizer, files = prepare(settings, output_files)
    if settings.tfds:
        lines = read_tfds(settings.tfds, settings.tfds_data_dir, settings.tfds_text_feature)
    else:
        found = read_files(
            files, "input_file", settings.text_field, split_lines=settings.split_sentences
        )
        if settings.objective == ELECTRA:
            lines = _document_lines(found, settings.blanks_separate_docs)
        else:
            lines = (lines for _, lines in found)
    with record_writer(settings, tokenizer, output_files, settings.random_seed) as write:
        documents = tokenized(lines, tokenizer, settings)
        num_documents, num_repeated = len(documents), documents.num_repeated
        if settings.heldout_fraction:
            heldout = documents.take_heldout(settings.heldout_fraction)
            if not documents or not heldout:
                raise no_heldout(settings, num_documents, len(heldout))
            logging.info("%d of %d documents are held out", len(heldout), num_documents)
            write_heldout(heldout, tokenizer, settings)
        counts = write(documents)
    report_repeated(num_repeated, num_documents)
    report(counts, settings)
    return counts.instances


def no_heldout(
    settings: PretrainingDataSettings, num_documents: int | None, num_heldout: int
) -> UserError:
    """Returns the error for holding out all documents or none; `num_documents` may be unknown."""
    number = "" if num_documents is None else f"{num_documents} "
    share, end = ("all", "are held out") if num_heldout else ("none", "is")
    return UserError(
        f"--heldout_fraction={settings.heldout_fraction} must hold out some documents and leave"
        f" some: {share} of the {number}documents {end}. {'Lower' if num_heldout else 'Raise'} it,"
        " or give more text. If all text is one document, separate documents by empty lines"
    )


def shard_seed(shard: int, seed: int) -> int:
    """Returns the seed of the random choices in a shard, from 0 to 2^31 - 1."""
    return stable_hash(f"shard\t{seed}\t{shard}") >> (64 - _SEED_BITS)


def stable_hash(text: str) -> int:
    """Returns a number from 0 to 2^64 - 1, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def write_heldout(
    documents: Documents, tokenizer: Tokenizer, settings: PretrainingDataSettings
) -> RecordCounts:
    """Writes the records of the held-out documents, in one pass over them."""
    settings = dataclasses.replace(settings, dupe_factor=1)
    seed = shard_seed(_HELDOUT, settings.random_seed)
    logging.info("Held-out documents: --heldout_output_file=%s", settings.heldout_output_file)
    with record_writer(settings, tokenizer, [settings.heldout_output_file], seed) as write:
        return write(documents)


def prepare(
    settings: PretrainingDataSettings, output_files: list[str]
) -> tuple[Tokenizer, list[str]]:
    """Checks the settings; returns the tokenizer and the files of --input_file ([] with --tfds)."""
    if settings.mask:
        check_predictions(
            settings.max_seq_length, settings.max_predictions_per_seq, settings.masked_lm_prob
        )
    tokenizer = tokenizer_of(settings)
    vocabulary = vocabulary_files(settings.vocab_file).values()
    check_casing(settings.do_lower_case, tokenizer.vocab, settings.vocab_file)
    if settings.objective != MLM:
        tokenizer.layout.check_length(settings.max_seq_length, 2)
    files = [] if settings.tfds else storage.expand_files(settings.input_file, "input_file")
    read = {"vocab_file": vocabulary, "input_file": files}
    outputs = {"output_file": output_files}
    if settings.heldout_output_file:
        outputs["heldout_output_file"] = [settings.heldout_output_file]
    sharded = ["output_file"] if settings.num_shards else []
    manifest.check_outputs(outputs, read, sharded)
    if files:
        logging.info("*** Reading from input files ***")
    for path in files:
        logging.info("  %s", path)
    return tokenizer, files


def tokenizer_of(settings: PretrainingDataSettings) -> Tokenizer:
    is_electra = settings.objective == ELECTRA
    return load_tokenizer(
        *(settings.vocab_file, settings.do_lower_case),
        needs_mask=True,
        hugging_face=read_as_hugging_face(settings.vocab_file, settings.init_checkpoint),
        drop_category_c=is_electra,
    )


@contextlib.contextmanager
def record_writer(
    settings: PretrainingDataSettings, tokenizer: Tokenizer, paths: list[str], seed: int
) -> Iterator[Callable[[Documents], RecordCounts]]:
    """Opens files; yields a function that writes the records of documents to them.

    When the block ends, the files get their names, and manifests beside them. Opening them before
    the long work reports a missing folder at once. `paths` and `seed` override the settings.
    """
    content = manifest_of(settings, tokenizer.vocab)
    beside = functools.partial(manifest.beside, content)
    with (
        records.write_files(paths, "output_file", beside) as write,
        SpillFile(settings.spill_dir, paths[0]) as spill,
    ):

        def write_records(documents: Documents) -> RecordCounts:
            schema, real_pairs = _spill_instances(documents, settings, tokenizer, seed, spill)
            logging.info("*** Writing to output files ***")
            for path in paths:
                logging.info("  %s", path)
            made = spill.in_order()
            if settings.pack:
                made = packed_rows(spill, schema, settings.max_sequences_per_pack, seed)
            for number, record in enumerate(made):
                if number < _LOGGED_INSTANCES:
                    _log_record(record, tokenizer.inv_vocab)
                write(record)
            counts = RecordCounts(
                documents=len(documents),
                sentences=documents.num_sentences,
                tokens=documents.num_tokens,
                lost_tokens=documents.num_tokens - documents.num_used,
                instances=len(spill),
                real_pairs=real_pairs,
            )
            content.update(dataclasses.asdict(counts))
            logging.info("Wrote %d total instances", len(spill))
            return counts

        yield write_records


def _spill_instances(
    documents: Documents,
    settings: PretrainingDataSettings,
    tokenizer: Tokenizer,
    seed: int,
    spill: SpillFile,
) -> tuple[records.Schema, int]:
    """Adds the instances of documents to `spill`; returns the schema and how many pairs are real.

    A pair is real if its second text follows its first.
    """
    rng = random.Random(seed)
    if settings.objective == MLM_SOP and settings.mask:
        masks = NgramMasks(tokenizer, settings, rng, seed)
    else:
        masks = Masks(tokenizer, settings, rng)
    schema = masks.schema()
    in_order = settings.objective == ELECTRA  # as in ELECTRA's original
    if not in_order:
        documents.shuffle(rng)
    real_pairs = 0
    serialize = records.Serializer(schema)
    for instance in create_instances(documents, settings, masks, rng):
        real_pairs += instance.get("next_sentence_labels") == [0]
        num_tokens = sum(instance["input_mask"]) if settings.pack else 0
        spill.add(serialize(instance), num_tokens)
    if settings.do_whole_word_mask and not masks.has_longer_words:
        logging.warning(
            "--do_whole_word_mask changes nothing in %d instances: each word is one token,"
            " like each character of Chinese text",
            len(spill),
        )
    if not in_order:
        spill.shuffle(rng)
    return schema, real_pairs


def _document_lines(found: Iterable[tuple[str, list[str]]], blanks_separate_docs: bool) -> Lines:
    """Yields the lines of files, with an empty line after each file to end its document."""
    for _, batches in itertools.groupby(found, key=lambda batch: batch[0]):
        for _, lines in batches:
            yield lines if blanks_separate_docs else list(filter(None, lines))
        yield [""]


def tokenized(lines: Lines, tokenizer: Tokenizer, settings: PretrainingDataSettings) -> Documents:
    """Tokenizes a text. Warns if many tokens are unknown, or if all text is one document."""
    ids = tokenizer.vocab.values()
    encode = tokenizer.encode
    # Whole words and n-grams need to know where words begin.
    numbers_words = not settings.mask and settings.objective != ELECTRA
    if settings.do_whole_word_mask or numbers_words or settings.objective == MLM_SOP:
        ids = [*ids, *tokenizer.aliases]
        encode = tokenizer.encode_for_masking
    # ALBERT removes combining marks before it looks for empty lines (create_training_instances).
    documents = read_documents(lines, encode, max(ids) + 1, tokenizer.simplified)
    logging.info("%d documents, %d tokens", len(documents), documents.num_tokens)
    if not len(documents):
        place = f"tfds={settings.tfds}" if settings.tfds else f"input_file={settings.input_file}"
        raise UserError(f"The text of --{place} must have tokens; there are none")
    if documents.num_without_tokens:
        logging.warning(
            "%d documents are left out: they have no tokens, only characters that are dropped, such"
            " as control characters",
            documents.num_without_tokens,
        )
    unknown_id, num_tokens = tokenizer.unknown_id, documents.num_tokens
    num_unknown = documents.count(unknown_id) if unknown_id is not None else 0
    if num_unknown > _MOST_UNKNOWN * num_tokens:  # perhaps the vocabulary is for another language
        logging.warning(
            "%d of %d tokens (%.1f%%) are [UNK], which stands for all words that --vocab_file=%s"
            " does not have. Is it the vocabulary of the text's language?"
            " tools.build_vocabulary makes one from the text",
            *(num_unknown, num_tokens, 100 * num_unknown / num_tokens, settings.vocab_file),
        )
    if len(documents) == 1 and settings.objective != ELECTRA:
        logging.warning(
            "all text is one document, so random next sentences come from the same document;"
            " separate documents by empty lines. If each line is a document, `sed G` puts an empty"
            " line after each"
        )
    return documents


def _log_record(record: bytes, inv_vocab: Mapping[int, str]) -> None:
    features = tf.train.Example.FromString(record).features.feature
    values = {name: x.int64_list.value or x.float_list.value for name, x in features.items()}
    logging.debug("*** Example ***")
    logging.debug("tokens: %s", " ".join(unpadded_tokens(values, inv_vocab)))
    for name in sorted(values):
        logging.debug("%s: %s", name, " ".join(map(str, values[name])))


def report(counts: RecordCounts, settings: PretrainingDataSettings) -> None:
    """Logs how many tokens no pass used; warns if they are many, or if few pairs are real."""
    if not counts.tokens:
        return  # shards of an earlier version, which counted nothing
    share = counts.lost_tokens / counts.tokens
    line = f"{counts.lost_tokens} of {counts.tokens} tokens ({share:.1%}) are in no record"
    if share <= _MOST_LOST_TOKENS:
        logging.info("%s", line)
    else:
        logging.warning("%s%s", line, _ways_out(counts, settings))
    has_pairs = settings.objective in (MLM_NSP, MLM_SOP)
    if has_pairs and counts.real_pairs < _LEAST_REAL_PAIRS * counts.instances:
        logging.warning(
            "only %d of %d pairs (%.1f%%) are real, the second text following the first; about half"
            " should be. Pairs need documents of several sentences, each sentence on a line of its"
            " own (or --split_sentences) and shorter than --max_seq_length, and empty lines only"
            " between documents. For text without pairs use --objective=mlm",
            *(counts.real_pairs, counts.instances, 100 * counts.real_pairs / counts.instances),
        )


def _ways_out(counts: RecordCounts, settings: PretrainingDataSettings) -> str:
    patterns = (settings.input_file or "").split(",")
    is_split = settings.split_sentences or not any(map(is_plain_text, filter(None, patterns)))
    unit = "sentences" if is_split else "lines"
    if settings.objective == ELECTRA:
        by_flag = "" if is_split else " (--split_sentences)"
        return (
            ": what exceeds --max_seq_length in the last sentence of a sequence, as in the"
            f" original. On average the {unit} have {counts.tokens / counts.sentences:.0f} tokens."
            f" Shorter ones lose less{by_flag}, and so does a higher --max_seq_length"
        )
    reason = (
        f": a pair of texts is cut to --max_seq_length={settings.max_seq_length}, and the {unit}"
        f" have {counts.tokens / counts.sentences:.0f} tokens on average. "
    )
    way = "Raise"
    if not is_split:
        way = "If lines hold several sentences, give --split_sentences. Otherwise raise"
    return (
        f"{reason}{way} --max_seq_length or --dupe_factor, since each pass cuts off"
        " different tokens, or use --objective=mlm, which loses none"
    )


def report_repeated(num_repeated: int, num_documents: int) -> None:
    """Logs how many documents duplicate an earlier one (`documents.document_digest`)."""
    share = num_repeated / max(num_documents, 1)
    logging.info(
        "%s",
        f"{num_repeated} of {num_documents} documents ({share:.1%}) repeat an earlier one",
    )
