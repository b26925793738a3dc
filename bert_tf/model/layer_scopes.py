"""--freeze_layers and --layerwise_lr_decay: which layers fine-tuning changes, and how fast."""

import re
from collections.abc import Callable, Sequence

from bert_tf.errors import UserError, quoted

# Part of a model -> its scopes in BERT and ELECTRA. ALBERT's encoder widens the embeddings.
PARTS = {
    "all": ["bert/", "electra/"],
    "embeddings": [
        *("bert/embeddings/", "bert/encoder/embedding_hidden_mapping_in/"),
        *("electra/embeddings/", "electra/embeddings_project/"),
    ],
    "pooler": ["bert/pooler/"],
}


def parse_frozen_layers(
    text: str, layer_scopes: Sequence[str], has_pooler: bool = True
) -> Callable[[str], bool]:
    """Returns a function that says, by a variable's name, whether it is frozen.

    `text` is the value of --freeze_layers, separated by commas: `embeddings` (with the layer that
    widens ALBERT's or ELECTRA's), `pooler`, indices of encoder layers or ALBERT's groups (`3`),
    ranges of them (`0-5`, both ends included), or `all` for all of BERT, so that only the task's
    head is trained. "" freezes nothing.
    """
    scopes: list[str] = []
    for part in filter(None, text.split(",")):
        numbers = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if part == "pooler" and not has_pooler:
            raise UserError(
                f"--freeze_layers={text} names the pooler, which an ELECTRA does not have; leave"
                " pooler out"
            )
        if part in PARTS:
            scopes += PARTS[part]
        elif numbers and int(numbers[1]) <= int(numbers[2] or numbers[1]) < len(layer_scopes):
            scopes += layer_scopes[int(numbers[1]) : int(numbers[2] or numbers[1]) + 1]
        else:
            raise UserError(
                "--freeze_layers takes all, embeddings, pooler, encoder layers from 0 to"
                f" {len(layer_scopes) - 1} and ranges of them such as 0-2, separated by commas;"
                f" not {quoted(part)}"
            )
    return lambda name: name.startswith(tuple(scopes))


def layerwise_lr_factors(decay: float, layer_scopes: Sequence[str]) -> dict[str, float]:
    """Returns the factor by which the learning rate of each part of BERT is multiplied.

    As in google-research/electra (`_get_layer_lrs` in its model/optimization.py): the last of L
    layers has decay ** 2, the exponent grows by one for each layer below, and the embeddings have
    decay ** (L + 2). The task's head, which is not in the result, keeps the full rate. BERT's
    pooler has decay ** 1; ELECTRA, without a pooler, does not use this exponent.

    Args:
        decay: above 0 and at most 1; 1 gives all weights the same rate.
        layer_scopes: `BertConfig.layer_scopes`. ALBERT's layers share weights, so each group of
            layers counts as one layer.

    Returns:
        Prefixes of variables' names, and their factors.
    """
    parts = [*([scope] for scope in layer_scopes), PARTS["pooler"]]
    top = len(layer_scopes) + 2
    depths = {scope: 0 for scope in PARTS["embeddings"]}
    depths |= {scope: depth for depth, part in enumerate(parts, 1) for scope in part}
    return {scope: decay ** (top - depth) for scope, depth in depths.items()}
