"""Tests of bert_tf.model.activations."""

import numpy as np
import tensorflow as tf

from bert_tf.model.activations import gelu, gelu_erf, get_activation
from tests.support import numpy_bert


def test_activations():
    assert get_activation("GELU") is gelu
    assert get_activation(tf.nn.elu) is tf.nn.elu
    assert get_activation("linear") is get_activation("") is get_activation(None) is None
    x = tf.constant([-1.5, 0.5, 2.0])
    np.testing.assert_array_equal(get_activation("relu")(x), [0.0, 0.5, 2.0])
    np.testing.assert_allclose(get_activation("tanh")(x), np.tanh(x), rtol=1e-6)


def test_gelu_is_the_tanh_form_and_gelu_erf_the_exact_one():
    x = np.linspace(-6, 6, 1001)
    tanh_form = gelu(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(tanh_form, numpy_bert.gelu(x), atol=1e-6)
    exact = get_activation("gelu_erf")(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(exact, numpy_bert.gelu_erf(x), atol=1e-6)
    assert np.abs(tanh_form - exact).max() > 3e-4
    assert get_activation("Gelu_Erf") is gelu_erf
