"""Tests of create_pretraining_data.py: records, errors, memory."""

import dataclasses
import json
import os
import pathlib
import random
import sys

import pytest
import tensorflow as tf

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.files import record_checks
from bert_tf.tasks.pretraining import schema
from bert_tf.tasks.pretraining.records import data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.shards import create_shards
from tests.support import forked_programs
from tests.support.byte_pair_files import write_vocabulary
from tests.support.golden import digests, golden_cases
from tests.support.memory import peak_memory
from tests.support.pretraining_runs import ROOT, run
from tests.support.record_files import read_records
from tests.support.refusals import refuses

PROGRAM = "create_pretraining_data.py"
WORDS = "river bread stone walk ##ing ##ed ##s light moon see the a of and . , un ##like ##ly"
WORDS += " ##able"
VOCAB = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "Bread"]

# tests/original_flags_test.py compares them with the original's.
DEFAULTS = {field.name: field.default for field in dataclasses.fields(PretrainingDataSettings)}


@pytest.fixture
def vocab_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n")
    return str(path)


def _corpus(seed, num_documents=7):
    rng = random.Random(seed)
    words = ["river", "bread", "Bread", "walking", "walked", "moons", "the", "unlikely", "a", "of"]
    words += ["unlikeable", "unknown", "stones,", "light.", "\x07", "and"]
    lines = []
    for _ in range(num_documents):
        for _ in range(rng.randint(1, 9)):
            lines.append(" ".join(rng.choices(words, k=rng.randint(1, 25))))
        lines.extend([""] * rng.choice([0, 1, 1, 1, 2]))
    return "\n".join(lines) + rng.choice(["", "\n", "\n\n"])


def _create(**settings):
    return data.create_pretraining_data(PretrainingDataSettings(**settings))


def _oracle_documents(files, tokenizer):
    result = [[]]
    for path in files:
        with tf.io.gfile.GFile(str(path), "r") as reader:
            while line := reader.readline():
                if not line.strip():
                    result.append([])
                elif tokens := tokenizer.tokenize(line.strip()):
                    result[-1].append(tokens)
    return [document for document in result if document]


def _oracle(files, vocab_file, flags):
    """Returns the records that the original makes: a list of dicts, in their final order."""
    tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case=flags["do_lower_case"])
    corpus = _oracle_documents(files, tokenizer)
    rng = random.Random(flags["random_seed"])
    rng.shuffle(corpus)
    result = []
    for _ in range(flags["dupe_factor"]):
        for number in range(len(corpus)):
            result += _oracle_instances(corpus, number, tokenizer, flags, rng)
    rng.shuffle(result)
    return result


def _oracle_instances(corpus, number, tokenizer, flags, rng):
    result = []
    room = flags["max_seq_length"] - 3
    target = rng.randint(2, room) if rng.random() < flags["short_seq_prob"] else room
    waiting = list(corpus[number])
    while waiting:
        chunk = []
        while waiting and sum(map(len, chunk)) < target:
            chunk.append(waiting.pop(0))
        cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        a = sum(chunk[:cut], [])
        is_random = len(chunk) == 1 or rng.random() < 0.5
        if is_random:
            waiting = chunk[cut:] + waiting
            for _ in range(10):
                other = rng.randint(0, len(corpus) - 1)
                if other != number:
                    break
            b = []
            for sentence in corpus[other][rng.randint(0, len(corpus[other]) - 1) :]:
                b = b + sentence
                if len(b) >= target - len(a):
                    break
        else:
            b = sum(chunk[cut:], [])
        a, b = list(a), list(b)
        while len(a) + len(b) > room:
            loser = a if len(a) > len(b) else b
            loser.pop(0 if rng.random() < 0.5 else -1)
        result.append(_oracle_record(a, b, is_random, tokenizer, flags, rng))
    return result


def _oracle_record(a, b, is_random, tokenizer, flags, rng):
    tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    groups = []
    for place, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if flags["do_whole_word_mask"] and groups and token.startswith("##"):
            groups[-1].append(place)
        else:
            groups.append([place])
    rng.shuffle(groups)
    most = flags["max_predictions_per_seq"]
    wanted = min(most, max(1, int(round(len(tokens) * flags["masked_lm_prob"]))))
    masked = list(tokens)
    places = []
    for group in groups:
        if len(places) + len(group) > wanted:
            continue
        for place in group:
            places.append(place)
            if rng.random() < 0.8:
                masked[place] = "[MASK]"
            elif rng.random() >= 0.5:
                words = list(tokenizer.vocab)
                masked[place] = words[rng.randint(0, len(words) - 1)]
    places.sort()

    record = {
        "input_ids": tokenizer.convert_tokens_to_ids(masked),
        "input_mask": [1] * len(tokens),
        "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
        "masked_lm_positions": places,
        "masked_lm_ids": tokenizer.convert_tokens_to_ids([tokens[place] for place in places]),
        "masked_lm_weights": [1.0] * len(places),
    }
    for name, values in record.items():
        length = most if name.startswith("masked_lm") else flags["max_seq_length"]
        record[name] = values + [0] * (length - len(values))
    return {**record, "next_sentence_labels": [int(is_random)]}


@pytest.mark.parametrize("seed", range(12))
def test_records_equal_an_independent_statement_of_the_algorithm(tmp_path, vocab_file, seed):
    rng = random.Random(seed)
    flags = dict(
        do_lower_case=rng.choice([True, False]),
        do_whole_word_mask=rng.choice([True, False]),
        max_seq_length=rng.choice([5, 6, 17, 40, 64, 131]),
        max_predictions_per_seq=rng.choice([1, 3, 8, 30]),
        random_seed=rng.randint(0, 999),
        dupe_factor=rng.randint(1, 4),
        masked_lm_prob=rng.choice([0.0, 0.1, 0.15, 0.5, 1.0]),
        short_seq_prob=rng.choice([0.0, 0.1, 0.7, 1.0]),
    )
    inputs = [tmp_path / f"text{number}.txt" for number in range(rng.randint(1, 3))]
    for number, path in enumerate(inputs):
        path.write_text(_corpus(100 * seed + number))
    outputs = [tmp_path / f"out{number}" for number in range(rng.randint(1, 3))]
    count = _create(
        input_file=",".join(map(str, inputs)),
        output_file=",".join(map(str, outputs)),
        vocab_file=vocab_file,
        **flags,
    )
    expected = _oracle(inputs, vocab_file, flags)
    assert count == len(expected) > 5
    for number, path in enumerate(outputs):
        assert read_records(path) == expected[number :: len(outputs)]


def test_the_program_with_defaults(tmp_path, vocab_file):
    """All defaults, several files by glob, as a user runs it; also all that it can log."""
    for number in range(2):
        (tmp_path / f"text{number}.txt").write_text(_corpus(number))
    outputs = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    log = run(
        f"--input_file={tmp_path}/text*.txt",
        f"--output_file={outputs[0]},{outputs[1]}",
        f"--vocab_file={vocab_file}",
        "--verbosity=1",
        program=PROGRAM,
    )
    files = [f"{tmp_path}/text{number}.txt" for number in range(2)]  # sorted
    expected = _oracle(files, vocab_file, DEFAULTS)
    assert [read_records(path) for path in outputs] == [expected[0::2], expected[1::2]]
    paths = list(map(str, outputs))
    record_checks.check_files(paths, schema.pretraining_schema(128, 20), "input_file")
    assert log.count("*** Example ***") == 20
    first = expected[0]
    tokens = [VOCAB[id] for id in first["input_ids"][: sum(first["input_mask"])]]
    assert f"tokens: {' '.join(tokens)}\n" in log
    weights = " ".join(str(float(weight)) for weight in first["masked_lm_weights"])
    assert f"masked_lm_weights: {weights}\n" in log
    assert f"Wrote {len(expected)} total instances" in log
    # Nothing else is left.
    assert len(list(tmp_path.iterdir())) == 7  # with two manifests


@pytest.mark.parametrize(
    "case", golden_cases("programs/golden.json", program="create_pretraining_data")
)
def test_digests_of_the_original(tmp_path, case):
    folder = pathlib.Path(os.environ["BERT_TF_GOLDEN"])
    outputs = [str(tmp_path / f"out{number}") for number in range(len(case["digest"]))]
    _create(
        input_file=",".join(str(folder / "programs" / name) for name in case["inputs"]),
        output_file=",".join(outputs),
        vocab_file=str(folder.parent / "released" / "vocab_uncased.txt"),
        **case["flags"],
    )
    assert digests(outputs) == case["digest"]


WRONG = [
    ({"max_predictions_per_seq": 0}, "--max_predictions_per_seq=0 must be between 1 and 1048576"),
    ({"dupe_factor": 0}, "--dupe_factor=0 must be at least 1"),
    ({"short_seq_prob": -0.1}, "--short_seq_prob=-0.1 must be .* between 0 and 1"),
    ({"input_file": "no"}, "--input_file: no does not exist"),
    ({"input_file": "*.txt.gz"}, r"--input_file: \*.txt.gz matches no file"),
    ({"input_file": "empty"}, "--input_file: empty is empty"),
    ({"input_file": "blank"}, "The text of --input_file=blank must have tokens; there are none"),
    ({"input_file": "latin"}, "--input_file: latin, line 4, is not UTF-8 .*decompress the file"),
    ({"input_file": "text,latin"}, "--input_file: latin, line 4, is not UTF-8"),
    ({"input_file": "nosuch://b/x"}, "--input_file=nosuch://b/x: .* does not support nosuch://"),
    ({"input_file": None}, ".*exactly one of --input_file and --tfds"),
    ({"tfds": "b"}, ".*exactly one of --input_file and --tfds"),
    ({"output_file": "no/out"}, "--output_file=no/out cannot be written"),
    ({"output_file": "nosuch://b/x"}, "--output_file=nosuch://b/x: .* does not support nosuch://"),
    ({"output_file": "new,"}, "--output_file must name a file; received an empty name"),
    ({"spill_dir": "no"}, ".*temporary file in no: .*--spill_dir"),
    ({"vocab_file": "few"}, r".*few.*\[SEP\].*\[MASK\]"),
    # What is read is not written.
    ({"output_file": "new,text"}, "--output_file=text must not be a file of --input_file, which"),
    ({"output_file": "new,vocab.txt"}, "--output_file=vocab.txt must not be a file of --vocab_fi"),
    ({"output_file": "new,here/new"}, "--output_file=here/new must not be named twice"),
]


@pytest.mark.parametrize("changes, message", WRONG)
def test_wrong_settings_write_nothing(tmp_path, monkeypatch, vocab_file, changes, message):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("text", "other")):
        (tmp_path / name).write_text(_corpus(seed))
    (tmp_path / "empty").write_text("")
    (tmp_path / "blank").write_text("\n \n\x07\n")
    (tmp_path / "latin").write_bytes(b"river\n\nbread\ncaf\xe9 bread\nmoon\n")
    (tmp_path / "few").write_text("[PAD]\n[UNK]\n[CLS]\nriver\n")
    (tmp_path / "here").symlink_to(".")
    paths = dict(input_file="other,te*", output_file="new", vocab_file="vocab.txt")

    def contents():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    before = contents()
    refuses(f"^{message}", _create, **{**paths, **changes})
    assert contents() == before


@pytest.mark.parametrize("source", [{"input_file": "text"}, {"tfds": "wiki40b/en:1.3.0"}])
@pytest.mark.parametrize("output", ["vocab.json", "merges.txt"])
def test_both_files_of_a_byte_level_bpe_are_read(tmp_path, monkeypatch, source, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("a a\na\n")
    write_vocabulary(tmp_path, ["h e"])
    content = (tmp_path / output).read_text()
    with pytest.raises(UserError, match=f"^--output_file={output} must not be a file of --vocab_f"):
        _create(output_file=output, vocab_file="vocab.json", do_lower_case=False, **source)
    assert (tmp_path / output).read_text() == content


@pytest.mark.parametrize("where", ["--spill_dir", "--output_file"])
def test_disk_full(tmp_path, vocab_file, where):
    """A limit on the size of files stands in for a full disk."""
    (tmp_path / "text").write_text(_corpus(0))
    settings = dict(input_file=f"{tmp_path}/text", output_file=f"{tmp_path}/out", dupe_factor=1)
    settings |= dict(vocab_file=vocab_file, max_seq_length=5, max_predictions_per_seq=1)
    _create(**settings)
    # The spill takes 5 bytes a record, a TFRecord file 16, so this limit stops only the output.
    limit = 2000 if where == "--spill_dir" else (tmp_path / "out").stat().st_size - 1
    (tmp_path / "out").write_text("before")
    (tmp_path / "out.json").unlink()
    code = f"""
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.argv[0] = "{PROGRAM}"
runpy.run_path("{ROOT}/{PROGRAM}", run_name="__main__")
"""
    words = [f"--{name}={value}" for name, value in settings.items()]
    status, log = forked_programs.run([sys.executable, "-c", code, *words])
    assert status == 74 and where in log.splitlines()[-1], log
    assert sorted(os.listdir(tmp_path)) == ["out", "text", "vocab.txt"]
    assert (tmp_path / "out").read_text() == "before"


ONE_SENTENCE, TWO, MANY = "river bread\n\n", "river\nbread\n\n", "the moon\n" * 26 + "\n"
LONG = ("river bread " * 20 + "\n") * 9 + "\n"


@pytest.mark.parametrize(
    "text, objective, is_warned",
    [
        (ONE_SENTENCE * 30, "mlm_nsp", True),
        (ONE_SENTENCE * 30, "mlm_sop", True),
        (ONE_SENTENCE * 30, "mlm", False),
        (ONE_SENTENCE * 80 + MANY, "mlm_nsp", True),
        (LONG * 30, "mlm_nsp", True),  # each sentence fills a sequence
        (MANY * 40, "mlm_nsp", False),
        (MANY * 40 + ONE_SENTENCE * 10, "mlm_nsp", False),
        (TWO * 99, "mlm_sop", False),
    ],
)
def test_few_real_pairs_are_warned_of(tmp_path, vocab_file, warnings, text, objective, is_warned):
    (tmp_path / "text").write_text(text)
    flags = {"input_file": f"{tmp_path}/text", "vocab_file": vocab_file, "objective": objective}
    sizes = {"max_seq_length": 14, "max_predictions_per_seq": 3, "dupe_factor": 2}
    for shards in (None, 2):
        warnings.clear()
        output = f"{tmp_path}/out{shards}"
        settings = PretrainingDataSettings(**flags, **sizes, output_file=output, num_shards=shards)
        (create_shards if shards else data.create_pretraining_data)(settings)
        names = sorted(map(str, tmp_path.glob(f"out{shards}-*-of-*"))) if shards else [output]
        found = [record for name in names for record in read_records(name)]
        warned = [text for text in warnings if "are real" in text]
        assert len(warned) == is_warned
        if is_warned:
            real = sum(record["next_sentence_labels"] == [0] for record in found)
            share = f"{100 * real / len(found):.1f}%"
            assert warned[0].startswith(f"only {real} of {len(found)} pairs ({share}) are real, ")


def test_single_document_is_taken_with_a_warning(tmp_path, vocab_file, caplog):
    caplog.set_level("INFO", "absl")
    text = tmp_path / "text"
    text.write_text("river bread\nthe moon\nwalking\n")
    flags = {**DEFAULTS, "max_seq_length": 8, "do_whole_word_mask": True}
    files = {"input_file": str(text), "output_file": f"{tmp_path}/out", "vocab_file": vocab_file}
    _create(**{**flags, **files})
    assert "all text is one document" in caplog.text
    assert "*** Example ***" not in caplog.text  # but for --verbosity=1
    assert read_records(tmp_path / "out") == _oracle([text], vocab_file, flags)


@pytest.mark.parametrize(
    "lines, whole, is_warned",
    [
        ("river bread.\nthe moon", True, True),
        ("of 月 the 月月\n月", True, True),
        ("river bread.\nthe moons", True, False),
        ("river bread.\nthe moon", False, False),
    ],
)
def test_whole_words_of_one_token_are_warned_of(
    tmp_path, vocab_file, warnings, lines, whole, is_warned
):
    (tmp_path / "text").write_text(f"{lines}\n\n{lines}\n")
    files = {"input_file": str(tmp_path / "text"), "output_file": str(tmp_path / "out")}
    flags = {"max_seq_length": 12, "dupe_factor": 2, "do_whole_word_mask": whole}
    _create(**files, **flags, vocab_file=vocab_file)
    number = len(read_records(tmp_path / "out"))
    expected = f"--do_whole_word_mask changes nothing in {number} instances: each word is one token"
    assert sum(text.startswith(expected) for text in warnings) == is_warned


@pytest.mark.slow
def test_memory_does_not_grow_with_dupe_factor(tmp_path, vocab_file):
    text = tmp_path / "text"
    text.write_text("\n\n".join(_corpus(seed, 20) for seed in range(25)))
    program = """
import json, sys
from bert_tf.tasks.pretraining.records import data, data_settings
data.create_pretraining_data(data_settings.PretrainingDataSettings(**json.loads(sys.argv[1])))
"""
    settings = dict(input_file=str(text), output_file=f"{tmp_path}/out", vocab_file=vocab_file)
    few, many = (
        peak_memory(program, json.dumps({**DEFAULTS, **settings, "dupe_factor": n}))
        for n in (16, 48)  # with fewer, buffers are not full yet
    )
    # As Python objects the records would take several times their size in the file.
    assert os.path.getsize(tmp_path / "out") > 29_000_000
    assert many - few < 6_000_000
