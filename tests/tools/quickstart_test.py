"""How tools.quickstart runs its stages. docs_test runs all of it."""

import pytest

from tools.quickstart import Stage, run_stages

SAY = "import sys; print('{0} one'); print('{0} two', file=sys.stderr); sys.exit({1})"


def stage(name: str, status: int = 0) -> Stage:
    return Stage(f"Doing {name}", ["python", "-c", SAY.format(name, status)])


def test_one_line_for_a_stage_and_the_rest_in_the_log(tmp_path, capfd):
    with open(tmp_path / "log", "w") as log:
        run_stages([stage("a"), stage("b")], log)
    output, errors = capfd.readouterr()
    lines = output.splitlines()
    assert [line.split(" ...")[0] for line in lines] == ["1 of 2: Doing a", "2 of 2: Doing b"]
    assert all(line.endswith(" s") for line in lines) and not errors
    log = (tmp_path / "log").read_text().splitlines()
    said = [line for line in log if line and line[0] != "$"]
    assert [sorted(said[:2]), sorted(said[2:])] == [["a one", "a two"], ["b one", "b two"]]
    commands = [line for line in log if line[:1] == "$"]
    assert commands[0].startswith("$ python -c 'import sys; ") and len(commands) == 2


def test_a_failure_ends_it_and_shows_the_end_of_the_log(tmp_path, capfd):
    with open(tmp_path / "log", "w") as log, pytest.raises(SystemExit) as end:
        run_stages([stage("a"), stage("b", 74), stage("c")], log)
    assert end.value.code == 74
    output, errors = capfd.readouterr()
    assert f"Doing b ... failed with status 74. The end of {tmp_path}/log:" in output
    assert "b two" in errors and "Doing c" not in output
