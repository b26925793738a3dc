"""Helpers for tests of SQuAD: small files in its format, a vocabulary, golden inputs."""

import json
import os
from pathlib import Path

from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS

GOLDEN = Path(os.environ.get("BERT_TF_GOLDEN", ""))
RELEASED_VOCAB = GOLDEN.parent / "released" / "vocab_uncased.txt"
VOCAB = (
    "[PAD] [UNK] [CLS] [SEP] who what when was born is here ? . , ( ) - the leader john smith 1895"
    " 1943 man went to store and ##s ##ese japan electron ##ics a river runs # @ $ cafe"
).split()


def write_vocab(folder: Path) -> str:
    """Writes a vocabulary of `VOCAB` and returns its path."""
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in VOCAB), encoding="utf-8")
    return str(path)


def make_tokenizer(folder: Path) -> FastTokenizer:
    return FastTokenizer(write_vocab(folder), True, SEQUENCE_TOKENS)


def settings_of_lengths(
    max_seq_length: int = 384, doc_stride: int = 128, max_query_length: int = 64, **others
) -> SquadSettings:
    """Returns settings for functions that do not use the paths in them."""
    lengths = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    lengths["max_query_length"] = max_query_length
    return SquadSettings(output_dir="unused", vocab_file="", **lengths, **others)


def question(qas_id, text, answers=None, **others) -> dict:
    """Returns a question; `answers` are pairs (text, start), or None to leave the key out."""
    made = {"id": qas_id, "question": text, **others}
    if answers is not None:
        made["answers"] = [{"text": text, "answer_start": start} for text, start in answers]
    return made


def write_squad(path: Path, *paragraphs: tuple[str, list[dict]]) -> str:
    """Writes an article with paragraphs (context, questions) to a file; returns its path."""
    found = [{"context": context, "qas": qas} for context, qas in paragraphs]
    article = {"title": "t", "paragraphs": found}
    path.write_text(json.dumps({"version": "x", "data": [article]}), encoding="utf-8")
    return str(path)


def golden_run(file: str) -> dict:
    """Returns the entry in golden.json of the original's run on a file."""
    runs = json.loads((GOLDEN / "programs" / "golden.json").read_text())
    (run,) = (r for r in runs if r["program"] == "run_squad" and r["flags"]["file"] == file)
    return run
