"""`PieceTrie`: splits all words into word pieces at once, in TensorFlow operations.

Each word is read from left to right in a trie of the vocabulary. If a node has no edge for the next
character, the trie says which pieces end there and at which node to continue (Song et al., "Fast
WordPiece Tokenization", 3.1). All words are read at once; n characters take at most 2n + 1 steps.
"""

import itertools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.export.unicode_tables import SPACE, narrow

# Nodes: the start of a word's first piece, the start of a later piece, and no node.
FIRST_PIECE, LATER_PIECE, NOWHERE = 0, 1, -1
_NO_PIECE = tf.int32.min


class PieceTrie(tf.Module):
    """Splits words like `tokenization.WordpieceTokenizer`, and returns ids.

    K: symbols of all texts, W: words of all texts, N: texts, P: pieces of all texts. For `letters`,
    character -> symbol, see `unicode_tables.letters_of`.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        letters: Mapping[str, int],
        unknown_id: int,
        max_input_chars_per_word: int,
    ):
        super().__init__()
        names, ids = _nodes(vocab, max_input_chars_per_word)
        number = {name: i for i, name in enumerate(names)}
        failures, pieces = _failures(names, number, ids)
        self._unknown_id = unknown_id
        self._max_input_chars_per_word = max_input_chars_per_word

        # Nodes are in the order of the edges that lead to them: edge i leads to node i + 2. An edge
        # is stored as (its first node) * symbols + symbol. The last edge is a sentinel.
        self._num_symbols = max(letters.values(), default=0) + 1
        edges = [number[name[:-1]] * self._num_symbols + letters[name[-1]] for name in names[2:]]
        edges = np.array([*edges, len(names) * self._num_symbols])
        self._edges = tf.constant(edges, tf.int32 if narrow(edges).dtype != np.int64 else tf.int64)
        self._failures = tf.constant(failures, tf.int32)
        depths = [len(name) - 1 for name in names]
        self._first_of_depth = tf.constant(np.searchsorted(depths, range(depths[-1] + 1)), tf.int32)

        # The pieces that end if a node has no edge. Nodes with the same pieces share a list.
        lists = {found: i for i, found in enumerate(dict.fromkeys(pieces))}
        self._list_of = tf.constant(narrow(np.array([lists[found] for found in pieces])))
        self._list_starts = tf.constant(np.cumsum([0, *map(len, lists)]), tf.int32)
        flat = np.array([*itertools.chain(*lists)], np.int64).reshape(-1, 2)
        self._piece_ids = tf.constant(flat[:, 0], tf.int32)
        self._piece_offsets = tf.constant(narrow(flat[:, 1]))

    def __call__(self, symbols: tf.Tensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids, int32 [N, None], of texts."""
        # `symbols`, int32 [K], of `TextSymbols`, end with SPACE; `row_splits` are int64 [N + 1].
        in_word = symbols != SPACE
        after_space = tf.concat([[True], ~in_word[:-1]], 0)
        starts = tf.cast(tf.where(in_word & after_space)[:, 0], tf.int32)  # [W]
        ends = tf.cast(tf.where(~in_word & ~after_space)[:, 0], tf.int32)  # [W]
        is_long = ends - starts > self._max_input_chars_per_word
        position, node = self._walk(symbols, tf.boolean_mask(starts, ~is_long))

        # Converts positions to word numbers.
        stuck = tf.boolean_mask(position, tf.gather(self._failures, node) == NOWHERE)
        stuck = tf.searchsorted(starts, stuck, side="right") - 1
        is_unknown = tf.tensor_scatter_nd_update(
            is_long, stuck[:, tf.newaxis], tf.ones_like(stuck, tf.bool)
        )
        id_at, piece_at = self._pieces(position, node)
        word = tf.searchsorted(starts, piece_at, side="right") - 1
        is_good = ~tf.gather(is_unknown, word)
        id_at, piece_at = tf.boolean_mask(id_at, is_good), tf.boolean_mask(piece_at, is_good)
        unknown_at = tf.boolean_mask(starts, is_unknown)
        ids = tf.tensor_scatter_nd_update(
            tf.fill(tf.shape(symbols), _NO_PIECE),
            tf.concat([piece_at, unknown_at], 0)[:, tf.newaxis],
            tf.concat([id_at, tf.fill(tf.shape(unknown_at), self._unknown_id)], 0),
        )
        has_piece = tf.where(ids != _NO_PIECE)[:, 0]  # [P]
        return tf.RaggedTensor.from_row_splits(
            tf.gather(ids, has_piece),
            tf.searchsorted(has_piece, row_splits, out_type=tf.int64),
            validate=False,
        )

    def _walk(self, symbols: tf.Tensor, starts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Reads words; returns where no edge was found: int32 positions in `symbols`, and nodes."""
        sorted_edges = self._edges[tf.newaxis]

        def step(number, position, node, positions, nodes):
            symbol = tf.gather(symbols, position)
            edge = tf.cast(node, self._edges.dtype) * self._num_symbols
            edge += tf.cast(symbol, self._edges.dtype)
            # tf.searchsorted would run this operation and several more.
            index = tf.raw_ops.LowerBound(sorted_inputs=sorted_edges, values=edge[tf.newaxis])[0]
            found = tf.gather(self._edges, index) == edge
            failed = tf.where(~found)[:, 0]
            positions = positions.write(number, tf.gather(position, failed))
            nodes = nodes.write(number, tf.gather(node, failed))
            node = tf.where(found, index + 2, tf.gather(self._failures, node))
            is_done = (symbol == SPACE) & (node == LATER_PIECE) | (node == NOWHERE)
            going = tf.where(~is_done)[:, 0]
            position += tf.cast(found, tf.int32)
            return number + 1, tf.gather(position, going), tf.gather(node, going), positions, nodes

        def empty_array():
            options = {"dynamic_size": True, "infer_shape": False, "element_shape": [None]}
            array = tf.TensorArray(tf.int32, 1, **options)
            return array.write(0, tf.zeros([0], tf.int32))

        *_, positions, nodes = tf.while_loop(
            lambda number, position, *_: tf.size(position) > 0,
            step,
            [1, starts, tf.fill(tf.shape(starts), FIRST_PIECE), empty_array(), empty_array()],
            shape_invariants=[*map(tf.TensorShape, ([], [None], [None], None, None))],
        )
        return positions.concat(), nodes.concat()

    def _pieces(self, position: tf.Tensor, node: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the pieces that end where no edge was found: ids, and where they begin."""
        depth = tf.searchsorted(self._first_of_depth, node, side="right") - 1
        which = tf.cast(tf.gather(self._list_of, node), tf.int32)
        pieces = tf.ragged.range(
            tf.gather(self._list_starts, which), tf.gather(self._list_starts, which + 1)
        )
        offset = tf.cast(tf.gather(self._piece_offsets, pieces.values), tf.int32)
        begin = tf.gather(position - depth, pieces.value_rowids())
        return tf.gather(self._piece_ids, pieces.values), begin + offset


def _nodes(
    vocab: Mapping[str, int], max_input_chars_per_word: int
) -> tuple[list[str], dict[str, int]]:
    # A node's name is "0" (first piece of a word) or "1" (later piece) plus the characters that
    # lead to it. Nodes are sorted by depth, then by name. Tokens that cannot occur in a word are
    # left out.
    ids = {}
    for token, token_id in vocab.items():
        # Words never begin with "##": "#" is punctuation, which is split off.
        is_later = token.startswith("##")
        name = f"1{token[2:]}" if is_later else f"0{token}"
        if 1 < len(name) <= 1 + max_input_chars_per_word:
            ids[name] = token_id
    names = {"0", "1"}
    for name in ids:
        names.update(name[:end] for end in range(2, len(name) + 1))
    return sorted(names, key=lambda name: (len(name), name)), ids


def _failures(
    names: list[str], number: dict[str, int], ids: dict[str, int]
) -> tuple[list[int], list[tuple[tuple[int, int], ...]]]:
    """Returns, for each node, what to do if it has no edge for the next character.

    The first list has the nodes to continue from; NOWHERE if no pieces can spell the word. The
    second has the pieces before the new node: (id, offset from the old node's first character).
    """
    failures = [NOWHERE, NOWHERE]
    pieces: list[tuple[tuple[int, int], ...]] = [(), ()]
    for name in names[2:]:
        parent = number[name[:-1]]
        if name in ids:
            failures.append(LATER_PIECE)
            pieces.append(((ids[name], 0),))
            continue
        node, found = failures[parent], pieces[parent]
        while node != NOWHERE and names[node] + name[-1] not in number:
            offset = len(names[parent]) - len(names[node])
            found += tuple((token_id, offset + start) for token_id, start in pieces[node])
            node = failures[node]
        failures.append(node if node == NOWHERE else number[names[node] + name[-1]])
        pieces.append(found if node != NOWHERE else ())
    return failures, pieces
