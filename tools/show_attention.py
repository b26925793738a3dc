"""Draws a model's attention within a text, as one HTML page or as a PNG picture.

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

import os

from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.files.storage import ending_of
from bert_tf.files.whole_files import write_whole
from bert_tf.pretrained.results import TextAttention
from bert_tf.runs.flags import command_flags
from bert_tf.tasks.extraction.lines import split_line

from . import load_input
from .draw.attention import attention_page, draw_head, draw_heads
from .draw.pictures import import_matplotlib, write_png

FLAGS = flags.FLAGS

_FORMATS = ("html", "png")


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
