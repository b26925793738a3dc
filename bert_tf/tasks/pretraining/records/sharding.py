"""Assigns documents to shards and orders them there: the same for any number of workers.

A document's key is its file and its number in the file, or its id in TensorFlow Datasets. Shard and
place there depend only on the hash of the key and the seed, and on the number of shards.
"""

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

HELDOUT = -1  # the shard of held-out documents, for its seed
_SEED_BITS = 31  # every program accepts seeds of 31 bits


def document_hash(key: str, seed: int) -> int:
    """Returns the hash of a document, from 0 to 2^64 - 1.

    The hash modulo the number of shards is the document's shard, where documents are in the order
    of hash, then key.
    """
    return _hash(f"document\t{seed}\t{key}")


def shard_seed(shard: int, seed: int) -> int:
    """Returns the seed of the random choices in a shard, from 0 to 2^31 - 1."""
    return _hash(f"shard\t{seed}\t{shard}") >> (64 - _SEED_BITS)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def shard_file(output_file: str, shard: int, num_shards: int) -> str:
    """Returns the name of a shard's file: for a.tfrecord, a-00003-of-00064.tfrecord."""
    root, ending = os.path.splitext(output_file)
    return f"{root}-{shard:05}-of-{num_shards:05}{ending}"


def file_keys(files: Sequence[str]) -> dict[str, str]:
    """Returns each file's path relative to the innermost folder that contains all files.

    Moving the text to a different folder changes neither keys nor records.
    """
    folder = os.path.dirname(files[0]) if files else ""
    while not all(file.startswith(f"{folder}/") for file in files) and folder:
        folder = os.path.dirname(folder) if os.path.dirname(folder) != folder else ""
    return {file: file[len(folder) :].lstrip("/") for file in files}


def split_documents(batches: Iterable[tuple[str, list[str]]]) -> Iterator[tuple[str, list[str]]]:
    """Yields each document's key and lines. Empty lines and ends of files separate documents."""
    for name, group in itertools.groupby(batches, key=lambda batch: batch[0]):
        lines = itertools.chain.from_iterable(batch for _, batch in group)
        documents = (list(found) for is_text, found in itertools.groupby(lines, bool) if is_text)
        for number, document in enumerate(documents):
            yield f"{name}\t{number}", document
