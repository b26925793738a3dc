"""Makes pre-training records in shards with Apache Beam (tools/create_pretraining_data_beam.py).

`shards.create_shards` writes the same bytes. Workers import this module's functions by name, so
nothing from the program that starts the pipeline is pickled.
"""

import argparse
import collections
import contextlib
import logging as python_logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import apache_beam as beam
from absl import logging
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options import pipeline_options as kinds
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult

from bert_tf.datasets.documents import warn_of_empty_documents
from bert_tf.errors import UserError, quoted
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records import shards
from bert_tf.tasks.pretraining.records.data import report, report_repeated, tokenizer_of
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.manifest import counts_of

_NAMESPACE = "bert_tf"
COUNTERS = ("documents", "empty_documents", "tokens", "instances")  # in the log, in this order
# These loggers print the traceback of an error whose message already contains it.
_TELL_ERRORS_TWICE = ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")
# A worker's error arrives as text within the runner's traceback.
_USER_ERROR = re.compile(rf"{re.escape(UserError.__name__)}: (.+?)(?: \[while running .*)?$", re.M)


def pipeline_options(words: Sequence[str]) -> PipelineOptions:
    """Parses Beam's options, and sets the defaults that the pipeline needs."""
    options = PipelineOptions(list(words))

    def check(parser: argparse.ArgumentParser) -> None:
        def fail(message: str) -> NoReturn:
            raise UserError(f"Beam's options: {message}")

        parser.error = fail
        _, unknown = parser.parse_known_args(list(words))
        if unknown:
            raise UserError(
                f"{quoted(unknown[0])} is neither a flag of this program (--help lists them) nor an"
                " option of Apache Beam (--name=value)"
            )

    name = options.view_as(kinds.StandardOptions).runner
    if name:
        create_runner(name)  # importing the runner registers its options
    options.get_all_options(add_extra_args_fn=check)
    workers = options.view_as(kinds.DirectOptions).direct_num_workers
    if workers < 0:
        raise UserError(f"Beam's options: --direct_num_workers={workers} must be at least 0")
    setup, debug = options.view_as(kinds.SetupOptions), options.view_as(kinds.DebugOptions)
    if setup.save_main_session is None:
        setup.save_main_session = False
    if debug.number_of_worker_harness_threads is None:
        # Each thread makes a shard in memory, but Python runs only one thread at a time.
        debug.number_of_worker_harness_threads = 1
    return options


def create_shards_with_beam(settings: PretrainingDataSettings, options: PipelineOptions) -> None:
    """Writes the missing shards, with options from `pipeline_options`.

    With DirectRunner, the default, the pipeline runs in Beam's FnApiRunner: DirectRunner itself
    would first download a program to run the pipeline.
    """
    _, names, files = shards.begin_shards(settings)
    missing = [shard for shard, name in enumerate(names) if not tf.io.gfile.exists(name)]
    logging.info("%d of %d shards already exist", len(names) - len(missing), len(names))
    if not missing:
        return
    runner = options.view_as(kinds.StandardOptions).runner or "DirectRunner"
    is_direct = runner.lower().removesuffix("runner") == "direct"
    try:
        pipeline = beam.Pipeline(FnApiRunner() if is_direct else None, options)
    except ValueError as error:  # the runner needs an option that is missing
        raise UserError(f"Beam's options for --runner={runner}: {error}") from error
    sources = [{}] if settings.tfds else [{file: key} for file, key in files.items()]
    counts_repeated = not runner.endswith("DaskRunner")  # with this count Dask writes no shard
    _add_steps(pipeline, sources, settings, frozenset(missing), counts_repeated)
    for name in _TELL_ERRORS_TWICE:
        python_logging.getLogger(name).setLevel(python_logging.CRITICAL)
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:
        found = _USER_ERROR.findall(f"{type(error).__name__}: {error}")
        if isinstance(error, NotImplementedError):  # the runner does not support an option
            found = [f"Beam's options for --runner={runner}: {error}"]
        if found:
            raise UserError(found[-1]) from error
        raise
    counts = _counts(result)
    if counts:
        logging.info("%s", ", ".join(f"{name}: {counts[name]:,}" for name in COUNTERS))
        num_documents = counts["documents"] - counts["empty_documents"]
        report_repeated(counts["repeated_documents"], num_documents)
    else:
        made = counts_of([names[shard] for shard in missing if tf.io.gfile.exists(names[shard])])
        logging.info("tokens: %s, instances: %s", f"{made.tokens:,}", f"{made.instances:,}")
    for shard in missing:
        if not tf.io.gfile.exists(names[shard]):
            raise shards.no_document(settings, shard, counts.get("documents"))
    report(counts_of(shards.training_files(settings)), settings)


def _add_steps(
    pipeline: beam.Pipeline,
    sources: Sequence[Mapping[str, int]],
    settings: PretrainingDataSettings,
    missing: frozenset[int],
    counts_repeated: bool,
) -> None:
    documents = (
        pipeline
        | "Files" >> beam.Create(sources)
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(_read, settings, missing)
    )
    documents | "Group" >> beam.GroupByKey() | "Make" >> beam.Map(_make, settings)
    if counts_repeated:
        (
            documents
            | "Digests" >> beam.Map(_digest)
            | "Count" >> beam.combiners.Count.PerElement()
            | "Repeated" >> beam.Map(_count_repeated)
        )


def _counts(result: PipelineResult) -> collections.Counter[str]:
    """Returns a pipeline's counters; empty if the runner, such as Dask's, does not count."""
    counts: collections.Counter[str] = collections.Counter()
    with contextlib.suppress(NotImplementedError):
        found = result.metrics().query(MetricsFilter().with_namespace(_NAMESPACE))
        for counter in found["counters"]:  # one for each step that counts
            counts[counter.key.metric.name] += counter.result
    return counts


def _count(name: str, number: int) -> None:
    Metrics.counter(_NAMESPACE, name).inc(number)


def _read(
    files: dict[str, str], settings: PretrainingDataSettings, kept: frozenset[int]
) -> Iterator[tuple[int, shards.HashedDocument]]:
    def report_empty(num_empty: int, num_documents: int) -> None:
        warn_of_empty_documents(num_empty, num_documents)
        _count("documents", num_empty)
        _count("empty_documents", num_empty)

    for shard, document in shards.read_documents(settings, files, report_empty):
        _count("documents", 1)
        if shard in kept:
            yield shard, document


def _digest(shard_and_document: tuple[int, shards.HashedDocument]) -> bytes:
    digest = shards.HashedDocument(*shard_and_document[1]).digest
    return digest.to_bytes(8, "little")  # Beam's integers are signed


def _count_repeated(digest_and_number: tuple[bytes, int]) -> None:
    _count("repeated_documents", digest_and_number[1] - 1)


def _make(
    shard_and_documents: tuple[int, Iterable[shards.HashedDocument]],
    settings: PretrainingDataSettings,
) -> None:
    """Writes a shard; its file appears when it is complete. A retry writes the same shard."""
    shard, documents = shard_and_documents
    tokenizer = tokenizer_of(settings)
    with shards.DocumentSpill(settings.spill_dir, settings.output_file) as spill:
        for document in documents:
            spill.add_document(shard, shards.HashedDocument(*document))
        counts = shards.write_shard(spill, shard, tokenizer, settings)
    _count("empty_documents", len(spill) - counts.documents)
    _count("tokens", counts.tokens)
    _count("instances", counts.instances)
