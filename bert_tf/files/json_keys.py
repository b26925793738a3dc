"""`JsonKeys`: checks the keys of a JSON file that a different library wrote."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from absl import logging

from bert_tf.errors import UserError, quoted


class Needed(NamedTuple):
    """The only values that a key may have.

    values: messages name the first.
    reason: why only these are allowed, and what to do otherwise, for messages.
    """

    values: tuple[Any, ...]
    reason: str


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

    def check(self, content: Mapping[str, Any], path: str) -> None:
        """Raises UserError for a value that is not allowed; logs unknown keys for debugging.

        Messages name the file `path`, which has this content.
        """
        for key, (values, reason) in self.needed.items():
            if key in content and content[key] not in values:
                raise UserError(
                    f"{path}: {key} must be {json.dumps(values[0])}, not {quoted(content[key])}:"
                    f" {reason}"
                )
        unknown = content.keys() - {*self.used, *self.needed, *self.harmless}
        if unknown:
            logging.debug("%s: keys that are not used: %s", path, quoted(sorted(unknown)))
