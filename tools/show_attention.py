r"""Draws a model's attention within a text, as one HTML page or as a PNG picture.

    python -m tools.show_attention --input=FOLDER --text="The cat sat." --output=attention.html
    python -m tools.show_attention --input=FOLDER --text="A cat. ||| It sat." --output=pair.html
    python -m tools.show_attention --input=FOLDER --text="The cat sat." --format=png \
        --output=heads.png

--input is any folder that bert_tf.load takes. ` ||| ` separates the two texts of a pair.

The page shows the tokens on both sides with lines between them, and all heads as small squares to
choose from. It loads nothing from the network, so you can send it and open it anywhere.
--format=png makes a picture for papers: all heads, or with --layer and --head the lines of one
head. Layers and heads count from 0.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.show_attention")

import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.files.storage import ending_of
from bert_tf.files.whole_files import write_whole
from bert_tf.pretrained.results import TextAttention
from bert_tf.runs.flags import command_flags
from bert_tf.tasks.extraction.lines import split_line

from . import load_input
from .draw.pictures import import_matplotlib, write_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLAGS = flags.FLAGS

_FORMATS = ("html", "png")
TEMPLATE = Path(__file__).with_name("draw") / "attention.html"
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
    # In a script element only `<` can have a different meaning than in JSON: `</script>`, `<!--`.
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


def check_output(output: str, output_format: str) -> None:
    if ending_of(output) != f".{output_format}":
        raise UserError(
            f"--output must end in .{output_format} with --format={output_format}; received"
            f" {output}"
        )
    if output_format == "png":
        import_matplotlib()


def check_head(attention: TextAttention, layer: int | None, head: int | None) -> None:
    if (layer is None) != (head is None):
        raise UserError("give both --layer and --head, or neither")
    chosen = {"layer": layer, "head": head}
    for (name, number), count in zip(chosen.items(), attention.probabilities.shape, strict=False):
        if number is not None and not 0 <= number < count:
            raise UserError(
                f"--{name} must be from 0 to {count - 1} for this model; received {number}"
            )


def main() -> None:
    check_output(FLAGS.output, FLAGS.format)
    first, second = split_line(FLAGS.text)
    model = load_input(FLAGS.input)
    attention = model.attention((first, second) if second else first)
    check_head(attention, FLAGS.layer, FLAGS.head)
    if FLAGS.format == "png":
        one = FLAGS.layer is not None
        figure = draw_head(attention, FLAGS.layer, FLAGS.head) if one else draw_heads(attention)
        write_png(figure, FLAGS.output, flag="output")
        return
    about = f"Model: {os.path.basename(FLAGS.input.rstrip('/'))}"
    page = attention_page(attention, about, FLAGS.layer or 0, FLAGS.head or 0)
    write_whole(FLAGS.output, page, f"--output={FLAGS.output}")
    logging.info("Wrote %s, %.1f MB; open it in a browser", FLAGS.output, len(page) / 1e6)


if __name__ == "__main__":
    flags.DEFINE_string("input", None, "The folder of the model.", required=True)
    flags.DEFINE_string("text", None, "The text, or two with ' ||| ' between them.", required=True)
    flags.DEFINE_string("output", None, "The file to write.", required=True)
    flags.DEFINE_enum("format", "html", _FORMATS, "A page or a picture.")
    flags.DEFINE_integer("layer", None, "The layer to draw; the page shows it first.")
    flags.DEFINE_integer("head", None, "The head to draw; the page shows it first.")
    command_flags.run_program(main)
