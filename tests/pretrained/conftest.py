"""A model with several heads, for tests that do not change it."""

import pytest

import bert_tf
from tests.support.model_folders import random_weights, write_model


@pytest.fixture(scope="session")
def weights():
    return random_weights("squad", "classifier")


@pytest.fixture(scope="session")
def folder(tmp_path_factory, weights):
    return write_model(tmp_path_factory.mktemp("model"), weights, ["no", "maybe", "yes"])


@pytest.fixture(scope="module")
def model(folder):
    return bert_tf.load(folder)
