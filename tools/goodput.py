"""Shows where a run's wall time went, as a table and a picture.

    python -m tools.goodput output/base
    python -m tools.goodput output/base --output=base.png

The argument is the --output_dir of a run. The tool reads `goodput.json` there, which the run writes
with every checkpoint and when it ends. The table adds up the time of each part over all starts of
the run. Below it is a line for each of the run's other processes. The picture is written to
`goodput.png` in the same folder, or to the file --output.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.goodput")

import datetime
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.runs.folder import goodput
from bert_tf.runs.folder.goodput import PARTS, Record

from .draw.pictures import import_matplotlib, write_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLAGS = flags.FLAGS


def read_run(output_dir: str) -> Record:
    record = goodput.read(output_dir)
    if record is None:
        raise UserError(
            f"{output_dir} must be the --output_dir of a run that trained, but it has no"
            f" {goodput.FILE_NAME}"
        )
    return record


def describe_others(output_dir: str) -> list[str]:
    """Returns a line for each process that the run ever had, except the first."""
    lines: list[str] = []
    while record := goodput.read(output_dir, len(lines) + 1):
        waits = record.seconds["input"] / max(sum(record.seconds.values()), 1e-9)
        lines.append(
            f"process {len(lines) + 1}, until {_time(record.until)}: goodput"
            f" {100 * record.goodput():.1f}%,"
            f" {100 * record.goodput_beyond_start_up():.1f}% beyond start-up,"
            f" {100 * waits:.1f}% waiting for input"
        )
    return lines


def table(record: Record) -> str:
    """Returns the time and the share of each part, their sum, and the goodput."""
    whole = record.until - record.first_start
    total = sum(record.seconds.values())
    lines = [f"first started {_time(record.first_start)}, started {record.starts} times"]
    rows = [(name, record.seconds[part]) for part, name in PARTS.items()]
    for name, seconds in (*rows, ("sum", total), ("wall time", whole)):
        lines.append(f"{name:24}{seconds:12.1f} s{100 * seconds / max(whole, 1e-9):8.1f}%")
    lines.append(f"goodput: {100 * record.goodput():.1f}% of all time")
    lines.append(f"goodput beyond start-up: {100 * record.goodput_beyond_start_up():.1f}%")
    if abs(total - whole) > 0.01 * whole:
        lines.append("The sum differs from the wall time: the machines' clocks differ.")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "seconds")


def draw(record: Record, title: str) -> "Figure":
    matplotlib = import_matplotlib()
    figure = matplotlib.figure.Figure((7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    names, seconds = [*PARTS.values()], [record.seconds[part] for part in PARTS]
    unit, size = ("hours", 3600.0) if sum(seconds) >= 3600 else ("seconds", 1.0)
    bars = axes.barh(names, [s / size for s in seconds], color=["C2", *["C0"] * 6, "C3", "0.6"])
    total = max(sum(seconds), 1e-9)
    axes.bar_label(bars, [f"{100 * s / total:.1f}%" for s in seconds], padding=3, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(unit, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.set_title(
        f"{title}: goodput {100 * record.goodput():.1f}%,"
        f" {100 * record.goodput_beyond_start_up():.1f}% beyond start-up",
        fontsize=11,
    )
    return figure


def check_words(words: Sequence[str]) -> None:
    if len(words) != 1:
        raise UserError("name the output directory of one run: python -m tools.goodput OUTPUT_DIR")


def main(words: Sequence[str]) -> None:
    output_dir = words[0]
    record = read_run(output_dir)
    print(table(record), *describe_others(output_dir), sep="\n")
    name = os.path.basename(output_dir.rstrip("/"))
    path = FLAGS.output or os.path.join(output_dir, "goodput.png")
    write_png(draw(record, name), path, flag="output" if FLAGS.output else None)


if __name__ == "__main__":
    flags.DEFINE_string(
        "output", None, "The PNG file to write. Default: goodput.png in the run's directory."
    )
    command_flags.run_program(main, takes_words=True, check_words=check_words)
