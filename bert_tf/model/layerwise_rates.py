"""--layerwise_lr_decay: lower learning rates for layers that are closer to the input."""

from collections.abc import Sequence

from bert_tf.model.freezing import PARTS


def layerwise_lr_factors(decay: float, layer_scopes: Sequence[str]) -> dict[str, float]:
    """Returns the factor by which the learning rate of each part of BERT is multiplied.

    As in google-research/electra (`_get_layer_lrs` in its model/optimization.py): of L layers, the
    last has decay ** 2, each layer below once more the decay, and the embeddings decay ** (L + 2).
    The task's head, which is not in the result, keeps the whole rate. BERT's pooler has decay ** 1,
    a step that ELECTRA, without a pooler, leaves empty.

    Args:
        decay: above 0 and at most 1; 1 gives all weights the same rate.
        layer_scopes: `BertConfig.layer_scopes`. ALBERT's layers share weights, so each group of
            layers counts as one layer.

    Returns:
        Beginnings of variables' names, and their factors.
    """
    parts = [*([scope] for scope in layer_scopes), PARTS["pooler"]]
    top = len(layer_scopes) + 2
    depths = {scope: 0 for scope in PARTS["embeddings"]}
    depths |= {scope: depth for depth, part in enumerate(parts, 1) for scope in part}
    return {scope: decay ** (top - depth) for scope, depth in depths.items()}
