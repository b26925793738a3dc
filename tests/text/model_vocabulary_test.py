"""A vocabulary is held against the one beside the checkpoint."""

import json

import pytest

from bert_tf.text.model_vocabulary import check_model_vocabulary
from bert_tf.tokenization import load_vocab
from tests.support.byte_pair_files import write_vocabulary
from tests.support.refusals import refusal

MODEL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "the", "of"]


def check(folder, tokens, checkpoint="bert_model.ckpt"):
    path = folder / "mine.txt"
    path.write_text("".join(f"{token}\n" for token in tokens))
    check_model_vocabulary(load_vocab(str(path)), str(path), str(folder / checkpoint))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(MODEL))
    return tmp_path


def test_the_same_and_own_words_in_free_places_are_accepted(folder):
    check(folder, MODEL)
    check(folder, ["[PAD]", "[unused0]", "aspirin", "[UNK]", "the", "of", "ibuprofen"])
    check(folder, MODEL, "")  # the folder itself
    (folder / "vocab.txt").unlink()
    check(folder, MODEL[:2])


@pytest.mark.parametrize(
    ("tokens", "token", "line", "now"),
    [
        ([*MODEL[:4], "of", "the"], "the", 5, "in line 6"),
        (MODEL[:5], "of", 6, "missing"),
        (["[PAD]", "[UNK]", *MODEL[4:]], "[UNK]", 4, "in line 2"),
    ],
)
def test_another_model_s_vocabulary_is_refused(folder, tokens, token, line, now):
    assert refusal(check, folder, tokens) == (
        f"--vocab_file={folder}/mine.txt must have every token in the same line as the vocabulary"
        f" of --init_checkpoint: '{token}' is in line {line} of {folder}/vocab.txt, but {now} in"
        f" --vocab_file. Give --vocab_file={folder}/vocab.txt; you may replace its [unused...]"
        " lines by your own words, or add words at its end"
    )


def test_pieces_have_ids_instead_of_lines(tmp_path):
    model, other = tmp_path / "model", tmp_path / "other"
    model.mkdir()
    other.mkdir()
    theirs, mine = write_vocabulary(model, ["t h", "h e"]), write_vocabulary(other, ["h e", "t h"])
    vocab = json.loads((other / "vocab.json").read_text())
    checkpoint = str(model / "bert_model.ckpt")
    for flag in ("init_checkpoint", "teacher_checkpoint"):
        assert refusal(check_model_vocabulary, vocab, mine, checkpoint, flag) == (
            f"--vocab_file={mine} must have the pieces of {theirs}, the vocabulary of --{flag}:"
            f" 'th' has the id 261 there, but 262 in --vocab_file. Give --vocab_file={theirs}"
        )
    check_model_vocabulary(json.loads((model / "vocab.json").read_text()), mine, checkpoint)


def test_a_vocabulary_of_another_kind_is_refused(tmp_path):
    theirs = write_vocabulary(tmp_path, [])
    assert refusal(check, tmp_path, MODEL) == (
        f"--vocab_file={tmp_path}/mine.txt must be the vocabulary of --init_checkpoint, {theirs},"
        f" but is a different kind of vocabulary. Give --vocab_file={theirs}"
    )
    (tmp_path / "vocab.txt").write_text("\n".join(MODEL))
    check(tmp_path, MODEL)  # a folder may have both
