"""The jobs that make records on many machines start the right workers."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tpu" / "records_slurm.sh"


@pytest.fixture
def machine(tmp_path):
    """The environment of a machine whose `python` prints its arguments, one a line."""
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def run(command, environment, **options):
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


def settings_of(words):
    """Returns the settings of create_pretraining_data.py's flags."""
    flags = dict(word.removeprefix("--").split("=") for word in words)
    values = {name: int(value) if value.isdigit() else value for name, value in flags.items()}
    return PretrainingDataSettings(**values)


def test_a_task_of_a_slurm_array_is_a_worker(machine, tmp_path):
    array = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "9", "SLURM_ARRAY_TASK_MIN": "0"}
    array["SLURM_SUBMIT_DIR"] = str(tmp_path)
    done = run([SCRIPT, "--input_file=a b,c", "--num_shards=3"], {**machine, **array}, cwd="/")
    assert done.stdout.splitlines() == [
        *(str(tmp_path), "create_pretraining_data.py", "--input_file=a b,c", "--num_shards=3"),
        *("--num_workers=9", "--worker_index=7"),
    ]


@pytest.mark.parametrize("array", [{}, {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_MIN": "1"}])
def test_what_is_no_array_from_0_is_refused(machine, array):
    done = run([SCRIPT, "--num_shards=3"], {**machine, **array})
    assert done.returncode == 1 and "an array that begins at 0: sbatch --array=0-31" in done.stderr
    assert not done.stdout


def test_a_pod_of_an_indexed_job_is_a_worker(machine):
    job = yaml.safe_load((ROOT / "tpu" / "records_gke.yaml").read_text())["spec"]
    assert job["completionMode"] == "Indexed" and job["completions"] == job["parallelism"]
    [container] = job["template"]["spec"]["containers"]
    command = [*container["command"], *container["args"]]
    done = run(command, {**machine, "JOB_COMPLETION_INDEX": "5"})
    _, program, *words = done.stdout.splitlines()
    assert program == "create_pretraining_data.py"
    settings = settings_of(words)
    assert settings.num_workers == job["completions"] and settings.worker_index == 5
    assert settings.num_shards >= settings.num_workers
    # A failure policy needs it. The policy is by pod, because no pod waits for another.
    assert job["template"]["spec"]["restartPolicy"] == "Never" and job["backoffLimitPerIndex"] == 2
    [mistake] = [rule for rule in job["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert mistake["onExitCodes"]["values"] == [1]


def test_the_command_in_the_script_s_head_can_be_copied():
    lines = re.findall(r"^#     (.*)$", SCRIPT.read_text(), re.MULTILINE)
    words = shlex.split("\n".join(lines).replace("\\\n", " "))
    assert words[:3] == ["sbatch", "--array=0-31", "tpu/records_slurm.sh"]
    settings_of(words[3:])
