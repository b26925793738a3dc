"""Prints the GLUE results of several runs of run_classifier.py in one table, and their average.

    python -m tools.glue_average --output_dirs=output/cola,output/sst-2,MRPC=output/best_mrpc

Each directory is the --output_dir of a run with --do_eval; it is named like its task, or the task
is written before it. Two averages are in use: that of table 1 of the paper, which has one figure
of each task, two of MNLI, and none of WNLI; and GLUE's own, where each task counts once, with the
mean of its metrics if it has two. The second is printed without WNLI, too, whose dev set has the
training set's sentences with the other label. A dev set's figures are not the leaderboard's.
"""

import os
from collections.abc import Mapping, Sequence

from absl import flags

from bert_tf.errors import UserError
from bert_tf.runs import command_flags, reporting

FLAGS = flags.FLAGS

# What eval_results.txt has of each task: the figures of table 1, then those that GLUE averages.
TASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "MNLI": (("accuracy", "accuracy_mismatched"), ("accuracy", "accuracy_mismatched")),
    "QQP": (("f1",), ("accuracy", "f1")),
    "QNLI": (("accuracy",), ("accuracy",)),
    "SST-2": (("accuracy",), ("accuracy",)),
    "CoLA": (("matthews_correlation",), ("matthews_correlation",)),
    "STS-B": (("spearman",), ("pearson", "spearman")),
    "MRPC": (("f1",), ("accuracy", "f1")),
    "RTE": (("accuracy",), ("accuracy",)),
    "WNLI": ((), ("accuracy",)),
}


def find_directories(output_dirs: Sequence[str]) -> dict[str, str]:
    """Returns the directory of each task.

    Args:
        output_dirs: TASK=DIRECTORY, or directories whose own names are tasks'; the case and
            hyphens of a task's name do not matter.

    Raises:
        UserError: a directory is of no task of GLUE, or a task has two.
    """
    names = {_plain(task): task for task in TASKS}
    found: dict[str, str] = {}
    for entry in output_dirs:
        name, separator, directory = entry.partition("=")
        if not separator:
            directory, name = entry, os.path.basename(entry.rstrip("/"))
        task = names.get(_plain(name))
        if task is None:
            raise UserError(
                f"--output_dirs: {entry} must be named like a task ({', '.join(TASKS)}), or be "
                "TASK=DIRECTORY"
            )
        if task in found:
            raise UserError(f"--output_dirs: both {found[task]} and {directory} are of {task}")
        found[task] = directory
    return found


def read_results(directory: str) -> dict[str, float]:
    """Returns the figures of a run's eval_results.txt by name.

    Raises:
        UserError: there is no such file, or it has another form.
    """
    path = os.path.join(directory, "eval_results.txt")
    try:
        results = reporting.read_results(path)
    except ValueError as error:
        raise UserError(f"{path} must hold lines `name = number`: {error}") from error
    if not results:
        raise UserError(f"{path} cannot be read; run run_classifier.py with --do_eval")
    return results


def table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the table and the averages as text.

    Args:
        results: for each task that was evaluated the lines of its eval_results.txt.
    """
    lines = [f"{'task':<8}{'metric':<26}{'figure':>8}"]
    missing = []
    paper: list[float] = []
    glue: dict[str, float] = {}
    for task, (columns, averaged) in TASKS.items():
        figures = {}
        for metric in dict.fromkeys((*averaged, *columns)):
            name = f"eval_{metric}"
            if name in results.get(task, {}):
                figures[metric] = 100 * results[task][name]
                lines.append(f"{task:<8}{metric:<26}{figures[metric]:>8.1f}")
            else:
                missing.append((task, metric))
        if figures.keys() >= set(columns):
            paper += [figures[metric] for metric in columns]
        if figures.keys() >= set(averaged):
            glue[task] = sum(figures[metric] for metric in averaged) / len(averaged)
    without_wnli = [value for task, value in glue.items() if task != "WNLI"]
    lines.append("")
    for what, values, due in (
        ("average, as in table 1 of the paper (without WNLI)", paper, 9),
        ("average, GLUE's, without WNLI", without_wnli, 8),
        ("average, GLUE's, with WNLI", list(glue.values()), 9),
    ):
        complete = len(values) == due
        figure = f"{sum(values) / due:.1f}" if complete else f"needs {due - len(values)} more"
        lines.append(f"{what}: {figure}")
    if missing:
        names = [f"{task} {metric}" for task, metric in missing]
        lines.append(f"missing: {', '.join(names)}")
    return "\n".join(lines)


def _plain(name: str) -> str:
    return name.lower().replace("-", "")


def main() -> None:
    """Reads the flags and prints the table."""
    directories = find_directories(FLAGS.output_dirs)
    print(table({task: read_results(path) for task, path in directories.items()}))


if __name__ == "__main__":
    flags.DEFINE_list(
        "output_dirs", None, "Output directories of run_classifier.py, one a task.", required=True
    )
    command_flags.run_program(main)
