"""Tests of bert_tf.tasks.squad.settings."""

import math

import pytest

from bert_tf.errors import UserError
from bert_tf.runs.flags.setting_fields import flags_of, rule_of
from bert_tf.tasks.squad.settings import SquadSettings
from tests.support.squad_files import settings_of_lengths


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -math.inf])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(UserError, match="null_score_diff_threshold=.* must be a finite number"):
        settings_of_lengths(null_score_diff_threshold=threshold)


def test_the_text_needs_room():
    with pytest.raises(UserError, match="--max_seq_length=67 must be greater than --max_query_"):
        settings_of_lengths(67)
    assert settings_of_lengths(68)


def test_length_buckets_are_off_by_default():
    (field,) = [field for field in flags_of(SquadSettings) if field.name == "length_buckets"]
    assert field.default == "none"
    assert "the original's loss and n-best lists count" in rule_of(field).help
