"""Draws the curves of one or several runs as a PNG file.

    python -m tools.plot_training output/mrpc --output=output/mrpc.png
    python -m tools.plot_training output/trials/* --output=output/trials.png

After the tool's name come the output directories of the runs. The picture has the loss, each
metric that was evaluated, and the learning rate. Training's curves are lines; evaluations are
points with dashes between them. They are read from the files that a run writes for TensorBoard,
in its --output_dir and in `eval` there; the original's programs write such files, too.

A run that was stopped and resumed may have made some steps twice. They are drawn once, as they
were made the last time.
"""

import dataclasses
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from absl import flags

from bert_tf.runs.flags import command_flags  # first: it keeps TensorFlow's start quiet

# isort: split
import tensorflow as tf

from bert_tf.errors import UserError, listed

from .draw.pictures import import_matplotlib, write_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLAGS = flags.FLAGS

_LOSS, _RATE = "loss", "learning_rate"
_COLUMNS = 3
_COLORS = 10  # of matplotlib's cycle
_STYLES = ("-", ":", "-.")  # of training, when the colours begin anew

# Steps and values in order; each step is there once.
Curve = list[tuple[int, float]]


@dataclasses.dataclass(frozen=True)
class RunCurves:
    """The curves of a run.

    name: what tells it from the other runs.
    training: curves of training by name.
    evaluation: curves of evaluation by the same names.
    """

    name: str
    training: dict[str, Curve]
    evaluation: dict[str, Curve]


def read_curves(directory: str) -> dict[str, Curve]:
    """Returns the curves in TensorBoard's files of a directory by name; {} if there are none.

    When a point is not after those before it, the run was resumed from an earlier step: it
    replaces the points from its step on.
    """
    # It takes a second to import.
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    paths = tf.io.gfile.glob(os.path.join(directory, "*tfevents*"))
    events = [event for path in paths for event in EventFileLoader(path).Load()]
    curves: dict[str, Curve] = {}
    for event in sorted(events, key=lambda event: event.wall_time):
        for value in event.summary.value:
            number = tf.make_ndarray(value.tensor)
            if number.size != 1 or number.dtype.kind != "f":
                continue  # a text or a picture, in files of other programs
            curve = curves.setdefault(value.tag.removeprefix("eval_"), [])
            while curve and curve[-1][0] >= event.step:
                curve.pop()
            curve.append((event.step, float(number)))
    return curves


def read_runs(directories: Sequence[str]) -> list[RunCurves]:
    """Returns the curves of runs, in the order of their directories.

    Raises:
        UserError: a directory has none.
    """
    directories = list(dict.fromkeys(path.rstrip("/") or "/" for path in directories))
    names = [os.path.basename(path) for path in directories]
    if len({*names}) < len(names):
        names = directories
    runs = []
    for name, directory in zip(names, directories, strict=True):
        training = read_curves(directory)
        evaluation = read_curves(os.path.join(directory, "eval"))
        if not training and not evaluation:
            raise _no_curves(directory)
        runs.append(RunCurves(name, training, evaluation))
    return runs


def _no_curves(directory: str) -> UserError:
    rule = f"{directory} must be the --output_dir of a run that has trained or evaluated"
    if not tf.io.gfile.isdir(directory):
        return UserError(f"{rule}; there is no such directory")
    found = tf.io.gfile.glob(os.path.join(directory, "*", "*tfevents*"))
    inner = sorted({os.path.basename(os.path.dirname(path)) for path in found})
    if inner:
        return UserError(f"{rule}; it is not, but its folders are: name them: {listed(inner)}")
    return UserError(f"{rule}; no events.out.tfevents.* with curves is there or in its folder eval")


def draw_runs(runs: Sequence[RunCurves]) -> "Figure":
    """Returns the picture: the loss, each metric that was evaluated, the learning rate."""
    matplotlib = import_matplotlib()
    evaluated = {name for run in runs for name in run.evaluation}
    names = [_LOSS, *sorted(evaluated - {_LOSS, _RATE}), _RATE]
    names = [name for name in names if any(name in run.training | run.evaluation for run in runs)]
    columns = min(_COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    figure = matplotlib.figure.Figure((4.6 * columns, 3.2 * rows + 0.5), layout="constrained")
    squares = figure.subplots(rows, columns, squeeze=False).ravel()
    legend: dict[str, object] = {}
    for axes, name in zip(squares, names, strict=False):
        axes.set_title(name, fontsize=11)
        axes.set_xlabel("step", fontsize=9)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=9)
        for number, run in enumerate(runs):
            color = f"C{number % _COLORS}"
            style = _STYLES[number // _COLORS % len(_STYLES)]
            if curve := run.training.get(name):
                # A single point makes no line.
                marker = "." if len(curve) == 1 else None
                lines = axes.plot(*zip(*curve, strict=True), style, color=color, marker=marker)
                legend.setdefault(run.name, lines[0])
            if curve := run.evaluation.get(name):
                style = {"linestyle": "--", "marker": "o", "markersize": 4, "color": color}
                lines = axes.plot(*zip(*curve, strict=True), **style)
                legend.setdefault(f"{run.name}, evaluation", lines[0])
    for axes in squares[len(names) :]:
        axes.set_visible(False)
    place = {"loc": "outside lower center", "ncols": min(4, len(legend)), "fontsize": 9}
    figure.legend([*legend.values()], [*legend], **place)
    return figure


def summary(run: RunCurves) -> str:
    """Returns a line on the last point of each kind of curve."""

    def last(curves: Mapping[str, Curve]) -> str:
        names = sorted(curves.keys() - {_RATE})
        return ", ".join(f"{name} {curves[name][-1][1]:.4g}" for name in names)

    step = max(curve[-1][0] for curve in {**run.training, **run.evaluation}.values())
    parts = [f"{run.name}: step {step}"]
    parts += [f"evaluation: {last(run.evaluation)}"] if run.evaluation else []
    return "; ".join(parts)


def _define_flags() -> None:
    flags.DEFINE_string("output", None, "The PNG file to write.", required=True)


def main(directories: Sequence[str]) -> None:
    """Reads the runs and writes the picture."""
    if not directories:
        raise UserError(
            "the output directories of the runs must be named: python -m tools.plot_training"
            " OUTPUT_DIR... --output=FILE.png"
        )
    import_matplotlib()  # fail before the reading
    runs = read_runs(directories)
    write_png(draw_runs(runs), FLAGS.output)
    for run in runs:
        print(summary(run))


if __name__ == "__main__":
    _define_flags()
    words = sys.argv[1:]
    sys.argv[1:] = [word for word in words if word.startswith("-")]
    command_flags.run_program(lambda: main([word for word in words if not word.startswith("-")]))
