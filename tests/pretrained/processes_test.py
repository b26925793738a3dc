"""Tests of a loaded model in other processes and threads: pickles, forks, and what calls leave.

Also of batches that are computed at the same time: their results, and an error in one of them.
"""

import copy
import gc
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.pretrained.build import traced
from bert_tf.pretrained.forward import BATCH_SIZE, Forward, batches_of
from bert_tf.pretrained.methods import base
from tests.support.hugging_face_folders import ENCODER, make_tensors, write_folder
from tests.support.model_folders import write_model


@pytest.fixture(scope="module")
def model(folder):
    return bert_tf.load(folder, max_seq_length=6)


def test_a_pickle_and_a_copy_give_the_same_answers(model):
    texts = ["the cat sat on a mat in paris", ("a dog", "ran")]
    pickled = pickle.dumps(model)
    assert len(pickled) < 1000
    for again in (pickle.loads(pickled), copy.deepcopy(model)):
        assert again is not model and again.model is not model.model
        assert (again.labels, again.heads, again.max_seq_length) == (model.labels, model.heads, 6)
    np.testing.assert_array_equal(again.encode(texts), model.encode(texts))


def test_a_pickle_names_the_checkpoint_whatever_becomes_of_the_folder(
    tmp_path, weights, monkeypatch
):
    folder = tmp_path / "run"
    write_model(folder, weights)
    for path in folder.glob("bert_model.ckpt*"):
        path.rename(str(path).replace("bert_model.ckpt", "model.ckpt-3"))
    (folder / "vocab.txt").rename(tmp_path / "words.txt")
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    monkeypatch.chdir(tmp_path)
    model = bert_tf.load("run", vocab_file="words.txt", do_lower_case=False)
    checkpoints.write(f"{folder}/model.ckpt-5", {name: 2 * x for name, x in weights.items()})
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
    monkeypatch.chdir("/")
    again = copy.deepcopy(model)
    name = "bert/embeddings/word_embeddings"
    (found,) = (x.numpy() for x in again.model.variables if x.path == name)
    np.testing.assert_array_equal(found, weights[name])
    assert again.tokenizer.vocab == model.tokenizer.vocab and not again.tokenizer.do_lower_case
    for path in folder.glob("model.ckpt-3*"):
        path.unlink()
    with pytest.raises(
        UserError, match="run/model.ckpt-3: there is no such folder, and no checkpoint"
    ):
        pickle.loads(pickle.dumps(again))


def test_a_folder_of_hugging_face_is_loaded_again(tmp_path):
    vocab = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##c".replace(" ", "\n")
    folder = write_folder(tmp_path / "hf", make_tensors(ENCODER), vocab)
    model = bert_tf.load(folder)
    again = pickle.loads(pickle.dumps(model))
    assert repr(again) == repr(model)
    for found, expected in zip(again.model.variables, model.model.variables, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("name", ["bert/pooler/dense/bias", "cls/predictions/output_bias"])
def test_a_model_that_was_trained_has_no_pickle(model, name):
    (variable,) = (x for x in model.model.variables if x.path == name)
    before = variable.numpy()
    variable.assign_add(np.full(before.shape, 1e-3, np.float32))
    try:
        for make in (pickle.dumps, copy.deepcopy):
            with pytest.raises(UserError, match=f"but {name} in memory differs from the folder"):
                make(model)
    finally:
        variable.assign(before)
    assert pickle.dumps(model)


def test_a_copy_keeps_the_chosen_task(model):
    for chosen, heads in (
        (model.for_classification(["x", "y", "z"]), ()),
        (model.for_classification(model.labels), model.heads),
        (model.for_sentences(), ()),
    ):
        for again in (copy.copy(chosen), pickle.loads(pickle.dumps(chosen))):
            kind = again._rows("fit")
            assert type(kind) is type(chosen._chosen) and kind.labels == chosen._chosen.labels
            assert again.heads == chosen.heads == heads


def message_in_a_fork(call):
    """Returns the message of the UserError that a call raises in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends a process that waits for ever
        try:
            call()
        except UserError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as reader:
        return reader.read()


CALLS = [
    lambda model: model.encode("a"),
    lambda model: model.classify(["a", ("the", "cat")]),
    lambda model: model.answer("a cat", "the cat ran"),
    lambda model: model.fill_mask("[MASK]"),
    lambda model: model.similarity("a", "the"),
    lambda model: model.attention("a"),
    lambda model: model.tag("a"),
    lambda model: bert_tf.load(model._folder.path),
    # As multiprocessing.Pool does with `pool.map(model.encode, ...)`.
    lambda model: pickle.loads(PICKLES["encode"])(["a"]),
    lambda model: pickle.loads(PICKLES["model"]).classify("a"),
]
PICKLES = {}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_is_told_to_spawn(model, monkeypatch):
    PICKLES.update(encode=pickle.dumps(model.encode), model=pickle.dumps(model))
    for call in CALLS:
        message = message_in_a_fork(lambda call=call: call(model))
        assert message.startswith("This process (")
        assert f"was forked from process {os.getpid()}, which had loaded a model" in message
        assert message.endswith(
            'Start processes with multiprocessing.get_context("spawn"), or load models only in the'
            " processes that use them (gunicorn: without --preload)"
        )
    monkeypatch.setattr(base, "_loaded_in", None)  # one forked before any model was loaded
    assert message_in_a_fork(base.check_process) == ""


def test_calls_leave_no_threads_and_no_objects(model):
    def call():
        model.encode(["a", "the cat"])
        model.encode("a dog")

    call()
    gc.collect()
    threads, objects = threading.active_count(), len(gc.get_objects())
    for _ in range(30):
        call()
    gc.collect()
    assert threading.active_count() <= threads + 4  # the pool may not have had all of its threads
    assert len(gc.get_objects()) < objects + 30


def test_all_models_and_calls_share_a_few_threads():
    idents = set()

    def outputs(features):
        idents.add(threading.get_ident())
        return {"sum": tf.reduce_sum(features["input_ids"], axis=1)}

    rows = [{"input_ids": [1] * 3}] * (3 * BATCH_SIZE)
    for _ in range(10):
        forward = Forward(outputs)
        assert {float(row["sum"]) for row in forward(rows)} == {3.0}
    assert len(idents) <= 4
    assert threading.get_ident() not in idents


def rows_of(lengths):
    return [{"input_ids": [number + 1] * length} for number, length in enumerate(lengths)]


def test_results_keep_the_order_of_the_rows():
    lengths = np.random.default_rng(1).integers(1, 90, 10 * BATCH_SIZE + 7)
    outputs = lambda x: {"sum": tf.reduce_sum(x["input_ids"], axis=1)}  # noqa: E731
    sums = Forward(traced(outputs, ["input_ids"]))
    found = [row["sum"] for row in sums(rows_of(lengths))]
    np.testing.assert_array_equal(found, lengths * np.arange(1, len(lengths) + 1))


@pytest.mark.parametrize("size", [1, 5, np.int64(7), None])
def test_batches_have_the_size_that_is_asked_for(size):
    seen = []

    def compute(arrays):
        seen.append(len(arrays["input_ids"]))
        return {"sum": arrays["input_ids"].sum(axis=1)}

    sums = Forward(compute)
    with batches_of(size):
        found = [row["sum"] for row in sums(rows_of([2] * 11))]
    assert found == [2 * i for i in range(1, 12)]
    assert max(seen) == min(size or 11, 11) and sum(seen) == 11


def test_sizes_of_batches_that_cannot_be():
    for size in (0, -3, 2.0, "8", True, 10**400):
        with pytest.raises(UserError, match="batch_size must be"), batches_of(size):
            pass


def test_after_an_error_no_other_batch_begins():
    begun = []

    def outputs(features):
        begun.append(features["input_ids"].shape)
        time.sleep(0.01)  # on a busy machine, too, the error is seen before the last batch
        raise ValueError("out of memory")

    failing = Forward(outputs)
    with pytest.raises(ValueError, match="out of memory"):
        failing(rows_of([3] * 100 * BATCH_SIZE))
    assert len(begun) < 50


def test_many_models_in_one_process_cause_no_warning(caplog):
    """Each is traced once. TensorFlow warns of five traces in fifteen calls of one function."""
    for scale in range(7):
        scaled = lambda x, scale=scale: {"y": x["input_ids"] * scale}  # noqa: E731
        forward = Forward(traced(scaled, ["input_ids"]))
        assert forward([{"input_ids": [1, 2]}])[0]["y"].tolist() == [scale, 2 * scale]
    assert "retracing" not in caplog.text


@pytest.mark.parametrize(
    ("count", "is_main", "direct"), [(1, True, True), (BATCH_SIZE, True, True), (1, False, False)]
)
def test_a_single_batch_of_the_main_thread_is_computed_in_it(count, is_main, direct):
    """Other threads come and go, and TensorFlow keeps memory for each that called it."""
    idents = []

    def outputs(features):
        idents.append(threading.get_ident())
        return {"sum": tf.reduce_sum(features["input_ids"], axis=1)}

    forward = Forward(outputs)

    def call():
        idents.append(threading.get_ident())
        found = [float(row["sum"]) for row in forward(rows_of([3] * count))]
        assert found == [3.0 * (i + 1) for i in range(count)]

    if is_main:
        call()
    else:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    caller, computing = idents
    assert (caller == computing) is direct
