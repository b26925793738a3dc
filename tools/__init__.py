"""Programs around the main ones: `python -m tools.NAME` in the checkout.

Installed, they are `python -m bert_tf.tools.NAME`. So they import each other relatively.
"""

import os

import bert_tf  # noqa: F401  looks at the installed TensorFlow before a tool imports it

# Holds flags/ and tpu/: the checkout, or the installed package.
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
