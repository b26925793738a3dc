"""Tests of a loaded model in other processes and threads: pickles, forks, and what calls leave."""

import copy
import gc
import os
import pickle
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.pretrained.forward import BATCH_SIZE, Forward
from bert_tf.pretrained.methods import base
from tests.support.hugging_face_folders import ENCODER, make_tensors, write_folder
from tests.support.model_folders import random_weights, write_model


@pytest.fixture(scope="module")
def weights():
    return random_weights("classifier", "squad", seed=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory, weights):
    return bert_tf.load(write_model(tmp_path_factory.mktemp("model"), weights), max_seq_length=6)


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
    with pytest.raises(UserError, match="run/model.ckpt-3: a checkpoint is named by its prefix"):
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
            with pytest.raises(UserError, match=f"differ now, here or there, such as {name}. Save"):
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


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "call",
    [
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
    ],
)
def test_a_forked_process_is_told_to_spawn(model, call):
    PICKLES.update(encode=pickle.dumps(model.encode), model=pickle.dumps(model))
    message = message_in_a_fork(lambda: call(model))
    assert message.startswith("This process (")
    assert f"was forked from process {os.getpid()} after that had loaded a model" in message
    assert message.endswith(
        'Start processes with multiprocessing.get_context("spawn"), or load models only in the'
        " processes that use them (gunicorn: without --preload)"
    )


PICKLES = {}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_forked_before_any_model_was_loaded_is_none_of_these(monkeypatch):
    monkeypatch.setattr(base, "_loaded_in", None)
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
