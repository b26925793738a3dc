"""What of a text gets into records: tokens that are lost, copies, lines that hold a paragraph."""

import re

import pytest
import tensorflow as tf

from bert_tf.tasks.pretraining.records import data
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.manifest import RecordCounts
from bert_tf.tasks.pretraining.records.shards import create_shards
from tests.support.record_files import read_records
from tests.support.refusals import refusal

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]
NUM_WORDS = 1500


@pytest.fixture
def logged(monkeypatch):
    """The messages of the log, as (level, text)."""
    found = []
    for level in ("info", "warning"):

        def log(message, *values, level=level):
            found.append((level, message % values if values else message))

        monkeypatch.setattr(f"absl.logging.{level}", log)
    return found


def parts(items, count, separator):
    return [separator.join(items[i : i + count]) for i in range(0, len(items), count)]


def write_text(folder, words_a_sentence=6, sentences_a_line=1, lines_a_document=5):
    """Writes text in which each word occurs once, so that a record's ids tell their places."""
    words = [f"w{i}" for i in range(NUM_WORDS)]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
    sentences = [sentence.capitalize() for sentence in parts(words, words_a_sentence, " ")]
    documents = parts(parts(sentences, sentences_a_line, ". "), lines_a_document, "\n")
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")


def make(folder, shards=None, name="out", **more):
    options = {"input_file": f"{folder}/text.txt", "vocab_file": f"{folder}/vocab.txt"}
    options |= {"max_seq_length": 32, "dupe_factor": 2, "mask": False, "num_shards": shards}
    options |= {"output_file": f"{folder}/{name}.tfrecord", **more}
    settings = PretrainingDataSettings(**options)
    (create_shards if shards else create_pretraining_data)(settings)
    names = sorted(folder.glob(f"{name}-*-of-*.tfrecord")) if shards else [settings.output_file]
    return [record for each in names for record in read_records(each)]


def num_lost(records):
    """Returns the number of words that no record has."""
    ids = {number for record in records for number in record["input_ids"]}
    return NUM_WORDS - len({number for number in ids if number >= len(SPECIAL)})


@pytest.mark.parametrize(
    "shards, shape, more",
    [
        (3, (6, 1, 10), {}),
        (None, (6, 1, 10), {"objective": "mlm_sop", "dupe_factor": 1}),
        (None, (50, 1, 3), {}),  # lines of a paragraph
        (3, (100, 1, 1), {"dupe_factor": 5}),  # documents of a line
        (3, (100, 1, 1), {"pack": True, "objective": "mlm"}),
        (None, (100, 1, 1), {"objective": "mlm", "across_documents": False}),
        (None, (3, 1, 4), {"pack": True, "short_seq_prob": 0.9}),
    ],
)
def test_the_share_of_lost_tokens_is_told(tmp_path, logged, shards, shape, more):
    write_text(tmp_path, *shape)
    lost = num_lost(make(tmp_path, shards, **more))
    share = lost / NUM_WORDS
    ((level, line),) = [x for x in logged if "are in no record" in x[1]]
    assert line.startswith(f"{lost} of {NUM_WORDS} tokens ({share:.1%}) are in no record")
    assert level == ("warning" if share > 0.05 else "info")
    assert (": a pair of texts is cut to" in line) == (share > 0.05)
    if more.get("objective") == "mlm":
        assert lost == 0
    elif shape[0] >= 50:
        assert share > 0.1


def test_the_way_out_is_told_and_helps(tmp_path, logged):
    write_text(tmp_path, 8, 12, 2)
    before = num_lost(make(tmp_path))
    (text,) = [text for level, text in logged if "are in no record" in text]
    assert text.endswith(
        ": a pair of texts is cut to --max_seq_length=32, and the lines have 104 tokens on average."
        " If lines hold several sentences, give --split_sentences. Otherwise raise --max_seq_length"
        " or --dupe_factor, since each pass cuts off different tokens, or use --objective=mlm,"
        " which loses none"
    )
    for more in ({"split_sentences": True}, {"objective": "mlm"}, {"max_seq_length": 512}):
        assert num_lost(make(tmp_path, **more)) < before / 3
    logged.clear()
    make(tmp_path, split_sentences=True, max_seq_length=12, dupe_factor=1)
    (text,) = [text for level, text in logged if "are in no record" in text]
    assert "and the sentences have 9 tokens on average. Raise --max_seq" in text
    assert "--split_sentences" not in text


@pytest.mark.parametrize(
    ("file", "is_split", "way"),
    [
        ("text.txt", False, " (--split_sentences), and so does"),
        ("text.txt", True, ", and so does"),
        ("text.parquet", False, ", and so does"),  # whose texts are split anyway
    ],
)
def test_electra_is_not_told_to_split_what_is_split(tmp_path, logged, file, is_split, way):
    paths = {x: str(tmp_path / y) for x, y in (("input_file", file), ("output_file", "x"))}
    settings = PretrainingDataSettings(
        vocab_file="vocab.txt", objective="electra", split_sentences=is_split, **paths
    )
    data.report(RecordCounts(tokens=90, sentences=10, lost_tokens=30), settings)
    ((_, text),) = logged
    unit = "sentences" if is_split or "parquet" in file else "lines"
    assert f" On average the {unit} have 9 tokens. Shorter ones lose less{way} a higher" in text


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm_sop"])
@pytest.mark.parametrize("share", [0.5, 0.2, 0.02])
def test_a_text_of_unknown_words_is_warned_of(tmp_path, logged, share, objective):
    write_text(tmp_path, 8, 1, 20)
    path = tmp_path / "vocab.txt"
    known = path.read_text().splitlines()[: len(SPECIAL) + round(NUM_WORDS * (1 - share))]
    path.write_text("\n".join(known) + "\n")
    make(tmp_path, objective=objective)
    found = [text for level, text in logged if level == "warning" and "[UNK]" in text]
    count = round(NUM_WORDS * share)
    message = f"{count} of {NUM_WORDS} tokens ({share:.1%}) are [UNK], which stands for all words"
    assert [text[: len(message)] for text in found] == [message] * (share > 0.1)


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "a b\nc|\u200b\n\ufeff|d\n\x07|\x01\x02 \x03|\ufffd|b",
            "3 documents are left out: they have no tokens, only characters that are dropped",
        ),
        # Copies in other case, in other lines, with other blanks.
        ("a b\nc|A b c|d|d|d|e f g", r"3 of 6 documents \(\d\d\.\d%\) repeat an earlier one$"),
        ("x y| \nx y|X  y|y", r"2 of 4 documents \(\d\d\.\d%\) repeat an earlier one$"),
    ],
)
@pytest.mark.parametrize("shards", [None, 1])
def test_documents_without_a_token_and_copies_are_counted(tmp_path, logged, text, message, shards):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *"abcdefgxy"]) + "\n")
    (tmp_path / "text.txt").write_text(text.replace("|", "\n\n"))
    make(tmp_path, shards)
    assert sum(bool(re.match(message, line)) for _, line in logged) == 1


@pytest.mark.parametrize("shape, shards", [((5, 7, 1), 2), ((9, 4, 3), None), ((4, 30, 2), 2)])
def test_split_sentences_gives_the_records_of_split_text(tmp_path, shape, shards):
    write_text(tmp_path, *shape)
    records = make(tmp_path, shards, split_sentences=True)
    path = tmp_path / "text.txt"
    path.write_text(path.read_text().replace(". ", ".\n"))
    assert records == make(tmp_path, shards, name="other")


def test_text_that_is_split_already_is_not_told_to_be(tmp_path, logged):
    write_text(tmp_path, 8, 1, 100)
    text = (tmp_path / "text.txt").read_text().replace("\n", " ")
    (tmp_path / "text.jsonl").write_text(f'{{"text": "{text}"}}\n')
    make(tmp_path, input_file=f"{tmp_path}/text.jsonl", max_seq_length=16)
    (text,) = [text for level, text in logged if "are in no record" in text]
    assert "--split_sentences" not in text and "the sentences have" in text


def documents_of(records):
    """Returns the numbers of the documents (of 30 words) whose words the records have."""
    ids = {number for record in records for number in record["input_ids"]}
    return {(number - len(SPECIAL)) // 30 for number in ids if number >= len(SPECIAL)}


def heldout(folder, shards=None, **more):
    path = f"{folder}/heldout"
    records = make(folder, shards, heldout_fraction=0.2, heldout_output_file=path, **more)
    return documents_of(records), documents_of(read_records(path))


def test_the_same_documents_are_held_out_in_all_ways(tmp_path):
    write_text(tmp_path)
    training, held = heldout(tmp_path)
    assert training | held == set(range(50)) and not training & held
    assert 4 <= len(held) <= 16
    for shards, more in (
        (1, {}),
        (3, {}),
        (None, {"random_seed": 5, "max_seq_length": 64}),
        (None, {"objective": "mlm", "dupe_factor": 1}),
        (2, {"pack": True}),
        (None, {"split_sentences": True}),
    ):
        folder = tmp_path / f"{shards}"
        folder.mkdir(exist_ok=True)
        write_text(folder)
        found = heldout(folder, shards, **more)
        assert found[1] == held and not found[0] & held, (shards, more)


def test_workers_share_out_the_heldout_documents_too(tmp_path):
    files = []
    for count in (1, 2, 5):
        folder = tmp_path / str(count)
        folder.mkdir()
        write_text(folder)
        more = {"heldout_fraction": 0.3, "heldout_output_file": f"{folder}/heldout"}
        for i in range(count):
            make(folder, 4, num_workers=count, worker_index=i, **more)
        files.append((folder / "heldout").read_bytes())
        assert len([*folder.glob("out-*-of-*.tfrecord")]) == 4
    assert files[0] == files[1] == files[2]


def test_copies_of_a_document_are_on_one_side_and_the_rest_is_trained_on_as_if_alone(tmp_path):
    write_text(tmp_path)
    path = tmp_path / "text.txt"
    _, held = heldout(tmp_path, name="first")
    documents = path.read_text().strip().split("\n\n")
    path.write_text("\n\n".join([*documents, *(text.upper() for text in documents)]))
    training, other = heldout(tmp_path)
    assert other == held and training == set(range(50)) - held
    kept = [text for number, text in enumerate(documents) if number not in held]
    path.write_text("\n\n".join(kept) + "\n")
    assert make(tmp_path) == read_records(tmp_path / "first.tfrecord")


def test_heldout_documents_are_read_once(tmp_path):
    write_text(tmp_path)
    more = {"heldout_fraction": 0.2, "heldout_output_file": f"{tmp_path}/heldout"}
    sizes = []
    for dupe_factor in (1, 7):
        make(tmp_path, dupe_factor=dupe_factor, short_seq_prob=0.0, **more)
        sizes.append(sum(1 for _ in tf.data.TFRecordDataset(f"{tmp_path}/heldout")))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("shards", [None, 1])
def test_nothing_to_hold_out(tmp_path, shards):
    write_text(tmp_path)
    more = {"heldout_fraction": 1e-9, "heldout_output_file": f"{tmp_path}/heldout"}
    assert refusal(make, tmp_path, shards, **more) == (
        "--heldout_fraction=1e-09 must hold out some documents and leave some: none of the 50"
        " documents is. Raise it, or give more text. If all text is one document, separate"
        " documents by empty lines"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"vocab.txt", "text.txt"}
    make(tmp_path, shards, **{**more, "heldout_fraction": 0.4})


def test_settings_of_heldout_text(tmp_path):
    write_text(tmp_path)
    file, outputs = "heldout_output_file", ("out.tfrecord", "out.tfrecord.json")
    for more, message in (
        ({"heldout_fraction": 0.1}, "--heldout_fraction=0.1 needs --heldout_output_file"),
        ({"heldout_output_file": "x"}, "--heldout_output_file=x needs --heldout_fraction"),
        ({"heldout_fraction": 0.6}, "--heldout_fraction=0.6 must be a finite number between"),
        *(
            ({"heldout_fraction": 0.2, file: x}, f"--{file}={x} must not be a")
            for x in (f"{tmp_path}/{name}" for name in ("text.txt", "vocab.txt", *outputs))
        ),
    ):
        assert message in refusal(make, tmp_path, **more)
