"""Tests of bert_tf.tasks.squad.settings."""

import math

import pytest

from bert_tf.errors import UserError
from tests.support.squad_files import settings_of_lengths


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -math.inf])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(UserError, match="null_score_diff_threshold=.* must be a finite number"):
        settings_of_lengths(null_score_diff_threshold=threshold)
