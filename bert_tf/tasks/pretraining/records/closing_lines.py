"""What create_pretraining_data says at its end: what of the text is in the records, what is not."""

from absl import logging

from bert_tf.datasets.text_files import is_plain_text
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.manifest import RecordCounts
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM_NSP, MLM_SOP

# Wikipedia's articles give 45%, and documents of two sentences a third: when the second text is
# random, the unused sentence becomes a pair of its own, which is random, too.
_LEAST_REAL_PAIRS = 0.3
_MOST_LOST_TOKENS = 0.05
_MOST_UNKNOWN = 0.1


def report(counts: RecordCounts, settings: PretrainingDataSettings) -> None:
    """Logs how many tokens no record has; warns if they are many, or if few pairs are real.

    A token is lost if none of the passes over the text (`dupe_factor`) put it into a record.
    """
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
        return (
            ": what exceeds --max_seq_length in the last sentence of a sequence, as in the"
            f" original. On average the {unit} have {counts.tokens / counts.sentences:.0f} tokens."
            " Shorter ones lose less (--split_sentences), and so does a higher --max_seq_length"
        )
    reason = (
        f": a pair of texts is cut to --max_seq_length={settings.max_seq_length}, and the {unit}"
        f" have {counts.tokens / counts.sentences:.0f} tokens on average. "
    )
    way = "Raise"
    if not is_split:
        way = "If lines hold several sentences, give --split_sentences. Otherwise raise"
    return (
        f"{reason}{way} --max_seq_length or --dupe_factor, since each pass cuts other"
        " tokens off, or use --objective=mlm, which loses none"
    )


def warn_of_unknown(num_unknown: int, num_tokens: int, settings: PretrainingDataSettings) -> None:
    """Warns if many tokens of a text are unknown, as in another language or script."""
    if num_unknown > _MOST_UNKNOWN * num_tokens:
        logging.warning(
            "%d of %d tokens (%.1f%%) are [UNK], which stands for all words that --vocab_file=%s"
            " does not have. Is it the vocabulary of the text's language?"
            " tools.build_vocabulary makes one of the text",
            *(num_unknown, num_tokens, 100 * num_unknown / num_tokens, settings.vocab_file),
        )


def report_repeated(num_repeated: int, num_documents: int) -> None:
    """Logs how many documents have the text of an earlier one (`documents.document_digest`)."""
    share = num_repeated / max(num_documents, 1)
    logging.info(
        "%s",
        f"{num_repeated} of {num_documents} documents ({share:.1%}) repeat the text of another one",
    )
