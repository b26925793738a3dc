"""Tests of entity scores, by conlleval's algorithm; of their tables; and of whole runs."""

import functools
import json
import random
from collections import Counter

import pytest

from bert_tf.errors import UserError
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import read_table
from bert_tf.tasks.tagging.data import Sentence, read_sentences
from bert_tf.tasks.tagging.entities import bioes_tags, entities, entity_counts, entity_metrics
from bert_tf.tasks.tagging.files import write_tables
from tests.support.pretraining_runs import run, write_config
from tests.support.refusals import refuses
from tests.support.registered_tasks import run_in

pytestmark = pytest.mark.usefixtures("eager_if_quick")

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
    ("Ann O\n", TRAIN_FLAGS, "must have at least two different labels; all 1 have 'O', so there"),
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


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("O O", []),
        ("B-A I-A O B-A", [("A", 0, 2), ("A", 3, 4)]),
        # IOB1: B- only where two entities of one type meet.
        ("I-A I-A B-A I-A", [("A", 0, 2), ("A", 2, 4)]),
        ("I-A I-B I-B", [("A", 0, 1), ("B", 1, 3)]),
        ("B-A I-B O I-A", [("A", 0, 1), ("B", 1, 2), ("A", 3, 4)]),
        ("B-A B-A B-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 3)]),
        # A type may have a hyphen in it.
        ("B-A-1 I-A-1 I-A", [("A-1", 0, 2), ("A", 2, 3)]),
        # BILOU and IOBES: U- and S- are an entity, L- and E- end one.
        ("U-A U-A B-A L-A I-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 4), ("A", 4, 5)]),
        ("S-A I-A E-A O E-A E-A", [("A", 0, 1), ("A", 1, 3), ("A", 4, 5), ("A", 5, 6)]),
        ("B-A L-B U-B", [("A", 0, 1), ("B", 1, 2), ("B", 2, 3)]),
    ],
)
def test_entities(tags, expected):
    assert entities(tags.split()) == expected


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("O", "O"),
        ("B-A O B-A I-A O I-A", "S-A O B-A E-A O S-A"),
        ("B-NP I-NP I-NP B-NP B-VP I-NP", "B-NP I-NP E-NP S-NP S-VP S-NP"),
        ("I-A I-A B-A I-A I-A I-A", "B-A E-A B-A I-A I-A E-A"),  # IOB1
    ],
)
def test_bioes(tags, expected):
    found = bioes_tags(tags.split())
    assert found == expected.split()
    assert entities(found) == entities(tags.split())  # so the scores are the same
    assert bioes_tags(found) == found


def test_fixed_figures():
    """In percent, as conlleval prints them; seqeval 1.2.2 gives the same."""
    gold = ["B-PER I-PER O B-LOC", "B-ORG O B-LOC I-LOC O", "B-PER O B-MISC"]
    predicted = ["B-PER I-PER O B-ORG", "B-ORG O B-LOC I-LOC B-LOC", "B-PER I-PER O"]
    results = entity_metrics([s.split() for s in gold], [s.split() for s in predicted])
    halves = dict.fromkeys(("", "_LOC", "_PER"), (50.0, 50.0, 50.0))
    others = {"_MISC": (0.0, 0.0, 0.0), "_ORG": (50.0, 100.0, 66.67)}
    for suffix, figures in {**halves, **others}.items():
        names = (f"{name}{suffix}" for name in ("precision", "recall", "f1"))
        assert tuple(round(100 * results[name], 2) for name in names) == figures


def conlleval(gold, predicted):
    """Returns counters (correct, predicted, gold) of entities by type, by conlleval's algorithm.

    For each word it asks whether an entity ends before it and whether one begins with it, given the
    last tag of both sides. The end of a sentence counts as a word with O.
    """

    def split(tag):
        return (tag, "") if tag == "O" else tuple(tag.split("-", 1))

    def ends(last, now):
        pairs = ("BB", "BO", "IB", "IO")
        return last[0] + now[0] in pairs or (last[0] != "O" and last[1] != now[1])

    def begins(last, now):
        return last[0] + now[0] in ("BB", "IB", "OB", "OI") or (now[0] != "O" and last[1] != now[1])

    counts = Counter(), Counter(), Counter()
    last_gold = last_predicted = ("O", "")
    inside = False
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        for pair in zip([*gold_tags, "O"], [*predicted_tags, "O"], strict=True):
            now_gold, now_predicted = map(split, pair)
            gold_ends = ends(last_gold, now_gold)
            predicted_ends = ends(last_predicted, now_predicted)
            if inside:
                if gold_ends and predicted_ends and last_gold[1] == last_predicted[1]:
                    inside = False
                    counts[0][last_gold[1]] += 1
                elif gold_ends != predicted_ends or now_gold[1] != now_predicted[1]:
                    inside = False
            gold_begins = begins(last_gold, now_gold)
            predicted_begins = begins(last_predicted, now_predicted)
            if gold_begins and predicted_begins and now_gold[1] == now_predicted[1]:
                inside = True
            counts[2][now_gold[1]] += gold_begins
            counts[1][now_predicted[1]] += predicted_begins
            last_gold, last_predicted = now_gold, now_predicted
    return counts


def test_random_tags_have_conllevals_figures():
    rng = random.Random(12345)
    choices = ["O", "O", "B-A", "I-A", "B-B", "I-B", "B-C-D", "I-C-D"]
    for _ in range(3000):
        gold = [rng.choices(choices, k=rng.randint(1, 12)) for _ in range(rng.randint(1, 4))]
        predicted = [
            [tag if rng.random() < 0.6 else rng.choice(choices) for tag in tags] for tags in gold
        ]
        counts = conlleval(gold, predicted)
        results = entity_metrics(gold, predicted)
        types = {t for count in counts for t, n in count.items() if n}
        assert {name[3:] for name in results if name.startswith("f1_")} == types
        for suffix, (right, found, there) in {
            "": [count.total() for count in counts],
            **{f"_{t}": [count[t] for count in counts] for t in types},
        }.items():
            assert results[f"precision{suffix}"] == pytest.approx(right / found if found else 0)
            assert results[f"recall{suffix}"] == pytest.approx(right / there if there else 0)
            f1 = 2 * right / (found + there) if found + there else 0
            assert results[f"f1{suffix}"] == pytest.approx(f1)


def test_words_and_sides_that_are_empty_or_differ():
    results = entity_metrics([["B-A", "O", "O"], ["O"]], [["I-A", "O", "B-B"], ["O"]])
    assert results["accuracy"] == 2 / 4  # counts words
    assert entity_counts([["O"]], [["O"]]) == ({}, 1.0)
    assert entity_metrics([["O"]], [["O"]])["f1"] == 0.0
    for predicted in ([["O", "O"]], [["O"], ["O"]]):
        with pytest.raises(ValueError, match="argument 2 is longer"):
            entity_metrics([["O"]], predicted)


SENTENCES = [
    Sentence(["Ann", "is", "here"], ["B-PER", "O", "O"], 0),
    Sentence(["-", "Rome"], ["O", "B-LOC"], 0),
    Sentence(["New", "York"], ["B-LOC", "I-LOC"], 1),
]
PREDICTED = [["B-PER", "O", "O"], ["B-PER", "B-LOC"], ["B-LOC", "O"]]
LOSSES = [0.1, 0.0, 0.0, 0.7, 0.2, 0.0, 2.5]


def test_wrong_sentences_begin_with_the_surest_mistake(tmp_path):
    write_tables(f"{tmp_path}", "eval_predictions", SENTENCES, PREDICTED, LOSSES)
    assert read_table(f"{tmp_path}/errors.tsv") == {
        "id": ["sentence-2", "sentence-1"],
        "text": ["New York", "'- Rome"],
        "label": ["B-LOC I-LOC", "O B-LOC"],
        "prediction": ["B-LOC O", "B-PER B-LOC"],
        "wrong": ["York: O should be I-LOC", "'-: B-PER should be O"],
        "loss": ["2.5", "0.7"],
    }
    every = read_table(f"{tmp_path}/eval_predictions.tsv")
    assert len(every["id"]) == 3 and every["wrong"][0] == ""
    report = json.loads((tmp_path / "eval_report.json").read_text())
    expected = entity_metrics([s.tags for s in SENTENCES], PREDICTED)
    assert report["micro"]["f1"] == pytest.approx(expected["f1"])
    assert report["accuracy"] == expected["accuracy"]
    assert report["types"]["LOC"]["recall"] == expected["recall_LOC"] == 0.5
    assert report["types"]["LOC"]["support"] == 2


def test_test_files_with_and_without_tags(tmp_path):
    write_tables(f"{tmp_path}", "predictions", SENTENCES, PREDICTED, LOSSES)
    names = {"predictions.tsv", "test_errors.tsv", "test_report.txt", "test_report.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    untagged = [Sentence(sentence.words, None, 0) for sentence in SENTENCES]
    write_tables(f"{tmp_path}", "predictions", untagged, PREDICTED, LOSSES)
    found = read_table(f"{tmp_path}/predictions.tsv")
    assert list(found) == ["id", "text", "prediction"] and found["prediction"][2] == "B-LOC O"
