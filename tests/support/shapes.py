"""Models whose variables are names and shapes alone."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def variables_without_values() -> Iterator[None]:
    """Within it a new variable takes no memory and no time, and never gets a value.

    Keras notes each such variable and would give all of them their values in the next scope of
    the kind, the one that `fit` opens for instance. So the notes are dropped.
    """
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.backend.clear_session()
