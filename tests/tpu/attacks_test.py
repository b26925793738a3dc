"""A gcloud that fails, a request that stays, text in the bucket that a terminal would obey."""

import os
import signal
import subprocess
import time

import pytest

from tests.support.tpu_desk import SLEEP, STAND_INS, write_program


def fail_at(desk, words: str, message: str = "ERROR: (gcloud) no network") -> None:
    """Makes the gcloud commands that contain the words fail."""
    stand_in = STAND_INS["gcloud"]
    write_program(
        desk.bin / "gcloud",
        f"""case "$*" in *"{words}"*) printf '%s\\n' "{message}" >&2; exit 1 ;; esac\n{stand_in}""",
    )


@pytest.mark.parametrize(
    ("words", "unread", "still"),
    [
        ("queued-resources list", "the request", "result: done 20"),
        ("tpu-vm list", "the request", "result: done 20"),
        ("storage cat gs://my-bucket/bert-test/result", "gs://my-bucket/bert-test/result", "a li"),
        ("storage ls", "gs://my-bucket/bert-test/logs/", "result: done 20"),
        ("--range=-3000", "the log", "result: done 20"),
    ],
)
def test_status_says_what_cannot_be_read(submitted, words, unread, still):
    (submitted.state / "requests" / "us-central1-a.bert-test").write_text('["ACTIVE"]')
    (submitted.bucket / "bert-test" / "logs").mkdir()
    (submitted.bucket / "bert-test" / "logs" / "2026").write_text("a line")
    (submitted.bucket / "bert-test" / "result").write_text("done 2026")
    fail_at(submitted, words)
    done = submitted.fails("status.sh", "ERROR: (gcloud) no network")
    assert f"status.sh: {unread} cannot be read: see the message above\n" in done.stderr
    assert still in done.stdout


@pytest.mark.parametrize("state", ["WAITING_FOR_RESOURCES", "SUSPENDING"])
def test_delete_gives_up_on_a_request_that_stays(desk, state):
    write_program(
        desk.bin / "gcloud",
        f'case "$*" in *" delete "*) echo >>"$STAND_IN_STATE/deletes";; *) echo {state};; esac',
    )
    write_program(desk.bin / "sleep", 'echo "$1" >>"$STAND_IN_STATE/pauses"')
    done = desk.fails("delete.sh")
    rule = f"gave up: bert-test in us-central1-a is still {state} after 35 looks. Its machine may"
    assert rule in done.stderr and done.stderr.count("\n") == 1
    pauses = [int(pause) for pause in desk.lines("pauses")]
    assert pauses[:4] == [10, 20, 40, 60] and {*pauses[3:]} == {60} and len(pauses) == 33
    assert len(desk.lines("deletes")) == (0 if state == "SUSPENDING" else 35)


@pytest.mark.parametrize("words", ["queued-resources list", "queued-resources delete"])
def test_delete_that_fails_says_that_the_machine_may_cost(submitted, words):
    fail_at(submitted, words, "ERROR: (gcloud) PERMISSION_DENIED")
    done = submitted.fails("delete.sh", "ERROR: (gcloud) PERMISSION_DENIED\ndelete.sh: ")
    assert "machine may still" in done.stderr and "no request and no machine" not in done.stdout


# What is in the bucket -> what reaches the terminal.
OBEYED = {
    "\033[1;31mred\033[0m": "red",
    "\033]0;title\007rest": "rest",
    "\033]2;title\033\\rest": "rest",
    "a\033]52;c;ZWNobw==\007b": "ab",
    "\x9b2J and \u0085": "2J and ",
    "pass\b\b\b\bfail\a\x7f": "passfail",
    "hidden\rseen": "hidden\nseen",
    "line\r": "line",
    "größer 日本\tü": "größer 日本\tü",
}


def test_what_a_bucket_says_is_only_text(submitted):
    logs = submitted.bucket / "bert-test" / "logs"
    logs.mkdir()
    (logs / "2026.log").write_bytes("\n".join(OBEYED).encode())
    result = submitted.bucket / "bert-test" / "result"
    result.write_text("failed \033[2J\033]0;t\007now\n")
    done = submitted.works("status.sh", "result: failed now\n")
    assert done.stdout.endswith("2026.log:\n" + "\n".join(OBEYED.values()) + "\n")
    done = submitted.fails("watch.sh")
    assert "bert-test: failed now\n" in done.stdout and "\033" not in done.stdout


@pytest.mark.parametrize("script", ["status.sh", "submit.sh"])
def test_ctrl_c_leaves_no_file(desk, script):
    folder = desk.state / "temporary"
    folder.mkdir()
    # The question to gcloud takes long.
    write_program(desk.bin / "gcloud", f'touch "$STAND_IN_STATE/asked"; exec {SLEEP} 60')
    process = subprocess.Popen(
        [str(desk.bin / "bash"), f"tpu/{script}", "job.env"],
        cwd=desk.checkout,
        env={
            "PATH": str(desk.bin),
            "STAND_IN_STATE": str(desk.state),
            "HOME": str(desk.state),
            "TMPDIR": str(folder),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A suite that runs in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    ends = time.monotonic() + 30
    while not (desk.state / "asked").exists():
        assert time.monotonic() < ends
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(30) != 0
    assert os.listdir(folder) == []
