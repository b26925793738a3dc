"""Draws the attention of a text: as one HTML page that works offline, or with matplotlib."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.pretrained.results import TextAttention

from .pictures import import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name("attention.html")
COLORS = ("#0b57c2", "#b4490c")  # of the first and the second text of a pair
_ROW = 0.19  # inches of a token
_CELL = 0.62  # inches of a head in the grid


def attention_page(attention: TextAttention, model: str, layer: int = 0, head: int = 0) -> str:
    """Returns the page: a square for each head, and the lines of the head chosen on the page.

    The page fetches nothing, and a token is never read as HTML. A weight is stored in one byte as
    255 times its square root, so its error is at most 0.004, and much less for small weights.
    `model` is the page's line about the model. `layer` and `head`, from 0, are shown first.
    """
    layers, heads = attention.probabilities.shape[:2]
    codes = np.rint(255 * np.sqrt(np.clip(attention.probabilities, 0, 1))).astype(np.uint8)
    data = {
        "model": model,
        "tokens": attention.tokens,
        "segments": attention.segment_ids.tolist(),
        "layers": layers,
        "heads": heads,
        "layer": layer,
        "head": head,
        "weights": base64.b64encode(codes.tobytes()).decode(),
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = template.replace("@SCRIPT_HASH@", f"sha256-{digest}")
    # In a script element only `<` can have another meaning than in JSON: `</script>`, `<!--`.
    return template.replace("@DATA@", json.dumps(data).replace("<", r"\u003c"))


def draw_heads(attention: TextAttention) -> "Figure":
    """Returns a grid with a square for each head, where the tokens of rows attend to columns."""
    matplotlib = import_matplotlib()
    layers, heads = attention.probabilities.shape[:2]
    size = (0.6 + _CELL * heads, 0.6 + _CELL * layers)
    figure = matplotlib.figure.Figure(size, layout="constrained")
    axes = figure.subplots(layers, heads, squeeze=False)
    for (layer, head), square in np.ndenumerate(axes):
        # The power makes small weights visible, as on the page.
        square.imshow(attention.probabilities[layer, head] ** 0.6, cmap="Greys", vmin=0, vmax=1)
        square.set(xticks=[], yticks=[])
        if layer == 0:
            square.set_title(str(head), fontsize=9)
        if head == 0:
            square.set_ylabel(str(layer), rotation=0, fontsize=9, ha="right", va="center")
    figure.supxlabel("columns: heads", fontsize=9)
    figure.supylabel("rows: layers", fontsize=9)
    return figure


def draw_head(attention: TextAttention, layer: int, head: int) -> "Figure":
    """Returns the picture of one head: tokens on both sides, and a line for each weight."""
    matplotlib = import_matplotlib()
    from matplotlib.collections import LineCollection

    length = len(attention.tokens)
    figure = matplotlib.figure.Figure((5, 0.7 + _ROW * length), layout="constrained")
    axes = figure.add_subplot()
    weights = attention.probabilities[layer, head].ravel()
    order = np.argsort(weights, kind="stable")  # the strongest line is drawn last, on top
    rows, columns = np.unravel_index(order, (length, length))
    ends = np.stack([np.zeros(length**2), rows, np.ones(length**2), columns], axis=1)
    colors = matplotlib.colors.to_rgba_array([COLORS[attention.segment_ids[row]] for row in rows])
    colors[:, 3] = np.clip(weights[order], 0, 1) ** 0.75
    widths = 0.3 + 1.7 * weights[order]
    axes.add_collection(LineCollection(ends.reshape(-1, 2, 2), colors=colors, linewidths=widths))
    axes.set(xlim=(-0.01, 1.01), ylim=(length - 0.5, -0.5), xticks=[], yticks=[])
    axes.set_title(f"Layer {layer}, head {head}", fontsize=10)
    axes.spines[:].set_visible(False)
    _write_tokens(axes, attention, 0, "right")
    _write_tokens(axes, attention, 1, "left")
    return figure


def _write_tokens(axes: "Axes", attention: TextAttention, side: int, align: str) -> None:
    """Writes the tokens beside bars that tell the sentences apart; side 0 is the left."""
    place = (-0.03, 1.03)[side]
    for row, token in enumerate(attention.tokens):
        segment = attention.segment_ids[row]
        axes.text(place, row, token, ha=align, va="center", fontsize=8)
        style = {"color": COLORS[segment], "linestyle": ("-", (0, (1, 0.6)))[segment]}
        ends = [row - 0.5, row + 0.5]
        axes.plot([side, side], ends, **style, linewidth=2.5, solid_capstyle="butt")
