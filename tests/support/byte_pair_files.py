"""Writes a byte-level BPE: the special tokens, the 256 bytes, and the merged pieces."""

import json
from collections.abc import Sequence
from pathlib import Path

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def alphabet() -> list[str]:
    """Returns the character that stands for each byte in GPT-2's vocabulary, by byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def word_merges(words: Sequence[str]) -> list[str]:
    """Returns merges by which each word, with the space before it, is one piece."""
    merges = []
    for word in words:
        merges += [f"Ġ{word[:i]} {word[i]}" for i in range(len(word))]
    return list(dict.fromkeys(merges))


def write_vocabulary(folder: Path, merges: Sequence[str]) -> str:
    """Writes vocab.json and merges.txt, with merges such as "h e"; returns the first one's path."""
    pieces = [*SPECIAL, *alphabet(), *(merge.replace(" ", "") for merge in merges)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    path = folder / "vocab.json"
    path.write_text(json.dumps(vocab), encoding="utf-8")
    lines = "".join(f"{merge}\n" for merge in merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    return str(path)
