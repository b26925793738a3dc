"""Desks for tests of the scripts in tpu/: a checkout with one commit, a job file, and a PATH.

The PATH has the few programs that the scripts may use, and stand-ins: gcloud, curl, uv, a `sleep`
of 0.02 seconds (STAND_IN_SECONDS), useradd, chown, a `setpriv` that keeps the user, and on the
machine a `python` whose exit statuses the test sets.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "awk bash basename cat chmod cp date dirname env flock git grep gzip head id mkdir mktemp"
    " rm sh sha256sum tail tar touch"
)
SLEEP = shutil.which("sleep")

STAND_INS = {
    # Isolated and without site-packages, because it starts hundreds of times.
    "gcloud": f'exec "{sys.executable}" -IS "{ROOT}/tests/support/stand_in_gcloud.py" "$@"',
    "sleep": f'exec {SLEEP} "${{STAND_IN_SECONDS:-0.02}}"',
    # The estimate, which imports TensorFlow, is run for real where a test is about it.
    "python": 'echo "$*" >>"$STAND_IN_STATE/python"; if [ -e "$STAND_IN_STATE/real_python" ]; then'
    f' exec "{sys.executable}" "$@"; fi; echo An estimate',
    # It needs root's rights, which a test may lack: it only executes the rest of the line.
    "setpriv": """echo "$*" >>"$STAND_IN_STATE/setpriv"
for word; do case $word in --*) shift ;; *) break ;; esac; done
AS_JOB=yes exec "$@\"""",
    "python3": f'exec "{sys.executable}" -IS "$@"',
    "useradd": 'echo "$*" >>"$STAND_IN_STATE/useradd"',
    "chown": 'echo "$*" >>"$STAND_IN_STATE/chown"',
    # Google's metadata server, and the wheel with uv.
    "curl": """for url; do :; done
echo "$url" >>"$STAND_IN_STATE/curl"
case $url in
  */instance/preempted)
    if [ -e "$STAND_IN_STATE/preempted" ]; then printf TRUE; else printf FALSE; fi ;;
  */instance/attributes/*) exec cat "$STAND_IN_STATE/metadata/${url##*/}" ;;
  https://files.pythonhosted.org/*/uv-*.whl) exec cat "$STAND_IN_STATE/uv.whl" ;;
  *) echo "curl: (22) 404: $url" >&2; exit 22 ;;
esac""",
}
UV = """echo "$*" >>"$STAND_IN_STATE/uv"; [ "$AS_JOB" = yes ] || exit 98
case "$*" in
  venv*) mkdir -p venv/bin && cp "$STAND_IN_STATE/program" venv/bin/python ;;
  *) [ ! -e "$STAND_IN_STATE/no_index" ] ;;
esac"""
# Ends with the next of the statuses; `taken`: its machine is taken, and it ends with 75 if told.
PROGRAM = """echo "$PWD $*" >>"$STAND_IN_STATE/runs"; [ "$AS_JOB" = yes ] || exit 98
echo "a line of the program"
status=$(head -n 1 "$STAND_IN_STATE/statuses")
tail -n +2 "$STAND_IN_STATE/statuses" >"$STAND_IN_STATE/rest"
cp "$STAND_IN_STATE/rest" "$STAND_IN_STATE/statuses"
if [ "$status" = taken ]; then
  trap 'rm "$STAND_IN_STATE/preempted"; echo saved; exit 75' TERM
  touch "$STAND_IN_STATE/preempted"
  for _ in 1 2 3 4 5 6 7 8 9; do for _ in 1 2 3 4 5 6 7 8 9; do sleep 1; done; done
  exit 99
fi
exit "$status\""""

JOB = """NAME=bert-test
PROJECT=my-project
ZONE=us-central1-a
ACCELERATOR=v5e-8
SPOT=yes
BUCKET=gs://my-bucket
SERVICE_ACCOUNT=bert-tpu@my-project.iam.gserviceaccount.com
FLAGS=(
  --flagfile=flags/pretraining/uncased_base.flags
  "--input_file=gs://my-bucket/records/train_{max_seq_length}_*.tfrecord"
)
"""


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Desk:
    """A checkout, a job file, and a PATH without the real gcloud."""

    def __init__(self, folder: Path, checkout: Path):
        self.state = folder / "state"
        self.bucket = self.state / "buckets" / "my-bucket"
        self.bucket.mkdir(parents=True)
        self.plan(["WAITING_FOR_RESOURCES", "ACTIVE"])
        self.checkout = folder / "checkout"
        shutil.copytree(checkout, self.checkout, symlinks=True)
        self.bin = folder / "bin"
        for name, text in STAND_INS.items():
            write_program(self.bin / name, text)
        for name in TOOLS.split():
            (self.bin / name).symlink_to(shutil.which(name))
        self.job(JOB)

    def job(self, text: str) -> None:
        (self.checkout / "job.env").write_text(text)

    def plan(self, *requests: list) -> None:
        """Sets what the looks at each request find: see stand_in_gcloud.py."""
        (self.state / "plan.json").write_text(json.dumps(requests))

    def run(
        self, script: str, *arguments: str, answer: str = "", **environment: str
    ) -> subprocess.CompletedProcess:
        state = {"STAND_IN_STATE": str(self.state), "HOME": str(self.state)}
        return subprocess.run(
            [str(self.bin / "bash"), f"tpu/{script}", *arguments],
            cwd=self.checkout,
            env={"PATH": str(self.bin), **state, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
            input=answer,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def works(self, script: str, *says: str, **environment: str) -> subprocess.CompletedProcess:
        """Runs a script on the job, with --yes; it must succeed and print the texts."""
        done = self.run(script, *_job(script), **environment)
        assert done.returncode == 0, done.stderr
        assert all(text in done.stdout for text in says), done.stdout
        return done

    def fails(self, script: str, *says: str, **environment: str) -> subprocess.CompletedProcess:
        """Runs a script on the job, with --yes; it must fail and print the texts as errors."""
        done = self.run(script, *_job(script), **environment)
        assert done.returncode == 1, done.stderr
        assert all(text in done.stderr for text in says), done.stderr
        return done

    def calls(self, *words: str) -> list[list[str]]:
        """Returns the arguments of the calls to gcloud that begin with the words."""
        calls = map(json.loads, self.lines("calls.jsonl"))
        return [call for call in calls if call[: len(words)] == [*words]]

    def requests(self, verb: str) -> list[list[str]]:
        return self.calls("compute", "tpus", "queued-resources", verb)

    def object(self, name: str) -> str:
        return (self.bucket / "bert-test" / name).read_text()

    def lines(self, name: str) -> list[str]:
        path = self.state / name
        return path.read_text().splitlines() if path.exists() else []

    def submit(self) -> None:
        self.works("submit.sh")

    def machine(self, *statuses: int | str, program: str = PROGRAM, **environment: str) -> str:
        """Runs a machine and returns its log in the bucket.

        Each start of the stand-in program, whose shell commands are `program`, ends with the next
        of `statuses`.
        """
        write_program(self.state / "program", program)
        wheel = self.state / "uv.whl"
        with zipfile.ZipFile(wheel, "w") as zipped:
            zipped.writestr("uv-0.13.9.data/scripts/uv", f"#!/bin/sh\n{UV}\n")
        (self.state / "statuses").write_text("".join(f"{status}\n" for status in statuses))
        # What the machine is given as its startup script, not the file in the checkout; with the
        # digest of the stand-in for uv.
        script = (self.state / "metadata" / "startup-script").read_text()
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if not (self.state / "real_uv_digest").exists():
            script, count = re.subn(r"(?m)^UV_SHA256=[0-9a-f]{64}$", f"UV_SHA256={digest}", script)
            assert count == 1
        (self.checkout / "tpu" / "given.sh").write_text(script)
        done = self.run("given.sh", BERT_WORK=str(self.state / "machine"), **environment)
        assert done.stdout == "" and done.stderr == ""
        # One machine's, in `logs` or `logs_of_workers`.
        logs = sorted((self.bucket / "bert-test").glob("log*/**/*.log"))
        return logs[-1].read_text()


def _job(script: str) -> list[str]:
    return ["job.env", "--yes"] if script == "submit.sh" else ["job.env"]


def commit_checkout(folder: Path, with_library: bool = False) -> Path:
    """Makes an empty folder a checkout with one commit of this project's files, and returns it.

    Only the real programs need the library: bert_tf and tools.
    """
    for name in ("flags", "tpu", *(("bert_tf", "tools") if with_library else ())):
        shutil.copytree(ROOT / name, folder / name)  # with __pycache__, which saves time
    for name in ("run_pretraining.py", "setup.py", "README.md"):
        shutil.copy(ROOT / name, folder)
    (folder / ".gitignore").write_text("__pycache__/\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in ("init -q", "add -A", "commit -q -m all"):
        subprocess.run([*git, *command.split()], cwd=folder, check=True)
    return folder
