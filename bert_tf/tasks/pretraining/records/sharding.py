"""Assigns documents to shards and orders them there: the same for any number of workers.

A document's key is its file and its number in the file, or its id in TensorFlow Datasets. The hash
of the key and the seed determines the document's shard and its place there. So a shard depends
only on the text, the seed and the number of shards.
"""

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_SEED_BITS = 31  # every program accepts seeds of 31 bits


class KeyedDocument(NamedTuple):
    """A document's key, unique in a text, and its lines, none of them empty."""

    key: str
    lines: list[str]


def document_hash(key: str, seed: int) -> int:
    """Returns the hash of a document, from 0 to 2^64 - 1.

    The hash modulo the number of shards is the document's shard. A shard's documents are sorted by
    hash, then by key.

    Args:
        key: the document's key.
        seed: --random_seed.
    """
    digest = hashlib.blake2b(f"document\t{seed}\t{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def shard_seed(shard: int, seed: int) -> int:
    """Returns the seed of the random choices in a shard, from 0 to 2^31 - 1.

    Args:
        shard: the shard's number, from 0.
        seed: --random_seed.
    """
    digest = hashlib.blake2b(f"shard\t{seed}\t{shard}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - _SEED_BITS)


def shard_file(output_file: str, shard: int, num_shards: int) -> str:
    """Returns the name of a shard's file: a-00003-of-00064.tfrecord, of a.tfrecord."""
    root, ending = os.path.splitext(output_file)
    return f"{root}-{shard:05}-of-{num_shards:05}{ending}"


def file_keys(files: Sequence[str]) -> dict[str, str]:
    """Returns each file's path relative to the innermost folder that contains all files.

    So moving the text to another folder does not change keys, nor the records.
    """
    folder = os.path.dirname(files[0]) if files else ""
    while not all(file.startswith(f"{folder}/") for file in files) and folder:
        folder = os.path.dirname(folder) if os.path.dirname(folder) != folder else ""
    return {file: file[len(folder) :].lstrip("/") for file in files}


def split_documents(batches: Iterable[tuple[str, list[str]]]) -> Iterator[KeyedDocument]:
    """Yields the documents of files; the end of a file ends a document.

    Args:
        batches: pairs of a file's key and some of its lines, stripped, file after file; an empty
            line ends a document.
    """
    for name, group in itertools.groupby(batches, key=lambda batch: batch[0]):
        number = 0
        lines: list[str] = []
        for line in itertools.chain.from_iterable(batch for _, batch in group):
            if line:
                lines.append(line)
            elif lines:
                yield KeyedDocument(f"{name}\t{number}", lines)
                number += 1
                lines = []
        if lines:
            yield KeyedDocument(f"{name}\t{number}", lines)
