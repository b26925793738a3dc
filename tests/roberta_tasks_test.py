"""RoBERTa's vocabulary in the tasks: spaces belong to words, pairs have four special tokens."""

import numpy as np
import pytest

from bert_tf.pretrained.text_input import encode, encode_masks
from bert_tf.tasks.classification.examples import ClassificationEncoder
from bert_tf.tasks.multiple_choice.data import QuestionEncoder
from bert_tf.tasks.squad import answers, features
from bert_tf.tasks.squad.examples import SquadData, SquadExample
from bert_tf.tasks.squad.words import FinalText
from bert_tf.tasks.tagging.data import Sentence, TaggingEncoder
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.byte_pair_files import word_merges, write_vocabulary
from tests.support.encoded import ids_of_each, tokens_of_each
from tests.support.refusals import refuses
from tests.support.squad_files import settings_of_lengths

WORDS = "the film was fine smith born (1895-1943)".split()
TEXT = "smith was born (1895-1943). fine"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return load_tokenizer(write_vocabulary(folder, word_merges(WORDS[:-1])), False)


def tokens(tokenizer, ids):
    return [tokenizer.inv_vocab[int(i)] for i in ids]


def test_a_context_is_tokenized_like_its_text(tokenizer):
    text = "film  was\tfine (1895-1943)."
    (context,) = features.tokenize_contexts([text], tokenizer)
    whole, _ = tokenizer.encode([" ".join(text.split())])
    assert context.ids.tolist() == whole.tolist()
    assert tokens(tokenizer, context.ids)[:6] == ["f", "i", "l", "m", "Ġwas", "Ġfine"]
    assert context.word_starts.tolist() == [0, 4, 5, 6, len(whole)]


def test_an_answer_is_found_within_a_word_and_mapped_back(tokenizer):
    (context,) = features.tokenize_contexts([TEXT], tokenizer)
    at = answers.ContextText(TEXT, context, tokenizer, FinalText(tokenizer.split_words)).of
    pieces = tokens(tokenizer, context.ids)
    first, last = pieces.index("("), pieces.index("4")
    assert pieces[first - 1] == "Ġ" and pieces[first + 1 : first + 5] == list("1895")
    for span, expected in (
        ((first + 1, first + 4), "1895"),
        ((first - 1, first + 4), "(1895"),
        ((0, len("smith") - 1), "smith"),
        ((last - 2, len(pieces) - 1), "1943). fine"),
    ):
        found, start, end = at(*span)
        assert found == TEXT[start:end] == expected


def encoded(tokenizer, context, answer, words, start=None):
    """Returns the record of a question on a context, and its encoder."""
    more = () if start is None else (start,)
    example = SquadExample("q", "the film", 0, (answer,), *words, *more)
    settings = settings_of_lengths(max_seq_length=60, doc_stride=16, max_query_length=9)
    encoder = features.SquadEncoder(SquadData([context], [example]), tokenizer, settings, True)
    (record,) = encoder.records(example, ids_of_each(tokenizer, encoder.texts(example)))
    return record, encoder


@pytest.mark.parametrize(
    ("answer", "expected"), [("1895", list("1895")), ("born", ["Ġborn"]), ("fine", ["Ġfine"])]
)
def test_the_positions_of_answers(tokenizer, answer, expected):
    """With the space before an answer, if it begins a word; without, if it does not."""
    word = next(i for i, word in enumerate(TEXT.split()) if answer in word)
    record, encoder = encoded(tokenizer, TEXT, answer, (word, word))
    (window,), (context,) = encoder.windows, encoder.contexts
    (start,), (end,) = record["start_positions"], record["end_positions"]
    ids = record["input_ids"]
    assert tokens(tokenizer, ids[start : end + 1]) == expected
    # <s> the film </s></s> context </s>
    query = tokenizer.encode(["the film"])[0].tolist()
    assert ids[: window.offset] == [0, *query, 2, 2]
    assert ids[window.offset : window.offset + len(context.ids)] == context.ids.tolist()


def test_an_answer_in_text_without_spaces_is_where_it_starts(tokenizer):
    context, answer, start = "film \u732b\u3001\u732b\u3001film\u732b\u3002", "\u732b", 7
    record, encoder = encoded(tokenizer, context, answer, (1, 1), start)
    (window,), (pieces,) = encoder.windows, encoder.contexts
    first, last = (record[f"{side}_positions"][0] - window.offset for side in ("start", "end"))
    assert tokenizer.text_of(pieces.ids[first : last + 1].tolist()) == answer
    at = answers.ContextText(context, pieces, tokenizer, FinalText(tokenizer.split_words)).of
    assert at(first, last) == (answer, start, start + 1)


def test_the_words_of_a_sentence_have_their_spaces(tokenizer):
    encoder = TaggingEncoder(tokenizer, 20, ["O"], False)
    texts = encoder.texts([Sentence(["the", "film"], None, 0), Sentence(["was"], None, 0)])
    assert tokens_of_each(tokenizer, *texts) == [[*"the"], ["Ġfilm"], [*"was"]]


def test_lengths_without_room_are_refused(tokenizer):
    message = "--max_seq_length must be at least 5, .*; received 4"
    refuses(message, ClassificationEncoder, tokenizer, 4, ["a"])
    message = "--max_seq_length must be at least 6, .*; received 5"
    refuses(message, QuestionEncoder, tokenizer, 5, 4)


def test_a_text_is_cut_to_the_length(tokenizer):
    texts = [("the film was fine", "born born born born born"), "the"]
    pair, single = encode(texts, tokenizer, 9)
    assert pair["input_ids"][:1] == [0] and pair["input_ids"].count(2) == 3
    assert len(pair["input_ids"]) == 9 and single["input_ids"][-1] == 2
    assert not np.any(pair["segment_ids"])
    (row,) = encode_masks(["the <mask> was <mask>"], tokenizer, 20)
    expected = ["<s>", "t", "h", "e", "<mask>", "Ġwas", "<mask>", "</s>"]
    assert tokens(tokenizer, row["input_ids"]) == expected
    assert row["masked_lm_positions"] == [4, 6]
