"""Reads JSON files that a different library wrote, and checks their keys: `JsonKeys`."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from bert_tf.errors import UserError, as_given, quoted
from bert_tf.files.whole_files import read_json
from bert_tf.start import lazy_tensorflow as tf


class Needed(NamedTuple):
    """The only values that a key may have.

    values: messages name the first.
    reason: why only these are allowed, and what to do otherwise, for messages.
    """

    values: tuple[Any, ...]
    reason: str = "no other value is supported. Choose a different model"


@dataclasses.dataclass(frozen=True)
class JsonKeys:
    """How the keys of a file are handled.

    used: keys that are read.
    needed: keys that may only have certain values; a file may lack them.
    harmless: keys that do not affect the output.
    """

    used: Collection[str]
    needed: Mapping[str, Needed] = dataclasses.field(default_factory=dict)
    harmless: Collection[str] = ()

    @property
    def known(self) -> set[str]:
        """All keys that a file may have."""
        return {*self.used, *self.needed, *self.harmless}

    def check(self, content: Mapping[str, Any], path: str) -> None:
        """Raises UserError for an unknown key, or a value that is not allowed.

        Messages name the file `path`, which has this content.
        """
        for key, (values, reason) in self.needed.items():
            if key in content and content[key] not in values:
                raise UserError(
                    f"{path}: {key} must be {json.dumps(values[0])}, not {quoted(content[key])}:"
                    f" {reason}"
                )
        unknown = sorted(content.keys() - self.known)
        if unknown:
            raise UserError(
                f"{path}: {as_given(unknown[0])} is not known, so it may change what the model"
                f" answers; it is {quoted(content[unknown[0]])}. Choose a different model or, if it"
                " does not matter for this one, delete the key"
            )


def read_checked(
    path: str, keys: JsonKeys | None = None, kind: type[list] | type[dict] = dict
) -> Any:
    """Returns the list or dictionary in a JSON file; empty if there is no such file.

    `keys`, if given, check the dictionary, or each dictionary in the list. Raises UserError if the
    file cannot be read, is damaged or holds something else.
    """
    if not tf.io.gfile.exists(path):
        return kind()
    content = read_json(path, path, "correct or delete it")
    if not isinstance(content, kind):
        wanted = "a list" if kind is list else "a dictionary"
        raise UserError(
            f"{path} must hold {wanted}; received {quoted(content)}. Correct or delete it"
        )
    for entry in content if kind is list else [content]:
        if keys and isinstance(entry, dict):
            keys.check(entry, path)
    return content
