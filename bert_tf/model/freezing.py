"""--freeze_layers: which of BERT's layers keep their weights in fine-tuning."""

import re
from collections.abc import Callable

from bert_tf.errors import UserError


def parse_frozen_layers(text: str, num_hidden_layers: int) -> Callable[[str], bool]:
    """Returns whether the variable of a name is frozen.

    Args:
        text: a list with commas of `embeddings`, `pooler`, numbers of encoder layers counted from
            0 (`3`) and ranges of them (`0-5`); or `all` for the whole of BERT, which leaves the
            task's head to be trained. Empty for none.
        num_hidden_layers: how many encoder layers there are.

    Raises:
        UserError: a part is none of these.
    """
    scopes: list[str] = []
    for part in filter(None, text.split(",")):
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if part == "all":
            scopes.append("bert/")
        elif part in ("embeddings", "pooler"):
            scopes.append(f"bert/{part}/")
        elif numbers and int(numbers[1]) <= int(numbers[2] or numbers[1]) < num_hidden_layers:
            layers = range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1)
            scopes += [f"bert/encoder/layer_{i}/" for i in layers]
        else:
            raise UserError(
                "--freeze_layers is a list with commas of all, embeddings, pooler, encoder layers"
                f" from 0 to {num_hidden_layers - 1} and ranges of them such as 0-2; not {part!r}"
            )
    return lambda name: name.startswith(tuple(scopes))
