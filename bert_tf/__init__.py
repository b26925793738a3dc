"""BERT for TensorFlow 2 and Keras 3.

`load` gets a trained model from a folder:

    import bert_tf

    model = bert_tf.load("uncased_L-12_H-768_A-12")
    print(model.fill_mask("Paris is the [MASK] of France."))
"""

from typing import TYPE_CHECKING

from bert_tf import installation

if TYPE_CHECKING:
    from bert_tf.pretrained.model import load as load

installation.check()  # before any module of the library imports TensorFlow


def __getattr__(name: str):
    # Not imported above: programs come here first, and import TensorFlow in their own way.
    if name == "load":
        from bert_tf.pretrained.model import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
