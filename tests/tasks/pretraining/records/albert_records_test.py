"""ALBERT's records: golden digests, n-grams and permuted tokens, what the flags refuse."""

import itertools
import os
import random
from pathlib import Path

import numpy as np
import pytest

from bert_tf.datasets.text_files import read_files
from bert_tf.tasks.pretraining.records import data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import NgramMasks
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from tests.support.golden import golden_cases
from tests.support.sentence_piece_model import write_model

# Whether a word starts with the piece.
STARTS = {"▁the": True, "▁cat": True, ",": True, "é": True, "s": False, "ing": False, "e,": False}
# The same of pieces that the model does not know.
UNKNOWN = {"<unk> a start": True, "<unk> continued": False}
SPECIAL = ("[CLS]", "[SEP]", "[MASK]")


def free_places(ngrams, lengths, wanted, taken):
    """Yields the places of n-grams that are free and fit, longest first, until enough are."""
    found = 0
    for choices in ngrams:
        if found >= wanted:
            return
        longest = next(lengths)
        fitting = [ngram for ngram in choices[:longest] if found + len(ngram) <= wanted]
        if fitting and taken.isdisjoint(fitting[-1]):
            taken.update(fitting[-1])
            found += len(fitting[-1])
            yield from fitting[-1]


def reference(tokens, names, settings, rng, numpy_rng):
    """Returns tokens with masks, (place, label) of each prediction, and where words start.

    `names` is the vocabulary; `numpy_rng` draws the lengths of n-grams.
    """
    words, starts = [], [token in SPECIAL or {**STARTS, **UNKNOWN}[token] for token in tokens]
    for place, token in enumerate(tokens):
        if settings.do_whole_word_mask and words and not starts[place]:
            words[-1].append(place)
        elif token not in SPECIAL:
            words.append([place])
    if not settings.masked_lm_prob:
        return list(tokens), [], starts
    wanted = max(1, round(len(tokens) * settings.masked_lm_prob))
    wanted = min(wanted, settings.max_predictions_per_seq)
    numbers = list(range(1, settings.ngram + 1))
    odds = np.array([1 / n for n in numbers])
    odds = odds if settings.favor_shorter_ngram else odds[::-1]
    ngrams = [[sum(words[i : i + n], []) for n in numbers] for i in range(len(words))]
    taken = set()

    def places():
        lengths = (numpy_rng.choice(numbers, p=odds / odds.sum()) for _ in ngrams)
        return free_places(ngrams, lengths, wanted, taken)

    output, predictions = list(tokens), []
    rng.shuffle(ngrams)
    for place in places():
        if rng.random() < 0.8:
            output[place] = "[MASK]"
        elif rng.random() >= 0.5:
            output[place] = names[rng.randint(0, len(names) - 1)]
        predictions.append((place, tokens[place]))
    rng.shuffle(ngrams)
    if settings.do_permutation:
        moved = sorted(places())
        sources = list(moved)
        rng.shuffle(sources)
        for place, token in zip(moved, [output[source] for source in sources], strict=True):
            predictions.append((place, output[place]))
            output[place] = token
    return output, sorted(predictions), starts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    pieces = [*SPECIAL, *STARTS]
    return SentencePieceTokenizer(write_model(tmp_path_factory.mktemp("m") / "a.model", pieces))


@pytest.mark.parametrize(
    ("permutation", "favors", "whole"), list(itertools.product([False, True], repeat=3))
)
def test_masks_are_the_originals(permutation, favors, whole, tokenizer):
    (alias,) = tokenizer.aliases
    ids = {**tokenizer.vocab, "<unk> a start": tokenizer.unknown_id, "<unk> continued": alias}
    names, written = list(tokenizer.vocab), {**ids, "<unk> continued": tokenizer.unknown_id}
    num_moved = num_others = 0
    for case in range(30):
        choice = random.Random(case)
        settings = PretrainingDataSettings(
            **{"input_file": "a", "output_file": "b", "vocab_file": "c", "objective": "mlm_sop"},
            ngram=choice.randint(1, 5),
            favor_shorter_ngram=favors,
            do_permutation=permutation,
            do_whole_word_mask=whole,
            masked_lm_prob=choice.choice([0.0, 0.15, 0.15, 0.4]),
            max_predictions_per_seq=choice.randint(1, 12),
        )
        first, second = (
            choice.choices([*STARTS, *UNKNOWN], k=choice.randint(1, 25)) for _ in range(2)
        )
        tokens = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
        padding = [0] * choice.randint(0, 3)
        instance = {
            "input_ids": [ids[token] for token in tokens] + padding,
            "input_mask": [1] * len(tokens) + padding,
        }
        positions = [i for i, token in enumerate(tokens) if token not in SPECIAL]
        rng = random.Random(case)
        NgramMasks(tokenizer, settings, rng, seed=case).mask(instance, positions)

        expected_rng, numpy_rng = random.Random(case), np.random.RandomState(case)
        output, predictions, starts = reference(tokens, names, settings, expected_rng, numpy_rng)
        places = settings.max_predictions_per_seq * (1 + permutation)
        unused = [0] * (places - len(predictions))
        assert instance["input_ids"] == [written[token] for token in output] + padding
        assert instance["token_boundary"] == [int(start) for start in starts] + padding
        assert instance["masked_lm_positions"] == [place for place, _ in predictions] + unused
        assert instance["masked_lm_ids"] == [written[label] for _, label in predictions] + unused
        assert instance["masked_lm_weights"] == [1.0] * len(predictions) + unused
        assert rng.getstate() == expected_rng.getstate()
        masked = [place for place, _ in predictions if output[place] == "[MASK]"]
        num_moved += len(predictions) > settings.max_predictions_per_seq
        num_others += len(masked) < len(predictions)
    assert num_others > 5 and (num_moved > 5) == permutation


# The original's defaults, where they differ from those of BERT's program.
DEFAULTS = {
    "max_seq_length": 512,
    "dupe_factor": 40,
    "do_whole_word_mask": True,
    "do_lower_case": True,
}


class UnknownIs0(dict):
    """A vocabulary of a model without [CLS], [SEP] and [MASK]: the original takes <unk>."""

    def __missing__(self, token):
        return 0


@pytest.mark.parametrize("case", golden_cases("albert/records/golden.json"))
def test_digests_of_the_original(tmp_path, case, monkeypatch):
    golden = Path(os.environ["BERT_TF_GOLDEN"])
    monkeypatch.syspath_prepend(str(golden))
    import records_digest

    model = str(golden / "albert/text" / case["spm_model"])
    settings = PretrainingDataSettings(
        input_file="none",
        output_file="none",
        vocab_file=model,
        objective="mlm_sop",
        **{**DEFAULTS, **case["flags"]},
    )
    tokenizer = SentencePieceTokenizer(model, settings.do_lower_case)
    tokenizer.vocab = UnknownIs0(tokenizer.vocab)
    outputs = [str(tmp_path / f"{i}.tfrecord") for i in range(len(case["digest"]))]
    files = [str(golden / "albert/records" / name) for name in case["inputs"]]
    lines = (lines for _, lines in read_files(files, "input_file", settings.text_field))
    with data.record_writer(settings, tokenizer, outputs, settings.random_seed) as write:
        write(data.tokenized(lines, tokenizer, settings))
    assert [records_digest.digest(path) for path in outputs] == case["digest"]


def test_a_line_of_combining_marks_ends_a_document(tmp_path):
    pieces = ["[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "▁sat"]
    model = write_model(tmp_path / "small.model", pieces)
    records = []
    for name, line in (("empty", ""), ("marks", "\u0301\u0308"), ("control", "\x07")):
        text = tmp_path / name
        text.write_text("\n".join(["the cat sat", "cat the", line, "sat the", "the the"]))
        settings = PretrainingDataSettings(
            input_file=str(text),
            output_file=f"{text}.tfrecord",
            vocab_file=model,
            objective="mlm_sop",
            max_seq_length=16,
        )
        data.create_pretraining_data(settings)
        records.append(Path(settings.output_file).read_bytes())
    assert records[0] == records[1] != records[2]
