"""Records of ELECTRA, RoBERTa and ALBERT, against independent statements and golden digests."""

import itertools
import os
import pathlib
import random
from pathlib import Path

import numpy as np
import pytest

from bert_tf import tokenization
from bert_tf.datasets.text_files import read_files
from bert_tf.tasks.pretraining.records import data, shards
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import NgramMasks
from bert_tf.tasks.pretraining.records.shards import create_shards
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from tests.support.golden import digests, golden_cases
from tests.support.record_files import read_records
from tests.support.refusals import refuses
from tests.support.sentence_piece_model import write_model
from tests.support.text_in_shards import TEXTS, corpus, settings, write_text


@pytest.mark.parametrize("case", golden_cases("electra/records/golden.json"))
def test_digests_of_the_original(tmp_path, case):
    folder = pathlib.Path(os.environ["BERT_TF_GOLDEN"])
    (tmp_path / "vocab.txt").symlink_to(folder.parent / "released" / "vocab_uncased.txt")
    options = dict(case["settings"])
    if not options.pop("strip_accents"):
        (tmp_path / "tokenizer_config.json").write_text('{"strip_accents": false}')
    outputs = [str(tmp_path / f"out{number}") for number in range(case["num_out_files"])]
    settings = PretrainingDataSettings(
        input_file=",".join(str(folder / "electra/records" / x) for x in case["inputs"]),
        output_file=",".join(outputs),
        vocab_file=str(tmp_path / "vocab.txt"),
        objective="electra",
        random_seed=case["random_seed"],
        **options,
    )
    create_pretraining_data(settings)
    assert digests(outputs) == case["digest"]
    assert [len(read_records(path)) for path in outputs] == case["records"]


def oracle(documents: list[str], folder, length: int, seed: int) -> list[dict[str, list[int]]]:
    """Returns the records of documents, each a text with a sentence on each line."""
    tokenizer = tokenization.FullTokenizer(f"{folder}/vocab.txt", drop_category_c=True)
    rng = random.Random(seed)
    target, found = length, []

    def make(sentences):
        nonlocal target
        limit = 10**5 if rng.random() < 0.1 else (target - 3) // 2
        first, second = [], []
        for ids in sentences:
            fits = not first or len(first) + len(ids) < limit
            if fits or not second and len(first) < limit and rng.random() < 0.5:
                first += ids
            else:
                second += ids
        first = [2, *first[: length - 2], 3]
        second = second[: max(0, length - len(first) - 1)]
        second += [3] if second else []
        row = {
            "input_ids": first + second,
            "input_mask": [1] * len(first + second),
            "segment_ids": [0] * len(first) + [1] * len(second),
        }
        found.append({name: x + [0] * (length - len(x)) for name, x in row.items()})
        target = rng.randint(5, length) if rng.random() < 0.05 else length

    for document in documents:
        now = []
        for line in document.split("\n"):
            ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line))
            now += [ids] if ids else []
            if sum(map(len, now)) >= target:
                make(now)
                now = []
        if now:
            make(now)
    return found


@pytest.mark.parametrize(("length", "seed"), [(5, 8), (13, 9), (24, 10), (64, 11)])
@pytest.mark.parametrize("blanks", [True, False])
def test_records_equal_an_independent_statement(tmp_path, length, seed, blanks):
    text = write_text(tmp_path)
    (text / "b/x.txt").write_text(corpus(*TEXTS["b/x.txt"]).replace("bread", "br\ue000ead\u0378"))
    made = settings(text, tmp_path / "out", **_options(length, seed, blanks))
    assert create_pretraining_data(made) == len(read_records(made.output_file))
    files = [corpus(*TEXTS[name]) for name in sorted(TEXTS)]
    documents = [x for file in files for x in file.split("\n\n \n")] if blanks else files
    assert read_records(made.output_file) == oracle(documents, tmp_path, length, seed)


def _options(length, seed, blanks):
    return {
        **{"objective": "electra", "blanks_separate_docs": blanks, "num_shards": None},
        **{"max_seq_length": length, "random_seed": seed, "dupe_factor": 1},
    }


@pytest.mark.parametrize("blanks", [True, False])
def test_a_shard_has_the_records_of_its_documents(tmp_path, blanks):
    text = write_text(tmp_path)
    create_shards(settings(text, tmp_path / "out", **_options(24, 1, blanks) | {"num_shards": 2}))
    documents = []
    for name, numbers in TEXTS.items():
        parts = corpus(*numbers).split("\n\n \n") if blanks else [corpus(*numbers)]
        documents += [(shards.document_hash(f"{name}\t{i}", 1), x) for i, x in enumerate(parts)]
    for shard in range(2):
        mine = [x for value, x in sorted(documents) if value % 2 == shard]
        found = read_records(f"{tmp_path}/out/r-{shard:05}-of-00002.tfrecord")
        assert found == oracle(mine, tmp_path, 24, data.shard_seed(shard, 1))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dupe_factor": 3}, "--dupe_factor=3 does not fit --objective=electra: masks are drawn"),
        ({"do_whole_word_mask": True}, r"--do_whole_word_mask does not fit --objective=electra"),
        ({"masked_lm_prob": 0.2}, "--masked_lm_prob=0.2 does not fit .*run_pretraining.py --mask_"),
        ({"short_seq_prob": 0.2}, r"--short_seq_prob=0.2 needs --objective=mlm_nsp or mlm_sop"),
        ({"pack": True}, r"--pack excludes --objective=electra, since its sequences are full exc"),
        ({"objective": "mlm", "blanks_separate_docs": False}, r"--noblanks_separate_docs needs --"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, more, message):
    refuses(message, settings, tmp_path, tmp_path / "out", **_options(24, 5, True) | more)


def test_lost_tokens_are_the_originals(tmp_path, warnings):
    text = write_text(tmp_path)
    create_pretraining_data(settings(text, tmp_path / "out", **_options(9, 5, True)))
    (told,) = [line for line in warnings if "are in no record" in line]
    assert "what exceeds --max_seq_length in the last sentence of a sequence, as in the ori" in told
    assert "dupe_factor" not in told and "--objective=mlm" not in told


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
    options |= {"input_file": f"{folder}/text.txt", "vocab_file": f"{folder}/vocab.txt"}
    options |= {"output_file": f"{folder}/r.tfrecord", **changes}
    create_pretraining_data(PretrainingDataSettings(**options))
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
    tokens = [[VOCAB[i] for i in x["input_ids"][: sum(x["input_mask"])]] for x in records]
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
    names = {"input_ids", "input_mask", "segment_ids", "word_ids", "next_sentence_labels"}
    for record in records:
        assert record.keys() == names and VOCAB.index("[MASK]") not in record["input_ids"]
        special = [i for i, word in enumerate(record["word_ids"]) if not word]
        assert {record["input_ids"][i] for i in special} <= {0, 2, 3}
    assert {record["next_sentence_labels"][0] for record in records} == {0, 1}


def test_too_few_predictions_are_warned_of(documents, tmp_path, warnings):
    create(tmp_path, masked_lm_prob=0.3, objective="mlm")
    assert warnings == [
        "--max_predictions_per_seq=4 is too small for --masked_lm_prob=0.3 of --max_seq_length=19"
        " tokens (6); --max_predictions_per_seq=6 would be enough"
    ]


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
ALBERT_DEFAULTS = {
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
def test_digests_of_albert_s_records(tmp_path, case):
    golden = Path(os.environ["BERT_TF_GOLDEN"])
    model = str(golden / "albert/text" / case["spm_model"])
    settings = PretrainingDataSettings(
        input_file="none",
        output_file="none",
        vocab_file=model,
        objective="mlm_sop",
        **{**ALBERT_DEFAULTS, **case["flags"]},
    )
    tokenizer = SentencePieceTokenizer(model, settings.do_lower_case)
    tokenizer.vocab = UnknownIs0(tokenizer.vocab)
    outputs = [str(tmp_path / f"{i}.tfrecord") for i in range(len(case["digest"]))]
    files = [str(golden / "albert/records" / name) for name in case["inputs"]]
    lines = (lines for _, lines in read_files(files, "input_file", settings.text_field))
    with data.record_writer(settings, tokenizer, outputs, settings.random_seed) as write:
        write(data.tokenized(lines, tokenizer, settings))
    assert digests(outputs) == case["digest"]


def test_a_line_of_combining_marks_ends_a_document(tmp_path):
    pieces = ["[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "▁sat"]
    files = {"vocab_file": write_model(tmp_path / "small.model", pieces)}
    records = []
    for line in ("", "\u0301\u0308", "\x07"):
        (tmp_path / "text").write_text(f"the cat sat\ncat the\n{line}\nsat the\nthe the")
        files |= {"input_file": f"{tmp_path}/text", "output_file": f"{tmp_path}/out"}
        settings = PretrainingDataSettings(**files, objective="mlm_sop", max_seq_length=16)
        data.create_pretraining_data(settings)
        records.append((tmp_path / "out").read_bytes())
    assert records[0] == records[1] != records[2]
