"""Tests of tagging from files to files: the program, and the library call."""

import functools
import json

import pytest

from bert_tf.errors import UserError
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.tasks.tagging.data import read_sentences
from bert_tf.tasks.tagging.entities import entity_metrics
from tests.support.pretraining_runs import run, write_config
from tests.support.refusals import refuses
from tests.support.registered_tasks import run_in

pytestmark = pytest.mark.usefixtures("uncompiled")

VOCAB = "[PAD] [UNK] [CLS] [SEP] the in from came visited Ann Bob ##by Rome Oslo New York .".split()
TRAIN = """-DOCSTART- -X- O

Ann B-PER
visited O
Rome B-LOC
. O

Bobby B-PER
came O
from O
New B-LOC
York I-LOC
. O

-DOCSTART- -X- O

Bob B-PER
visited O
Oslo B-LOC
. O

"""


def make_folder(folder):
    """Returns the folder with the files for a tiny run."""
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    (folder / "train.txt").write_text(TRAIN * 8)
    (folder / "valid.txt").write_text(TRAIN.replace("Rome", "Oslo"))
    (folder / "test.txt").write_text(TRAIN.replace("Oslo", "Rome"))
    write_config(folder / "bert_config.json", hidden_dropout_prob=0.0, hidden_size=16)
    return folder


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which the program has been run, with its output in `out`."""
    folder = make_folder(tmp_path_factory.mktemp("trained"))
    run(
        *(f"--data_dir={folder}", f"--output_dir={folder}/out", f"--vocab_file={folder}/vocab.txt"),
        *(f"--bert_config_file={folder}/bert_config.json", "--max_seq_length=16"),
        *("--do_train", "--do_eval", "--do_predict", "--length_buckets=none"),
        *("--train_batch_size=8", "--num_train_epochs=15", "--learning_rate=0.02"),
        program="run_tagging.py",
    )
    return folder


tag = functools.partial(run_in, name="tagging", max_seq_length=16)


def test_the_program_learns_scores_and_tags(trained):
    output_dir = trained / "out"
    results = reporting.read_results(str(output_dir / "eval_results.txt"))
    assert results["f1"] > 0.8  # PER, LOC or nothing for each of four kinds of words
    assert results["global_step"] == 45
    names = {f"{name}{of}" for name in ("precision", "recall", "f1") for of in ("", "_LOC", "_PER")}
    assert results.keys() == {*names, "eval_accuracy", "eval_loss", "global_step"}
    report = json.loads((output_dir / "eval_report.json").read_text())
    assert report["micro"]["f1"] == pytest.approx(results["f1"])
    assert len(tables.read_table(f"{output_dir}/predictions.tsv")["id"]) == 3
    assert (output_dir / "labels.txt").read_text() == "B-LOC\nB-PER\nI-LOC\nO\n"
    # The predictions have the words and tags of the file, and their scores are those written.
    lines = (output_dir / "predictions.txt").read_text().splitlines()
    sentences = read_sentences(str(trained / "test.txt"), "predict_file")
    gold = [f"{word} {tag}" for s in sentences for word, tag in zip(s.words, s.tags, strict=True)]
    assert [line.rsplit(" ", 1)[0] for line in lines if line] == gold
    predicted = read_sentences(str(output_dir / "predictions.txt"), "predict_file")
    scores = entity_metrics([s.tags for s in sentences], [s.tags for s in predicted])
    written = reporting.read_results(str(output_dir / "test_results.txt"))
    assert written["f1"] == pytest.approx(scores["f1"])
    assert written["eval_accuracy"] == pytest.approx(scores["accuracy"])


def test_words_without_tags_get_the_labels_of_the_trained_model(trained):
    (trained / "words.txt").write_text("Ann\n\n" + "Bobby\n" * 40)
    flags = {"data_dir": None, "predict_file": str(trained / "words.txt"), "do_predict": True}
    results = (trained / "out/test_results.txt").read_text()
    message = "--labels='O,B-PER' must be the labels of the model in --out"
    refuses(message, tag, trained, **flags, labels=["O", "B-PER"])
    tag(trained, **flags)
    lines = (trained / "out/predictions.txt").read_text().splitlines()
    words, _, tags = zip(*(line.partition(" ") for line in lines), strict=True)
    assert words == ("Ann", "", *["Bobby"] * 40, "")
    assert set(tags) <= {"", "B-LOC", "B-PER", "I-LOC", "O"} and tags.count("") == 2
    assert (trained / "out/test_results.txt").read_text() == results  # there is nothing to score


def test_a_model_of_another_scheme_tags_words_but_has_no_scores(trained):
    labels, words = trained / "out/labels.txt", trained / "words.txt"
    before = labels.read_text()
    predicting = {"data_dir": None, "predict_file": str(words), "do_predict": True}
    evaluating = {"data_dir": None, "eval_file": str(words), "do_eval": True}
    for last in ("L-LOC", "S-LOC", "PLACE"):  # BILOU, IOBES, types
        labels.write_text(before.replace("I-LOC", last))
        words.write_text("Ann O\n")
        for name, flags in (("predict", predicting), ("eval", evaluating)):
            message = f"--{name}_file: .*words.txt has tags, .* include '{last}'. .* only models of"
            refuses(f"{message} IOB1", tag, trained, **flags)
    words.write_text("Ann\n")
    tag(trained, **predicting)
    labels.write_text(before)


def test_bioes_tags_are_made_learned_and_scored(folder):
    scheme = {"tag_scheme": "bioes", "do_train": True, "num_train_epochs": 2}
    tag(folder, **scheme, do_eval=True, do_predict=True)
    assert (folder / "out/labels.txt").read_text() == "B-LOC\nE-LOC\nO\nS-LOC\nS-PER\n"
    lines = (folder / "out/predictions.txt").read_text().split("\n\n")[0].split("\n")
    words = [line.split(" ") for line in lines if line]
    assert {columns[1] for columns in words} <= {"B-LOC", "E-LOC", "O", "S-LOC", "S-PER"}
    names = reporting.read_results(f"{folder}/out/eval_results.txt")
    assert {"f1", "f1_LOC", "f1_PER"} <= names.keys()
    with pytest.raises(UserError, match="--labels must list each tag once, O, B-TYPE, I-TYPE, E-T"):
        tag(folder, tag_scheme="bioes", do_train=True, labels=["O", "L-X"], output_dir="other")


def test_length_buckets_change_no_score(folder):
    flags = {"do_eval": True, "eval_batch_size": 2, "document_context": False}
    results = [tag(folder, length_buckets=lengths, **flags) for lengths in ("none", "8")]
    assert results[1] == pytest.approx(results[0], rel=1e-5)


TRAIN_FLAGS = {"do_train": True}
BERT_BASE = "/x/uncased_L-12_H-768_A-12/bert_model.ckpt"
# The content of train.txt (None: as it is), flags, the message.
REFUSED = [
    (None, {}, "At least one of --do_train, --do_eval and --do_predict must be"),
    ("", TRAIN_FLAGS, "--data_dir: .*train.txt has no sentence"),
    ("Ann O\n", TRAIN_FLAGS, "words with different tags; all tags are 'O'"),
    (
        *(None, {**TRAIN_FLAGS, "labels": ["O", "B-PER", "I-PER"]}),
        "--data_dir: .*train.txt has the tags 'B-LOC', 'I-LOC', which are not among the model's: "
        "'O' and 2 more. Correct the file, or train a new model",
    ),
    ("Ann B-PER\nis O\n", {"do_eval": True}, "has the tags 'B-LOC', 'I-LOC'"),
    (
        *("Ann B-PER\nis O\n", {"do_predict": True, "predict_file": "valid.txt"}),
        "--predict_file: .*valid.txt has the tags 'B-LOC', 'I-LOC'",
    ),
    (None, {**TRAIN_FLAGS, "labels": ["O", "PER"]}, "list each tag once, .*O,PER"),
    (None, {**TRAIN_FLAGS, "labels": ["O", "O"]}, "list each tag once, .*O,O"),
    (
        *(None, {**TRAIN_FLAGS, "data_dir": None}),
        "name the file with --train_file, or a folder that has train.txt with --data_dir",
    ),
    (
        *(None, {"do_eval": True, "train_file": "none.txt"}),
        r"tags of the model must be known, .*labels.txt.*\(--train_file: none.txt\); neither",
    ),
    (
        *(None, {**TRAIN_FLAGS, "init_checkpoint": BERT_BASE}),
        "was trained on lowercased text, but --do_lower_case=False",
    ),
    (None, {**TRAIN_FLAGS, "max_seq_length": 3}, "length=3 must be between 4"),
    (
        *(None, {**TRAIN_FLAGS, "feature_based": True}),
        "--feature_layers=concat_last_four needs a model with at least 4 layers",
    ),
]


@pytest.mark.parametrize("file, flags, message", REFUSED)
def test_what_is_refused(folder, monkeypatch, file, flags, message):
    monkeypatch.chdir(folder)
    if file is not None:
        (folder / "train.txt").write_text(file)
    refuses(message, tag, folder, **flags)
    assert not {path.name for path in folder.glob("out/*")} & {"train.tf_record", "checkpoint"}
