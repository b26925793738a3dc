"""Every registered task has its program, page, recipes and example, and something to do."""

import re
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.modeling import BertConfig
from bert_tf.tasks.fine_tuning import run_fine_tuning
from bert_tf.tasks.registry import TASKS
from tests.support.registered_tasks import make_task

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", TASKS)
def test_what_belongs_to_a_task(name):
    task = TASKS[name]
    program = (ROOT / f"{task.program}.py").read_text()
    assert f'\nmain = program.main_of("{name}")\n' in program
    assert (ROOT / "docs" / f"{task.page}.md").is_file()
    assert list((ROOT / "flags" / task.recipes).glob("*.flags"))
    for value in map(str, task.example.values()):
        assert not value.startswith("flags/") or (ROOT / value).exists(), value
    row = (
        rf"^\| \[.*\]\({task.page}\.md\) \| `{task.program}\.py` \| .* \| `flags/quickstart/.*` \|$"
    )
    assert re.search(row, (ROOT / "docs/own-data.md").read_text(), re.MULTILINE), (
        f"the table of docs/own-data.md needs a row of {task.page}.md and {task.program}.py"
    )


@pytest.mark.parametrize("name", TASKS)
def test_a_run_must_have_a_purpose(name):
    message = "^At least one of --do_train(, --do_eval)? and --do_predict must be given.$"
    with pytest.raises(UserError, match=message):
        run_fine_tuning(make_task(name), BertConfig(99), tf.distribute.get_strategy())


def test_every_program_of_fine_tuning_is_registered():
    found = {path.stem for path in ROOT.glob("*.py") if "main_of" in path.read_text()}
    assert found == {task.program for task in TASKS.values()}
