"""Compares dictionaries of arrays."""

import numpy as np


def assert_same_arrays(actual, expected):
    """Both have the same names, with equal values; either may hold variables or arrays."""
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(
            np.asarray(actual[name]), np.asarray(expected[name]), err_msg=name
        )
