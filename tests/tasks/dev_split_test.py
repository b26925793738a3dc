"""The share of the training examples that --dev_fraction holds out."""

import collections
import random

import pytest
from absl import logging

from bert_tf.errors import UserError
from bert_tf.tasks.splits import held_out, read_sets
from tests.support.refusals import refusal
from tests.support.registered_tasks import REVIEWS, run_in, task_with
from tests.support.small_classification import write_reviews


@pytest.mark.parametrize(
    "sizes, fraction, expected",
    [
        ({"a": 50, "b": 50}, 0.1, {"a": 5, "b": 5}),
        ({"a": 90, "b": 10}, 0.1, {"a": 9, "b": 1}),
        ({"a": 15, "b": 15}, 0.1, {"a": 2, "b": 1}),  # 3 in all
        ({"a": 8, "b": 1, "c": 1}, 0.2, {"a": 2}),  # one of each class stays
        ({None: 33}, 0.25, {None: 8}),
        ({"a": 3, "b": 3}, 0.01, {"a": 1}),
        ({"a": 1, "b": 1}, 0.5, {}),
        ({0: 4, 3: 4}, 0.5, {0: 2, 3: 2}),
    ],
)
def test_each_class_has_its_share(sizes, fraction, expected):
    keys = [(label, f"{label} {i}") for label, size in sizes.items() for i in range(size)]
    assert collections.Counter(keys[i][0] for i in held_out(keys, fraction)) == expected


def test_order_and_copies_do_not_matter():
    keys = [(i % 3, f"text {i * i}") for i in range(100)]
    found = {keys[i] for i in held_out(keys, 0.2)}
    for seed in range(3):
        shuffled = random.Random(seed).sample(keys, len(keys))
        assert {shuffled[i] for i in held_out(shuffled, 0.2)} == found
    for copies in (2, 7):  # they are on one side
        keys = [("a", f"{'tT'[n % 2]}ext {i}") for i in range(9) for n in range(copies)]
        held = held_out(keys, 0.3)
        texts = {keys[i][1].lower() for i in held}
        assert len(held) == len(texts) * copies and 1 < len(texts) < 9
        assert held_out([("a", "x")] * copies, 0.5) == set()


def classification(folder, **more):
    flags = {"data_dir": str(folder), "output_dir": f"{folder}/out", "vocab_file": "unused"}
    return task_with("classification", {**flags, **REVIEWS, "dev_fraction": 0.2, **more})


@pytest.fixture
def reviews(tmp_path):
    folder = write_reviews(tmp_path)
    (folder / "dev.csv").unlink()
    return folder


def test_training_and_evaluation_share_the_training_set(reviews):
    sets = read_sets(classification(reviews), ["train", "eval", "predict"])
    (train,), (dev,), (test,) = sets.values()
    assert [train.name, dev.name, test.name] == ["train", "eval", "predict"]
    assert [len(each.examples) for each in (train, dev, test)] == [72, 18, 7]
    assert collections.Counter(x.label for x in dev.examples) == {"good": 9, "bad": 9}
    ((every,),) = read_sets(classification(reviews, dev_fraction=0.0), ["train"]).values()
    whole = {x.guid for x in every.examples}
    parts = [{x.guid for x in each.examples} for each in (train, dev)]
    assert parts[0] | parts[1] == whole and not parts[0] & parts[1]
    # A run that only trains or only evaluates has the same parts.
    for purpose, part in zip(["train", "eval"], parts, strict=True):
        ((alone,),) = read_sets(classification(reviews), [purpose]).values()
        assert {x.guid for x in alone.examples} == part
    assert len(read_sets(classification(reviews), ["predict"])["predict"][0].examples) == 7


def test_a_run_ends_with_its_figure_and_the_files_to_read(reviews, monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda text, *values: lines.append(text % values))
    flags = {**REVIEWS, "do_train": True, "do_eval": True, "dev_fraction": 0.3}
    flags |= {"train_batch_size": 21, "num_train_epochs": 1.0, "max_seq_length": 24}
    trained = run_in(reviews, "classification", **flags)
    assert trained["global_step"] == 3
    figure = f"eval_accuracy = {trained['eval_accuracy']:.4g}"
    out = f"{reviews}/out"
    assert lines[-1] == f"{figure}. To read: {out}/eval_results.txt, {out}/errors.tsv"


SENTENCES = "a,b,score\n" + "".join(f"one {i},two {i},{i % 5}\n" for i in range(20))
QUESTIONS = "sent1,sent2,ending0,ending1,ending2,ending3,label\n" + "".join(
    f"s{i},t,a,b,c,d,{i % 4}\n" for i in range(40)
)
TAGS = "".join(f"-DOCSTART- O\n\nAnn{i} B-PER\nruns O\n\nin O\nRome B-LOC\n\n" for i in range(30))
COLUMNS = {"text_a_column": "a", "text_b_column": "b", "label_column": "score", "score_scale": 5.0}
OTHERS = {  # name -> file, its text, flags, name of the dev file, number of dev examples
    "sentences": ("train.csv", SENTENCES, COLUMNS, "dev.csv", 4),
    "multiple_choice": ("train.csv", QUESTIONS, {}, "val.csv", 8),
    "tagging": ("train.txt", TAGS, {}, "valid.txt", 6),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_tasks(tmp_path, name):
    file, text, more, dev_file, count = OTHERS[name]
    (tmp_path / file).write_text(text)
    flags = {"data_dir": str(tmp_path), "output_dir": "unused", "vocab_file": "unused"}
    task = task_with(name, {**flags, **more, "dev_fraction": 0.2})
    sets = read_sets(task, ["train", "eval"])
    (train,), (dev,) = sets.values()
    assert [len(train.examples), len(dev.examples)] == [4 * count, count]
    task.labels(sets)
    if name == "tagging":
        assert [len(train.sentences), len(dev.sentences)] == [48, 12]
    if name == "multiple_choice":
        assert {example.label for example in dev.examples} == {0, 1, 2, 3}
    (tmp_path / dev_file).write_text(text)
    assert refusal(read_sets, task, ["eval"]) == (
        f"--dev_fraction=0.2 is for data without a dev set, but there is {tmp_path}/{dev_file}."
        " Leave --dev_fraction out to evaluate on that, or move it away"
    )


def test_what_is_refused(reviews, tmp_path):
    message = "must hold out at least one of the . training examples"
    for rows in ("fine,good\ndull,bad\n", "fine,good\nfine,good\ndull,bad\n"):
        (reviews / "train.csv").write_text("review,stars\n" + rows)
        with pytest.raises(UserError, match=message):
            read_sets(classification(reviews), ["eval"])
    with pytest.raises(UserError, match=f"but there is one in {tmp_path}. Leave --dev_fraction"):
        read_sets(classification(write_reviews(tmp_path)), ["train"])
    flags = {"data_dir": "x", "output_dir": "x", "vocab_file": "x", "text_a_column": "a"}
    with pytest.raises(UserError, match="--dev_fraction=0.1 needs --loss=cosine, since an evaluat"):
        task_with("sentences", {**flags, "loss": "in_batch_negatives", "dev_fraction": 0.1})


@pytest.mark.parametrize("name", ["classification", *OTHERS])
def test_without_a_dev_file_the_flag_is_named(reviews, tmp_path, name):
    file, text, more, *_ = OTHERS.get(name, ("train.csv", None, {}))
    if text:
        (tmp_path / file).write_text(text)
    flags = {"data_dir": str(tmp_path), "output_dir": "unused", "vocab_file": "unused", **more}
    task = task_with(name, {**flags, **(REVIEWS if name == "classification" else {})})
    with pytest.raises(UserError, match=r"--dev_fraction=0\.1 holds out a part of the training"):
        read_sets(task, ["train", "eval"])
    assert "--dev_fraction" not in refusal(read_sets, task, ["eval"])
