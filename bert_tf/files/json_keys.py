"""`JsonKeys`: what becomes of each key of a JSON file that another library wrote."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from absl import logging

from bert_tf.errors import UserError, quoted


class Needed(NamedTuple):
    """The only values that a key may have.

    values: the first one is named in messages.
    reason: why it must have one of them, and what to do otherwise, for messages.
    """

    values: tuple[Any, ...]
    reason: str


@dataclasses.dataclass(frozen=True)
class JsonKeys:
    """What becomes of the keys of a file.

    used: keys that are read.
    needed: keys that may have a few values only; a file may lack them.
    harmless: keys on which no output depends.
    """

    used: Collection[str]
    needed: Mapping[str, Needed] = dataclasses.field(default_factory=dict)
    harmless: Collection[str] = ()

    def check(self, content: Mapping[str, Any], path: str) -> None:
        """Checks the keys of a file. A key that is in no table is ignored so far.

        Args:
            content: of the file.
            path: the file, for messages.

        Raises:
            UserError: a key of `needed` has another value.
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
