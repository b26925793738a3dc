"""tpu/startup.sh as a TPU machine runs it, with stand-ins for Google, uv and the program."""

import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from bert_tf.runs.flags.command_flags import DIVERGED_STATUS
from tests.support.pretraining_runs import write_config, write_records
from tests.support.tpu_desk import JOB, PROGRAM


def test_machine_runs_the_flags_and_deletes_itself(submitted):
    log = submitted.machine(0)
    assert "a line of the program" in log
    assert submitted.object("result").startswith("done 20")
    machine = submitted.state / "machine"
    run = f"{machine}/job/source run_pretraining.py --flagfile=../../job.flags"
    assert submitted.lines("runs") == [run]
    assert (machine / "job" / "source" / "flags" / "pretraining" / "uncased_base.flags").exists()
    assert "--tpu=pjrt" in (machine / "job.flags").read_text()
    git = ["git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"]
    environment = {**os.environ, "TZ": "UTC"}
    date = subprocess.check_output(git, cwd=submitted.checkout, env=environment, text=True).strip()
    assert submitted.lines("uv") == [
        "venv --quiet --python 3.11 venv",
        f"pip install --python venv/bin/python --exclude-newer {date} ./source[pjrt]",
    ]
    [delete] = submitted.requests("delete")
    assert {"bert-test", "--project=my-project", "--zone=us-central1-a", "--force"} <= {*delete}

    # tar, uv and the program run as an ordinary user, or the stand-ins of the last two would fail.
    [user] = submitted.lines("useradd")
    assert user == f"--system --user-group --home-dir {machine}/job bert-job"
    assert submitted.lines("chown")[0] == "bert-job:bert-job job"
    user = "--reuid=bert-job --regid=bert-job --init-groups --no-new-privs"
    prefix, lines = f"{user} env HOME={machine}/job ", submitted.lines("setpriv")
    programs = [line.removeprefix(prefix).split()[0] for line in lines]
    uv = "uv/uv-0.13.9.data/scripts/uv"
    assert programs == ["mkdir", "tar", "python3", "chmod", uv, uv, "../venv/bin/python"]


@pytest.mark.parametrize("name", ["source.tar.gz", "job.flags"])
def test_machine_refuses_what_was_changed_in_the_bucket(submitted, name):
    with open(submitted.bucket / "bert-test" / name, "ab") as file:
        file.write(b"--do_eval\n")
    log = submitted.machine(0)
    assert f": {name} is not the expected file" in submitted.object("result")
    assert submitted.object("result").startswith("failed 20")
    assert not submitted.lines("uv") and not submitted.lines("runs") and "installing" not in log
    assert not (submitted.state / "machine" / "job").exists()
    assert len(submitted.requests("delete")) == 1


@pytest.mark.parametrize(
    ("statuses", "file", "log", "result", "starts"),
    [
        ([1], None, "", "run_pretraining.py ended with status 1;", 1),
        ([DIVERGED_STATUS], None, "", f"ended with status {DIVERGED_STATUS};", 1),
        ([139, 75, 134, 143, 137], None, "", "the third crash, with status 137", 5),
        ([], "no_index", "attempt 5 failed: install", "the installation failed; see the log", 0),
        ([], "real_uv_digest", "", ": uv.whl is not the expected file (its SHA-256 is", 0),
    ],
    ids=["mistake", "diverged", "crashes", "no installation", "another uv"],
)
def test_machine_that_fails(submitted, statuses, file, log, result, starts):
    if file:
        (submitted.state / file).touch()
    printed = submitted.machine(*statuses)
    assert log in printed and printed.count("startup.sh: running") == starts
    assert result in submitted.object("result")
    assert submitted.object("result").startswith("failed 20")
    assert len(submitted.lines("runs")) == starts and len(submitted.requests("delete")) == 1
    assert bool(submitted.lines("uv")) == (file != "real_uv_digest")


def on_worker(desk, number):
    """Makes the next machine the one of this number in its slice."""
    (desk.state / "metadata" / "agent-worker-number").write_text(str(number))


@pytest.mark.parametrize("number", [1, 15])
def test_another_machine_of_a_slice_leaves_the_end_to_the_first(desk, number):
    desk.job(JOB.replace("v5e-8", "v5e-64"))
    desk.submit()
    on_worker(desk, 0)
    desk.machine(75, 0)
    result = desk.object("result")
    assert result.startswith("done 20") and len(desk.requests("delete")) == 1
    (desk.bucket / "bert-test" / "result").unlink()
    shutil.rmtree(desk.state / "machine")
    on_worker(desk, number)
    desk.machine(75, 0)
    assert len(desk.lines("runs")) == 4
    assert not (desk.bucket / "bert-test" / "result").exists()
    assert len(desk.requests("delete")) == 1
    [log] = (desk.bucket / "bert-test" / "logs_of_workers" / str(number)).iterdir()
    assert "startup.sh: done 20" in log.read_text()


def test_any_machine_of_a_slice_may_end_a_job_that_fails(desk):
    desk.job(JOB.replace("v5e-8", "v6e-32"))
    desk.submit()
    on_worker(desk, 7)
    desk.machine(1)
    assert "run_pretraining.py ended with status 1;" in desk.object("result")
    assert not desk.requests("delete")  # tpu/watch.sh and the first machine do


@pytest.mark.parametrize("status", [74, 75])
def test_the_first_machine_leaves_when_another_one_ended_the_job(submitted, status):
    ends = 'echo failed there >"$STAND_IN_STATE/buckets/my-bucket/bert-test/result"\n'
    log = submitted.machine(status, 0, program=ends + PROGRAM)
    assert "failed there" in log and "the job has already ended" in log
    assert len(submitted.lines("runs")) == 1 and len(submitted.requests("delete")) == 1
    assert submitted.object("result") == "failed there\n"


def test_machine_tells_the_program_that_it_is_taken(submitted):
    log = submitted.machine("taken", 0)
    assert log.index("the machine is being preempted") < log.index("saved")
    assert "the program ended with status 75" in log
    # The machine was not preempted after all, so the program was started again.
    assert len(submitted.lines("runs")) == 2
    assert submitted.object("result").startswith("done 20")


def test_machine_that_comes_up_after_the_end(desk):
    desk.plan(["ACTIVE"], ["ACTIVE"])
    desk.submit()
    desk.machine(0)
    (desk.state / "requests" / "us-central1-a.bert-test").write_text('["ACTIVE"]')
    desk.machine(0)
    assert len(desk.lines("runs")) == 1 and len(desk.requests("delete")) == 2


# The first time, the machine is preempted at the first checkpoint.
REAL_PROGRAM = f"""if [ -e "$STAND_IN_STATE/begun" ]; then rm -f "$STAND_IN_STATE/preempted"; else
  touch "$STAND_IN_STATE/begun"
  (until [ -e "$STAND_IN_STATE/output/checkpoint" ]; do sleep 1; done
   touch "$STAND_IN_STATE/preempted") &
fi
exec "{sys.executable}" "$@\""""


@pytest.mark.slow
def test_machine_with_the_real_program(desk_with_library):
    desk = desk_with_library
    desk.job(JOB.replace("v5e-8", "v3-8"))
    desk.submit()
    config = write_config(desk.state / "bert_config.json")
    records = write_records(desk.state / "train.tfrecord", 50, 16, 3, seed=0)
    flags = f"""--do_train
--bert_config_file={config}
--input_file={records}
--output_dir={desk.state}/output
--max_seq_length=16
--max_predictions_per_seq=3
--train_batch_size=4
--num_train_steps=400
--num_warmup_steps=10
--iterations_per_loop=20
"""
    (desk.bucket / "bert-test" / "job.flags").write_text(flags)
    digest = hashlib.sha256(flags.encode()).hexdigest()
    (desk.state / "metadata" / "bert-flags-sha256").write_text(digest)
    log = desk.machine(program=REAL_PROGRAM, STAND_IN_SECONDS="0.5")
    assert log.index("the machine is being preempted") < log.index("ended with status 75")
    assert "the program ended with status 0" in log
    assert desk.object("result").startswith("done 20")
    assert (desk.state / "output" / "model.ckpt-400.index").exists()


@pytest.mark.slow
def test_machine_whose_program_finds_no_tpu(desk_with_library):
    desk = desk_with_library
    desk.job(JOB.replace("v5e-8", "v3-8"))
    desk.submit()
    log = desk.machine(program=f'exec "{sys.executable}" "$@"', STAND_IN_SECONDS="0.5")
    assert "run_pretraining.py: " in log and "TPU" in log
    assert "ended with status 1" in desk.object("result")
    assert log.count("startup.sh: running") == 1
