"""Prints a table of GLUE results from several runs of run_classifier.py, and their averages.

    python -m tools.glue_average --output_dirs=output/cola,output/sst-2,MRPC=output/best_mrpc

Each directory is the --output_dir of a run with --do_eval. Name the directory like its task, or
write TASK=DIRECTORY. Two averages are common. Table 1 of the paper counts one figure per task, two
for MNLI, and leaves out WNLI. GLUE's own average counts each task once; a task with two metrics
counts with their mean. The tool also prints GLUE's average without WNLI, whose dev set repeats
sentences of the training set with the other label. Results on dev sets differ from those on the
leaderboard's test sets.
"""

import os
from collections.abc import Mapping, Sequence

from absl import flags

from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.runs.folder import reporting

FLAGS = flags.FLAGS

# For each task the metrics in eval_results.txt: those of table 1, then those that GLUE averages.
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
        output_dirs: TASK=DIRECTORY, or directories named like a task. Case and hyphens in a task's
            name do not matter.

    Raises:
        UserError: a directory belongs to no GLUE task, or a task has two directories.
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
                f"--output_dirs: {entry} must be named like a task ({', '.join(TASKS)}), or be"
                " written TASK=DIRECTORY"
            )
        if task in found:
            raise UserError(
                f"--output_dirs must have one directory for {task}; received {found[task]} and"
                f" {directory}"
            )
        found[task] = directory
    return found


def read_results(directory: str) -> dict[str, float]:
    """Returns the metrics in a run's eval_results.txt by name.

    Raises:
        UserError: the file is missing or malformed.
    """
    path = os.path.join(directory, "eval_results.txt")
    results = reporting.read_results(path)
    if not results:
        raise UserError(
            f"--output_dirs: {path} is missing or empty; run run_classifier.py with --do_eval"
        )
    return results


def table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the table and the averages as text.

    Args:
        results: for each evaluated task the metrics in its eval_results.txt.
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


def _define_flags() -> None:
    flags.DEFINE_list(
        "output_dirs",
        None,
        "The --output_dir of each run of run_classifier.py, separated by commas: named like its"
        " task, or written TASK=DIRECTORY.",
        required=True,
    )


def main() -> None:
    """Reads the flags and prints the table."""
    directories = find_directories(FLAGS.output_dirs)
    print(table({task: read_results(path) for task, path in directories.items()}))


if __name__ == "__main__":
    _define_flags()
    command_flags.run_program(main)
