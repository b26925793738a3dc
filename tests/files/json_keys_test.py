"""Tests of bert_tf/files/json_keys.py."""

import pytest

from bert_tf.errors import UserError
from bert_tf.files.json_keys import JsonKeys, Needed

KEYS = JsonKeys({"size"}, {"is_odd": Needed((False, None), "there is no such one.")}, {"made_by"})


@pytest.mark.parametrize("odd", [{}, {"is_odd": False}, {"is_odd": None}])
def test_keys_that_pass(odd):
    KEYS.check({"size": 3, "made_by": "a tool", **odd}, "a.json")


@pytest.mark.parametrize("value", [True, "no", [False], {}])
def test_a_key_that_may_not_have_a_value(value):
    with pytest.raises(UserError) as error:
        KEYS.check({"is_odd": value}, "a.json")
    assert str(error.value) == f"a.json: is_odd must be false, not {value!r}: there is no such one."


def test_an_unknown_key():
    with pytest.raises(UserError) as error:
        KEYS.check({"size": 3, "never heard of": [1]}, "a.json")
    assert str(error.value) == (
        "a.json: never heard of is not known, so it may change what the model answers; it is [1]."
        " Choose a different model or, if it does not matter for this one, delete the key"
    )
