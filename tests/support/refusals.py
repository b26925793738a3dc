"""The messages of errors that name what a user has to change."""

import pytest

from bert_tf.errors import UserError


def refusal(action, *arguments, kind=UserError, **options) -> str:
    """Returns the message of the error that a call raises."""
    with pytest.raises(kind) as info:
        action(*arguments, **options)
    return str(info.value)


def refuses(pattern, action, /, *arguments, kind=UserError, **options) -> None:
    """Checks that a call raises an error whose message has the pattern."""
    with pytest.raises(kind, match=pattern):
        action(*arguments, **options)
