"""Tests of records without pairs, and of unmasked records, against independent statements."""

import random

import pytest

from bert_tf import tokenization
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from tests.support.record_files import read_records

WORDS = "river bread stone walk ##ing ##ed ##s light moon see the a of and . , un ##like".split()
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LENGTH = 19


@pytest.fixture
def documents(tmp_path):
    """The tokens of documents of short and some very long sentences, which are in text.txt."""
    rng = random.Random(3)
    words = ["river", "bread", "walking", "moons", "the", "unknown", "stones,", "a", "unlike"]
    texts = [
        [" ".join(rng.choices(words, k=rng.choice([1, 2, 3, 5, 7, 50]))) for _ in range(length)]
        for length in rng.choices(range(1, 8), k=31)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(map("\n".join, texts)))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    tokenizer = tokenization.FullTokenizer(f"{tmp_path}/vocab.txt")
    return [[tokenizer.tokenize(sentence) for sentence in text] for text in texts]


def create(folder, **changes):
    options = {"max_seq_length": LENGTH, "max_predictions_per_seq": 4, "dupe_factor": 1}
    create_pretraining_data(
        PretrainingDataSettings(
            input_file=f"{folder}/text.txt",
            output_file=f"{folder}/r.tfrecord",
            vocab_file=f"{folder}/vocab.txt",
            **{**options, **changes},
        )
    )
    return read_records(f"{folder}/r.tfrecord")


def packed(documents, across):
    """Returns the sequences of documents as lists of tokens, [CLS] to [SEP]."""
    sequences, now = [], []

    def flush():
        nonlocal now
        if now:
            sequences.append(["[CLS]", *now, "[SEP]"])
        now = []

    for document in documents:
        begins = True
        for sentence in document:
            while sentence:
                part, sentence = sentence[: LENGTH - 2], sentence[LENGTH - 2 :]
                separator = ["[SEP]"] if begins and now else []
                if len(now) + len(separator) + len(part) > LENGTH - 2:
                    flush()
                    separator = []
                now += [*separator, *part]
                begins = False
        if not across:
            flush()
    flush()
    return sequences


@pytest.mark.parametrize("across", [True, False])
def test_sequences_are_whole_sentences(documents, tmp_path, across):
    random.Random(7).shuffle(documents)  # as for pairs
    records = create(tmp_path, objective="mlm", across_documents=across, mask=False, random_seed=7)
    tokens = [
        [VOCAB[i] for i in record["input_ids"][: sum(record["input_mask"])]] for record in records
    ]
    assert sorted(tokens) == sorted(packed(documents, across))
    assert tokens != sorted(tokens)  # they are shuffled
    assert len(records) > 40
    for record, row in zip(records, tokens, strict=True):
        assert record.keys() == {"input_ids", "input_mask", "segment_ids", "word_ids"}
        assert record["segment_ids"] == [0] * LENGTH
        words, last = [], 0
        for token in row:
            if token in ("[CLS]", "[SEP]"):
                words.append(0)
                continue
            last += not (token.startswith("##") and last)
            words.append(last)
        assert record["word_ids"] == words + [0] * (LENGTH - len(row))


def test_each_pass_joins_the_documents_in_another_order(documents, tmp_path):
    once = create(tmp_path, objective="mlm", mask=False)
    records = create(tmp_path, objective="mlm", mask=False, dupe_factor=3)
    assert len(records) > 2.8 * len(once)
    new = {tuple(r["input_ids"]) for r in records} - {tuple(r["input_ids"]) for r in once}
    assert len(new) > 20


def test_masked_sequences(documents, tmp_path):
    records = create(tmp_path, objective="mlm", masked_lm_prob=0.3, max_predictions_per_seq=6)
    for record in records:
        assert "next_sentence_labels" not in record and "word_ids" not in record
        count = int(sum(record["masked_lm_weights"]))
        assert count == min(6, max(1, round(sum(record["input_mask"]) * 0.3)))
        masked = record["masked_lm_positions"][:count]
        assert not {2, 3} & set(record["masked_lm_ids"][:count])  # [CLS], [SEP]
        assert masked == sorted(set(masked))
    assert sum(record["input_ids"].count(VOCAB.index("[MASK]")) for record in records) > 50


def test_unmasked_pairs(documents, tmp_path):
    records = create(tmp_path, mask=False)
    for record in records:
        assert record.keys() == {
            *("input_ids", "input_mask", "segment_ids", "word_ids", "next_sentence_labels")
        }
        assert VOCAB.index("[MASK]") not in record["input_ids"]
        special = [i for i, word in enumerate(record["word_ids"]) if not word]
        assert {record["input_ids"][i] for i in special} <= {0, 2, 3}
    assert {record["next_sentence_labels"][0] for record in records} == {0, 1}


def test_too_few_predictions_are_warned_of(documents, tmp_path, warnings):
    create(tmp_path, masked_lm_prob=0.3, objective="mlm")
    (warning,) = warnings
    assert warning == (
        "--max_predictions_per_seq=4 is too few for --masked_lm_prob=0.3 of --max_seq_length=19"
        " tokens, which are 6; --max_predictions_per_seq=6 would be enough"
    )
