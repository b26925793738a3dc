r"""Makes text to pre-train on from a dump of Wikipedia or any other MediaWiki.

    python -m tools.wikipedia_text --input_file=enwiki-latest-pages-articles.xml.bz2 \
        --output_file=enwiki.txt --num_workers=8

The output has a sentence on each line and an empty line between articles, as
create_pretraining_data.py reads it. It has only the text passages, without lists, tables and
headers, as in the paper (3.1). The dump is read as a stream. The number of workers does not change
the output. The output file appears when it is complete.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.wikipedia_text")

import collections
import concurrent.futures
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence

from absl import flags, logging

from bert_tf.datasets import wikipedia
from bert_tf.datasets.wikipedia import Article
from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.files.paths import check_overwrites
from bert_tf.files.whole_files import UnfinishedFile
from bert_tf.runs.flags import command_flags

from . import with_flags

_CHARACTERS_PER_BATCH = 1 << 18
_BATCHES_PER_WORKER = 4  # read ahead
_COMMONEST = 10  # number of templates in the log


def wikipedia_text(input_file: str, output_file: str, num_workers: int = 1) -> int:
    """Writes the text of dumps and returns the number of articles in it."""
    wikipedia.check_parser()
    files = storage.expand_files(input_file, "input_file")
    check_overwrites([output_file], "output_file", {"input_file": files})
    storage.check_file_system(output_file, "output_file")
    articles = itertools.chain.from_iterable(
        wikipedia.read_articles(path, "input_file") for path in files
    )
    num_sentences, written = 0, 0
    empty, unparsed = [], []  # titles
    left_out: collections.Counter[str] = collections.Counter()
    with UnfinishedFile(output_file, f"--output_file={output_file}") as file:
        for batch, (found, templates) in _parse(_batches(articles), num_workers):
            left_out += templates
            for article, sentences in zip(batch, found, strict=True):
                if sentences:
                    text = "\n".join(sentences) + "\n"
                    # A character number in the markup may be half of a surrogate pair.
                    file.write(("\n" * bool(written) + text).encode(errors="ignore"))
                    written += 1
                    num_sentences += len(sentences)
                else:
                    (unparsed if sentences is None else empty).append(article.title)
        total = written + len(empty) + len(unparsed)
        for titles, fault in ((empty, "have no sentence"), (unparsed, "cannot be parsed")):
            if titles:
                logging.warning(
                    "%d of %d articles %s and are left out, such as %s",
                    *(len(titles), total, fault, quoted(titles[0])),
                )
        if left_out:
            names = ", ".join(f"{name} ({n})" for name, n in left_out.most_common(_COMMONEST))
            logging.warning(
                "%d templates within lines are left out, with the text that they show, most often"
                " %s",
                *(left_out.total(), names),
            )
        if not written:
            raise UserError(
                f"--input_file={input_file} must have an article with a sentence; its {total}"
                " articles have none. Nothing was written"
            )
        file.finish()
    logging.info("%s: %d articles, %d sentences", output_file, written, num_sentences)
    return written


def _batches(articles: Iterable[Article]) -> Iterator[list[Article]]:
    """Yields the articles in lists, each a moment's work for a worker."""
    batch: list[Article] = []
    size = 0
    for article in articles:
        batch.append(article)
        size += len(article.markup)
        if size >= _CHARACTERS_PER_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _parse(
    batches: Iterable[list[Article]], num_workers: int
) -> Iterator[tuple[Sequence[Article], tuple[list[list[str] | None], collections.Counter[str]]]]:
    """Yields each batch with the result of `parse`, in order; a few batches are read ahead."""
    if num_workers == 1:
        for batch in batches:
            yield batch, wikipedia.parse(batch)
        return
    waiting: collections.deque = collections.deque()
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(num_workers, context, _begin_worker)
    try:
        for batch in batches:
            waiting.append((batch, pool.submit(wikipedia.parse, batch)))
            if len(waiting) > _BATCHES_PER_WORKER * num_workers:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Makes a worker ignore Ctrl-C, and end when its parent process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


if __name__ == "__main__":
    flags.DEFINE_string(
        "input_file",
        None,
        "Dumps of MediaWiki (.xml, .xml.bz2): files or globs, separated by commas.",
    )
    flags.DEFINE_string(
        "output_file", None, "The text file to write. An existing file is overwritten."
    )
    flags.DEFINE_integer("num_workers", 1, "Processes that parse the markup.", lower_bound=1)
    flags.mark_flags_as_required(["input_file", "output_file"])
    command_flags.run_program(with_flags(wikipedia_text))
