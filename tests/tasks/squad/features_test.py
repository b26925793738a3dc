"""Tests of records of questions: against a slow version, digests, text without spaces."""

import collections
import itertools
import random
import time

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.runs.flags.setting_fields import flags_of, rule_of
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.squad import answers, features
from bert_tf.tasks.squad.examples import SquadData, read_squad_examples
from bert_tf.tasks.squad.features import SquadEncoder
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.squad.words import FinalText, is_spaced, is_unspaced, split_words
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS, FullTokenizer
from tests.support.encoded import tokenizer_of
from tests.support.golden import digests, needs_golden
from tests.support.record_files import read_records
from tests.support.squad_files import (
    GOLDEN,
    RELEASED_VOCAB,
    golden_run,
    make_tokenizer,
    question,
    settings_of_lengths,
    write_squad,
    write_vocab,
)

CONTEXT = "The leader was John Smith (1895-1943). The Japanese electronics store is a river ."


def slow_records(data, vocab_file, settings, is_training):
    """Yields the records' features by convert_examples_to_features' rules, token by token."""
    tokenizer = FullTokenizer(vocab_file, do_lower_case=True)
    unique_id = 1000000000
    for example in data.examples:
        query = tokenizer.tokenize(example.question_text)[: settings.max_query_length]
        words = split_words(data.contexts[example.context_index])
        pieces = [tokenizer.tokenize(word) for word in words]
        tokens = sum(pieces, [])
        begin = [sum(map(len, pieces[:i])) for i in range(len(pieces) + 1)]
        if is_training and not example.is_impossible:
            first, last = begin[example.start_position], begin[example.end_position + 1] - 1
            wanted = " ".join(tokenizer.tokenize(example.answers[0]))
            places = [
                (i, j)
                for i in range(first, last + 1)
                for j in range(last, i - 1, -1)
                if " ".join(tokens[i : j + 1]) == wanted
            ]
            first, last = places[0] if places else (first, last)
        start, room = 0, settings.max_seq_length - len(query) - 3
        while start < len(tokens):
            part = tokens[start : start + room]
            sequence = ["[CLS]", *query, "[SEP]", *part, "[SEP]"]
            padding = [0] * (settings.max_seq_length - len(sequence))
            record = {
                "unique_ids": [unique_id],
                "input_ids": tokenizer.convert_tokens_to_ids(sequence) + padding,
                "input_mask": [1] * len(sequence) + padding,
                "segment_ids": [0] * (len(query) + 2) + [1] * (len(part) + 1) + padding,
            }
            if is_training:
                span = [0, 0]
                if not example.is_impossible and start <= first and last < start + len(part):
                    span = [first - start + len(query) + 2, last - start + len(query) + 2]
                record["start_positions"], record["end_positions"] = span[:1], span[1:]
                record["is_impossible"] = [int(example.is_impossible)]
            yield record
            unique_id += 1
            if start + len(part) == len(tokens):
                break
            start += min(len(part), settings.doc_stride)


@pytest.mark.parametrize("is_training", [True, False])
def test_records(tmp_path, is_training):
    answers = ["John Smith", "1895", "Japan", "electronics store", "river ."]
    qas = [
        question(str(i), "Who was the leader ? " * (i + 1), [(text, CONTEXT.index(text))])
        for i, text in enumerate(answers)
    ]
    qas.insert(2, question("none", "Who?", [], is_impossible=True))
    man = "\u200b man #", [question("m", "what runs", [("man", 2)])]
    path = write_squad(tmp_path / "x.json", (CONTEXT, qas), man, ("\u200b", []))
    data = read_squad_examples(path, "train_file", is_training, True)
    tokenizer = make_tokenizer(tmp_path)
    settings = settings_of_lengths(20, 5, 9)
    encoder = SquadEncoder(data, tokenizer, settings, is_training)
    output = str(tmp_path / "x.tf_record")
    assert write_records(output, data.examples, encoder) == len(encoder.windows)
    expected = list(slow_records(data, write_vocab(tmp_path), settings, is_training))
    assert read_records(output) == expected
    assert len(encoder.windows) == len(expected) > 2 * len(data.examples)
    lengths = collections.defaultdict(set)
    for window, record in zip(encoder.windows, expected, strict=True):
        context = encoder.contexts[data.examples[window.example_index].context_index]
        (start, length), offset = window.span, window.offset
        tokens = record["input_ids"][offset : offset + length]
        assert tokens == context.ids[start : start + length].tolist()
        if is_training:
            (first,), (last,) = record["start_positions"], record["end_positions"]
            lengths[window.example_index].add(last - first + 1)
    if is_training:  # "(1895-1943)." is narrowed to one token, "electronics store" to three
        assert lengths[1] == {1} and lengths[2] == {1} and lengths[4] == {1, 3}


@pytest.mark.parametrize("batch", [1, 2, 128])
def test_many_contexts_are_tokenized_in_batches(tmp_path, monkeypatch, batch):
    monkeypatch.setattr(features, "_CONTEXTS_PER_CALL", batch)
    tokenizer = make_tokenizer(tmp_path)
    contexts = ["the man", "", " ", CONTEXT, "a river runs", "john"]
    tokenized = features.tokenize_contexts(contexts, tokenizer)
    for context, (ids, word_starts, _) in zip(contexts, tokenized, strict=True):
        words = [tokenizer.encode([word])[0].tolist() for word in split_words(context)]
        assert [ids[i:j].tolist() for i, j in itertools.pairwise(word_starts)] == words
        assert ids.base is None  # a view would keep the whole batch


@needs_golden
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("is_training", [True, False])
def test_records_of_the_original(tmp_path, version, is_training):
    run = golden_run(f"squad_{version}.json")
    flags = run["flags"]
    path = GOLDEN / "programs" / f"squad_{version}{'_train' * is_training}.json"
    data = read_squad_examples(str(path), "x", is_training, flags["version_2_with_negative"])
    if is_training:
        random.Random(12345).shuffle(data.examples)
    tokenizer = FastTokenizer(str(RELEASED_VOCAB), True, SEQUENCE_TOKENS)
    settings = settings_of_lengths(flags["max_seq_length"], flags["doc_stride"])
    output = str(tmp_path / "x.tf_record")
    write_records(output, data.examples, SquadEncoder(data, tokenizer, settings, is_training))
    kind = "train" if is_training else "eval"
    assert digests([output]) == [run["digest"][f"{kind}.tf_record"]]


def test_settings():
    data, tokenizer = SquadData([], []), FastTokenizer(str(RELEASED_VOCAB), True, SEQUENCE_TOKENS)
    with pytest.raises(UserError, match="--max_seq_length=67 must be greater than 67, which --max"):
        SquadEncoder(data, tokenizer, settings_of_lengths(67), True)
    assert SquadEncoder(data, tokenizer, settings_of_lengths(68), True)
    (field,) = [field for field in flags_of(SquadSettings) if field.name == "length_buckets"]
    assert field.default == "none"
    assert "the original's loss and n-best lists count" in rule_of(field).help


VOCAB = (
    "[PAD] [UNK] [CLS] [SEP] who 日 本 東 京 都 は の です か ##な ##か な ##た"
    " แ ##มว ##กน ##แ cat 7 , the ##s"
).split()
# Answers that occur several times in a word, pieces that are unknown, marks that are dropped.
TEXTS = {
    "Chinese": "東京、東京都と東京。 cat 東京",
    "unknown": "日龘本東龘京。",
    "Japanese": "なかなたてんき、なか",
    "Thai": "แมวกนแมว แมว",
    "marks": "แมวก\u0e34น\u0e35แมว",
    "long": "cat,7," * 60,
    "after spaces": "the  cat\n7 東京東京",
}


TOKENIZER = tokenizer_of(VOCAB)


def spans_of(folder, context, answer, start):
    """Returns the label's tokens, and the text that is predicted from them."""
    qas = [question("q", "who", [(answer, start)])]
    path = write_squad(folder / "x.json", (context, qas))
    data = read_squad_examples(path, "train_file", True, False)
    encoder = features.SquadEncoder(data, TOKENIZER, settings_of_lengths(), is_training=True)
    (example,) = data.examples
    ids, splits = TOKENIZER.encode(encoder.texts(example))
    texts = [ids[i:j].tolist() for i, j in zip(splits, splits[1:], strict=False)]
    record = next(encoder.records(example, texts))
    (first,), (last,) = record["start_positions"], record["end_positions"]
    tokens = [TOKENIZER.inv_vocab[i] for i in record["input_ids"][first : last + 1]]
    at = answers.ContextText(
        context, encoder.contexts[0], TOKENIZER, FinalText(TOKENIZER.split_words)
    ).of
    offset = encoder.windows[0].offset
    return tokens, at(first - offset, last - offset)


@pytest.mark.parametrize(
    "name, answer, number, tokens",
    [
        ("Chinese", "東京", 0, "東 京"),
        ("Chinese", "東京", 1, "東 京"),
        ("Chinese", "東京", 2, "東 京"),
        ("Chinese", "東京", 3, "東 京"),
        ("Chinese", "京。 cat", 0, "京 [UNK] cat"),
        ("unknown", "龘", 0, "[UNK]"),
        ("unknown", "龘", 1, "[UNK]"),
        ("unknown", "龘本", 0, "[UNK] 本"),
        ("Japanese", "なか", 1, "な ##か"),
        ("Thai", "แมว", 1, "##แ ##มว"),
        ("Thai", "แมว", 2, "แ ##มว"),
        ("Thai", "น", 0, "##กน"),
        ("long", "cat", 41, "cat"),
        ("long", "7,cat", 30, "7 , cat"),
        ("after spaces", "東京", 1, "東 京"),
        ("after spaces", "7 東", 0, "7 東"),
    ],
)
def test_an_answer_is_where_it_starts(tmp_path, name, answer, number, tokens):
    context, start = TEXTS[name], -1
    for _ in range(number + 1):
        start = context.index(answer, start + 1)
    found, (text, begin, end) = spans_of(tmp_path, context, answer, start)
    assert found == tokens.split()
    if answer == "น":  # a part of a piece
        answer, start = "กน", start - 1
    assert (text, begin, end) == (answer, start, start + len(answer))


def test_an_answer_keeps_the_marks_that_the_tokenizer_drops():
    text = TEXTS["marks"] + " 東e\u0301"
    (context,) = features.tokenize_contexts([text], TOKENIZER)
    assert context.places.ends.max() == len(text)


def test_an_answer_that_is_elsewhere_in_a_sentence_is_skipped(tmp_path, caplog):
    qas = [question("off", "q", [("東京", 1)]), question("right", "q", [("東京", 3)])]
    path = write_squad(tmp_path / "x.json", (TEXTS["Chinese"], qas))
    data = read_squad_examples(path, "train_file", True, False)
    assert [(e.qas_id, e.answer_start) for e in data.examples] == [("right", 3)]
    assert "(id 'off'): Could not find answer: '東京、東京都と東京。' vs. '東京'" in caplog.text


def test_words_that_are_not_between_spaces():
    for word in ("Smith's", "(1895-1943).", "서울은", "Ελλάδα", "x" * 200):
        assert not is_unspaced(word)
    for word in ("x" * 201, "(北京)", "\uff49\uff30", "ສະບາຍດີ", "ភាសា", "မြန်မာ", "𠀀", "カタカナ"):
        assert is_unspaced(word)


def test_a_text_is_spaced_if_all_its_words_are():
    rng = random.Random(0)
    words = ["a", "é", "–", "서울은", "x" * 199, "x" * 200, "हिन्दी", "жизнь", "\ud800", "…"] * 4
    words += ["x" * 201, "北", "ສະ", "𠀀", "。", "\u1a20", "\u1b00", "\u2fff", "\U0001f600"]
    seen = set()
    for _ in range(2000):
        count = rng.choice([0, 1, 3, 30])
        text = "".join(rng.choice(words) + rng.choice("   \t\n\u202f") for _ in range(count))
        seen.add(expected := not any(map(is_unspaced, split_words(text))))
        assert is_spaced(text) == expected, ascii(text)
    assert seen == {True, False}


@pytest.mark.parametrize("unit", ["日本東京", "なかな。", "cat,7,", "แมว,"])
def test_time_grows_in_proportion(unit):
    """An answer of a context of 40,000 characters takes no longer than one of 2,000."""
    taken = []
    for size in (2_000, 40_000):
        text = (unit * size)[:size]
        (context,) = features.tokenize_contexts([text], TOKENIZER)
        at = answers.ContextText(text, context, TOKENIZER, FinalText(TOKENIZER.split_words)).of
        start = time.perf_counter()
        for first in np.linspace(0, len(context.ids) - 4, 200).astype(int).tolist():
            found, begin, end = at(first, first + 3)
            assert found == text[begin:end] and len(found) < 20
        taken.append(time.perf_counter() - start)
    assert taken[1] < 5 * taken[0] + 0.05
