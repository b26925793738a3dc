"""Models whose variables have only names and shapes."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def variables_without_values() -> Iterator[None]:
    """Makes new variables without values, which takes no memory and no time.

    Keras would initialize them in the next such scope, for instance in `fit`. So it must forget
    them.
    """
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.backend.clear_session()
