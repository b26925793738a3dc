"""Tests of bert_tf.load: each answer against numpy, and what is refused."""

import re

import numpy as np
import pytest

import bert_tf
from bert_tf.pretrained.answer_search import find_all, make_searches
from bert_tf.pretrained.text_input import encode_masks
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import FullTokenizer
from tests.support.model_folders import CONFIG, VOCAB, random_weights, write_model
from tests.support.numpy_bert import NumpyBert, assert_near, log_softmax
from tests.support.refusals import refusal

pytestmark = pytest.mark.usefixtures("eager")

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.fixture(scope="module")
def bert(weights):
    return NumpyBert(CONFIG, weights)


def ids_of(*texts):
    """Returns [CLS] a [SEP] b [SEP] as a batch of one: ids, mask, segments."""
    ids, segments = [VOCAB.index("[CLS]")], [0]
    tokenizer = FullTokenizer({token: i for i, token in enumerate(VOCAB)})
    for number, text in enumerate(texts):
        pieces = text.split() if "[MASK]" in text else tokenizer.tokenize(text)
        ids += [VOCAB.index(piece) for piece in [*pieces, "[SEP]"]]
        segments += [number] * (len(pieces) + 1)
    return tuple(np.array([row]) for row in (ids, np.ones_like(ids), segments))


def test_what_it_finds_is_said(model, folder):
    assert repr(model) == (
        f"<{folder}: BERT of 2 layers, hidden size 12, uncased, {len(VOCAB)} tokens; masked"
        " language model, next sentence, classification, answers (SQuAD); classes: 'no', 'maybe',"
        " 'yes'>"
    )
    assert model.heads == ("masked_lm", "next_sentence", "classification", "squad")
    assert (model.labels, model.max_seq_length) == (("no", "maybe", "yes"), 32)


def test_fill_mask(model, bert):
    texts = ["the [MASK] sat on [MASK] mat .", "[MASK] ran", "the dogs sat , [MASK]"]
    fillings = model.fill_mask(texts, top_k=4)
    assert [len(masks) for masks in fillings] == [2, 1, 1]
    tokens = ["the [MASK] sat on [MASK] mat .", "[MASK] ran", "the dog ##s sat , [MASK]"]
    for found, text in zip(fillings, tokens, strict=True):
        ids, mask, segments = ids_of(text)
        places = np.flatnonzero(ids[0] == VOCAB.index("[MASK]"))
        features = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
        features |= {"masked_lm_positions": places[None], "masked_lm_ids": 0 * places[None]}
        features |= {"masked_lm_weights": np.ones(places.shape)[None]}
        features["next_sentence_labels"] = np.zeros([1, 1], int)
        probabilities = np.exp(bert.losses(features)["masked_lm_log_probs"])
        for fillings_of_mask, expected in zip(found, probabilities, strict=True):
            best = np.argsort(-expected)[:4]
            assert [(x.token_id, x.token) for x in fillings_of_mask] == [
                (i, VOCAB[i]) for i in best
            ]
            assert_near([f.probability for f in fillings_of_mask], expected[best], 1e-5)


def test_a_vocabulary_without_mask_fills_nothing_in():
    tokens = [token for token in VOCAB if token != "[MASK]"]
    tokenizer = FastTokenizer({token: i for i, token in enumerate(tokens)})
    told = refusal(encode_masks, ["the [MASK] sat"], tokenizer, 32)
    assert "The vocabulary has no [MASK], so this model cannot" in told


def test_one_text_has_one_result_and_many_keep_their_order(model):
    texts = ["the cat " * count + "[MASK]" for count in (1, 9, 4, 2, 7, 3)] * 14
    together = model.fill_mask(texts)
    for text, found in zip(texts[:6], together, strict=False):
        (alone,) = model.fill_mask(text)
        assert [f.token for f in found[0]] == [f.token for f in alone]
        assert_near([f.probability for f in found[0]], [f.probability for f in alone], 1e-5)
    assert model.encode("the cat").shape == (12,)
    assert model.fill_mask([]) == [] and model.classify([]) == []
    assert model.encode([]).shape == (0, 12) and model.encode([]).dtype == np.float32


def test_classify(model, bert, weights):
    asked = (["the cat sat"], ["paris is in france", "a dog"], [""])
    found = model.classify(["the cat sat", ("paris is in france", "a dog"), ""])
    for result, texts in zip(found, asked, strict=True):
        pooled = bert.forward(*ids_of(*texts))["pooled_output"]
        logits = pooled @ weights["output_weights"].T + weights["output_bias"]
        expected = np.exp(log_softmax(logits))[0]
        assert list(result.probabilities) == ["no", "maybe", "yes"]
        assert_near(list(result.probabilities.values()), expected, 1e-5)
        assert result.label == ["no", "maybe", "yes"][expected.argmax()]
        assert result.probability == max(result.probabilities.values())
    assert model.classify(("the cat", "a dog")) == model.classify([("the cat", "a dog")])[0]


def test_a_regression_gives_numbers(tmp_path):
    weights = random_weights("regressor", seed=3)
    model = bert_tf.load(write_model(tmp_path, weights, []))
    assert model.heads[-1] == "regression"
    pooled = NumpyBert(CONFIG, weights).forward(*ids_of("the cat", "ran"))["pooled_output"]
    expected = pooled @ weights["output_weights"].T + weights["output_bias"]
    found = model.classify([("the cat", "ran"), "a"])
    assert isinstance(found[1], float)
    assert_near(found[0], expected[0, 0], 1e-5)


def test_encode_similarity_and_attention(model, bert):
    outputs = bert.forward(*ids_of("unaffable cats"))
    (layer,), (pooled,) = outputs["sequence_output"], outputs["pooled_output"]
    for pooling, expected in ((None, layer.mean(0)), ("cls", layer[0]), ("pooled", pooled)):
        assert_near(model.encode("unaffable cats", pooling=pooling), expected, 1e-5)
    texts = ["the cat", "paris is in france", ("the cat", "ran"), ""]
    vectors = model.encode(texts)
    units = model.encode(texts, normalize=True)
    assert_near(units, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    assert_near(model.similarity(texts, texts[::-1]), (units * units[::-1]).sum(1), 1e-5)
    assert model.similarity("a", "a") == pytest.approx(1.0, abs=1e-6)
    attention = model.attention(("unaffable", "the cat"))
    assert attention.tokens == "[CLS] un ##aff ##able [SEP] the cat [SEP]".split()
    assert attention.segment_ids.tolist() == [0] * 5 + [1] * 3
    expected = np.stack(bert.forward(*ids_of("unaffable", "the cat"))["attention_probs"], 1)[0]
    assert_near(attention.probabilities, expected, 1e-5)


def test_tag(tmp_path):
    weights = random_weights("tagger", seed=5)
    model = bert_tf.load(write_model(tmp_path, weights, TAGS))
    text = "Paris's  unaffable (cats) ran in France."
    pieces = FullTokenizer({token: i for i, token in enumerate(VOCAB)}).tokenize(text)
    assert len(pieces) == 14
    output = NumpyBert(CONFIG, weights).forward(*ids_of(text))["sequence_output"][0, 1:-1]
    logits = output @ weights["output_weights"].T + weights["output_bias"]
    probabilities = np.exp(log_softmax(logits))
    tags = [TAGS[i] for i in probabilities.argmax(1)]
    places = [(0, 5), (5, 6), (6, 7), (9, 11), (11, 14), (14, 18), (19, 20), (20, 23), (23, 24)]
    places += [(24, 25), (26, 29), (30, 32), (33, 39), (39, 40)]
    none = model.tag(text, "none")
    placed = [*zip(places, tags, strict=True)]
    expected = [(text[a:b], tag, a, b) for (a, b), tag in placed if tag != "O"]
    assert len(expected) > 5
    assert [(e.text, e.label, e.start, e.end) for e in none] == expected
    kept = [row.max() for row, tag in zip(probabilities, tags, strict=True) if tag != "O"]
    assert_near([entity.probability for entity in none], kept, 1e-5)
    assert model.tag(["", text])[0] == []
    long = model.tag("the cat sat on a mat in paris . " * 40)
    assert long and long[-1].end > 1000
    assert all(a.end <= b.start for a, b in zip(long, long[1:], strict=False))
    told = refusal(model.tag, "a", "last")
    assert re.search("one of word, first, average, max, simple, .*; received 'last'", told)


def test_answer_has_its_place(model):
    context = "The  cats sat on a mat (in Paris) ,\nthe dog ran in France."
    questions = ["is the dog in france", "a cat"]
    found = model.answer(questions, context, max_seq_length=24, doc_stride=5, top_k=6)
    for answers in found:
        assert len(answers) == 6
        assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
        for answer in answers:
            assert context[answer.start : answer.end] == answer.text
    assert model.answer(questions[1], context, max_seq_length=24, doc_stride=5) == found[1][0]
    never = model.answer(questions[0], context, null_score_diff_threshold=-1e6)
    assert (never.text, never.start, never.end) == ("", 0, 0)
    # One word piece of the context in each window.
    assert model.answer("a cat", "the dog ran", max_seq_length=6).text in ("the", "dog", "ran")
    always = model.answer(questions[0], context, null_score_diff_threshold=1e6)
    assert always.text
    assert model.answer([], []) == []


CONTEXTS = [
    "mat",
    " \u00a0the\u00a0cat \t\r\n sat\u2003on ",
    "\u200b a\u0301 b\u200b\u0301 \x07cat",
    "Caf\u00e9 cafe\u0301 \u0130stanbul \u1e9e",
    "\U0001f468\u200d\U0001f469\u2764\ufe0fcat\U0001f600",
    "\u732b\u5728\u57ab\u5b50\u4e0a\u3002cat\u732b\u3002 mat",
    "\u0e41\u0e21\u0e27\u0e19\u0e31\u0e48\u0e07 cat",
]


@pytest.mark.parametrize("threshold", [None, 0.0])
@pytest.mark.parametrize("method", ["run_squad", "transformers"])
def test_an_answer_is_always_a_part_of_its_context(model, method, threshold):
    options = {"method": method, "null_score_diff_threshold": threshold}
    answers = model.answer(["a cat"] * len(CONTEXTS), CONTEXTS, top_k=50, doc_stride=5, **options)
    for context, found in zip(CONTEXTS, answers, strict=True):
        assert found
        for answer in found:
            assert context[answer.start : answer.end] == answer.text
            assert answer.text or (answer.start, answer.end) == (0, 0)


@pytest.mark.parametrize("method, places", [("run_squad", 3), ("transformers", 1)])
def test_without_a_candidate_the_answer_is_empty(model, method, places, warnings):
    options = {"doc_stride": 5, "null_score_diff_threshold": None, "max_answer_length": 30}
    options |= {"top_k": 1, "max_seq_length": 32, "method": method}
    searches, _ = make_searches(["a cat"], ["empty cat mat"], model.tokenizer, **options)
    (row,) = searches[0].rows
    # The best positions are in the padding, or the answer would end before it starts.
    logits = np.full((2, len(row["input_ids"])), -1e4)
    logits[:, -20:] = 1e4
    if method == "transformers":
        first = row["input_ids"].index(VOCAB.index("[SEP]")) + places
        logits[:] = -1e4
        logits[0, first + 1] = logits[1, first] = 1e4
    rows = [{"start_logits": logits[0], "end_logits": logits[1]}]
    ((answer,),) = find_all(searches, rows, model.tokenizer)
    assert (answer.text, answer.start, answer.end, answer.log_odds) == ("", 0, 0, 0.0)
    assert answer.score == pytest.approx(0.0, abs=1e-6)
    assert warnings == [
        "1 of 1 questions have no answer: the likeliest starts and ends are not in the context. If"
        " many have none, the model is not trained to answer questions. Later ones are not reported"
    ]


@pytest.mark.parametrize("method", ["run_squad", "transformers"])
@pytest.mark.parametrize("threshold", [None, 0.0])
def test_log_odds_compare_answers_with_no_answer(model, bert, weights, method, threshold):
    asked = [("a cat", "the dog ran in france"), ("is paris", "the cat sat , a mat"), ("on", "cat")]
    options = {"method": method, "null_score_diff_threshold": threshold, "max_seq_length": 20}
    found = model.answer(*map(list, zip(*asked, strict=True)), top_k=3, doc_stride=5, **options)
    for texts, answers in zip(asked, found, strict=True):
        ids, mask, segments = ids_of(*texts)
        output = bert.forward(ids, mask, segments)["sequence_output"][0]
        logits = output @ weights["cls/squad/output_weights"].T + weights["cls/squad/output_bias"]
        begin = 1 + segments[0].tolist().index(1)  # words of these contexts are one piece each
        words = texts[1].split()
        for answer in answers:
            if not answer.text:
                assert answer.log_odds == 0
                continue
            first = len(texts[1][: answer.start].split())
            last = first + len(answer.text.split()) - 1
            assert words[first : last + 1] == answer.text.split()
            expected = logits[begin - 1 + first, 0] + logits[begin - 1 + last, 1] - logits[0].sum()
            assert answer.log_odds == pytest.approx(expected, abs=1e-4)
    if threshold is not None and method == "run_squad":
        assert all(bool(answers[0].text) == (answers[0].log_odds > 0) for answers in found)


def test_log_odds_of_several_windows_are_null_odds_with_the_opposite_sign(model):
    """The score of no answer is the lowest of all windows."""
    contexts = ["the cat sat on a mat , the dog ran in paris . " * 2, "a dog , the cat . " * 5]
    asked, options = (["is a dog"] * 2, contexts), {"max_seq_length": 16, "doc_stride": 3}
    for answer, *texts in zip(model.answer(*asked, **options), *asked, strict=True):
        for threshold in (-answer.log_odds - 1e-3, -answer.log_odds + 1e-3):
            chosen = model.answer(*texts, null_score_diff_threshold=threshold, **options)
            assert bool(chosen.text) == (threshold > -answer.log_odds)


def test_windows_of_a_context_are_no_longer_than_load_says(model, folder):
    asked = ("a cat", "the dog ran on a mat in france .")
    cut = bert_tf.load(folder, max_seq_length=9).answer(*asked, doc_stride=3, top_k=7)
    assert cut == model.answer(*asked, doc_stride=3, top_k=7, max_seq_length=9)
    assert cut != model.answer(*asked, doc_stride=3, top_k=7)


NUMBER_OR_NONE = "null_score_diff_threshold must be a number, or None, for SQuAD 1.1; received '0'"
# Method, its arguments and options; which collections are texts is tested in arguments_test.
REFUSED = [
    (("fill_mask", "none"), {}, r"texts\[0\] must have a \[MASK\]; received 'none'"),
    (("fill_mask", ["[MASK]", ""]), {}, r"texts\[1\] must have a \[MASK\]; received ''"),
    (("fill_mask", "a " * 31 + "[MASK]"), {}, "the first 30 word pieces, .*number 32"),
    (("fill_mask", "[MASK]"), {"top_k": 0}, "top_k must be from 1 to 27, the size of"),
    (("fill_mask", "[MASK]"), {"top_k": "3"}, "top_k must be a whole numb.*'3' .str.$"),
    (("fill_mask", [("[MASK]", "b")]), {}, r"texts\[0\] must be a text \(str\)"),
    (("encode", None), {}, "texts must be a text or a list of texts; received None"),
    (("encode", "a"), {"pooling": "sum"}, "weightedmean, lasttoken; received 'sum'"),
    (("encode", "a"), {"pooling": ["cls"]}, "pooling must be a string, or None.*'cls'. .li"),
    (("encode", "a"), {"pooling": ""}, "pooling must be one of mean, .*; received ''"),
    (("encode", "a"), {"normalize": "False"}, "normalize must be True or Fal.*'False' .str"),
    (("classify", ("a", "b", "a")), {}, "write several texts as a list: .a, b.$"),
    (("tag", "a"), {}, "tag needs a model with the head that run_tagging.py trains"),
    (("similarity", ["a"], ["a", "b"]), {}, "equal length; received 1 and 2 texts. .* repeat it: "),
    (("similarity", ["a"], np.array("a")), {}, "texts_b must be a text or a list"),
    (("attention", ["a", "b"]), {}, "one text, or one pair of texts; received a list"),
    (("attention", {"a"}), {}, "text must be a text or a list of texts; .*set"),
    (("answer", "q", ("a", "b")), {}, r"received 1 questions and 2 contexts.*\[question\] \* len"),
    (("answer", "q", " \n"), {}, r"context\[0\] must have a word; received ' \\n'"),
    (("answer", "q", "a"), {"method": "x"}, "one of run_squad, transformers; received 'x'"),
    (("answer", "q", "a"), {"doc_stride": 0}, "^doc_stride must be from 1 to"),
    (("answer", "q", "a"), {"doc_stride": 2.5}, "doc_stride must be a whole num.*2.5 .float"),
    (("answer", "q", "a"), {"top_k": 0}, "^top_k must be from 1 to .* received 0"),
    (("answer", "q", "a"), {"top_k": 2.0}, "top_k must be .* or None, for the b.*2.0 .float"),
    (("answer", "the cat", "a"), {"max_seq_length": 5}, "than 5, which a question .2 word piec"),
    (("answer", "q", "a"), {"max_seq_length": "64"}, "max_seq_length must be a whole num"),
    (("answer", "a " * 20, "a"), {"method": "transformers"}, r"than doc_stride \(128\) word"),
    (("answer", "q", "a"), {"max_answer_length": True}, "max_answer_length must be a whole"),
    (("answer", "q", "a"), {"null_score_diff_threshold": "0"}, NUMBER_OR_NONE),
    (("answer", [b"q"], "a"), {}, r"question\[0\] must be a text \(str\); received b'q' .byt"),
]


def test_bad_input_is_refused_in_one_line(model):
    for (method, *arguments), options, message in REFUSED:
        told = refusal(getattr(model, method), *arguments, **options)
        assert re.search(message, told) and "\n" not in told and len(told) <= 500


CUT = (
    "have more than 32 word pieces with [CLS] and [SEP], and are truncated. To use the whole text,"
    " split it; a loaded model's classify, encode and rank do so with long_text='mean'."
    " Later ones are not reported"
)


def test_long_questions_and_texts_with_masks_are_cut(model, folder, warnings):
    model.answer(["the cat " * 20, "a"], "a dog ran")
    model.fill_mask(["a [MASK] " + "dog " * 40, "[MASK]"], top_k=1)
    assert warnings == [
        "1 of 2 questions have more than 16 word pieces, and are truncated. Later ones are not"
        " reported",
        f"1 of 2 texts {CUT}",
    ]
    for _ in range(2):
        model.answer(["the cat " * 30, "a"], "a dog ran")
        model.fill_mask("a [MASK] " + "dog " * 50)
        model.classify(["dog " * 50] * 3)
        model.encode("dog " * 60)
    assert len(warnings) == 2
    features = bert_tf.TextFeatures(folder)  # an export's log must not fill up either
    for texts in (["dog " * 50], ["a", "cat " * 60]):
        features(texts)
    missing, *cut = warnings[2:]
    assert missing.startswith(f"{folder} does not say which --max_seq_length the model was")
    assert cut == [f"1 of 1 texts {CUT}"]


def test_long_texts_are_cut(model, warnings):
    long = "the cat " * 50_000
    assert model.encode([long, "a"]).shape == (2, 12)
    assert_near(model.encode(long), model.encode("the cat " * 15), 1e-6)
    assert warnings[0] == f"1 of 2 texts {CUT}"
    assert len(model.classify([long, (long, long)])) == 2
    assert model.answer("a", "the cat ran . " * 300).text
