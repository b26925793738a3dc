"""tpu/submit.sh, watch.sh, status.sh and delete.sh as a user runs them, with a stand-in gcloud."""

import hashlib
import subprocess

import pytest

from tests.support.tpu_desk import JOB, write_program


def test_submit(desk_with_library):
    desk = desk_with_library
    (desk.state / "real_python").touch()
    hours = "12.4 to 22.1 hours: by these steps"
    done = desk.works("submit.sh", hours, "0.245 a chip and hour, spot")
    assert done.stdout.index("An estimate") < done.stdout.index("queued-resources create")

    [create] = desk.requests("create")
    assert {
        *("bert-test", "--node-id=bert-test", "--zone=us-central1-a", "--spot"),
        *("--accelerator-type=v5litepod-8", "--runtime-version=v2-alpha-tpuv5-lite"),
    } <= {*create}
    assert desk.object("job.flags").splitlines() == [
        "--flagfile=flags/pretraining/uncased_base.flags",
        "--input_file=gs://my-bucket/records/train_{max_seq_length}_*.tfrecord",
        "--tpu=pjrt",
        "--output_dir=gs://my-bucket/bert-test/output",
    ]
    archive = desk.bucket / "bert-test" / "source.tar.gz"
    names = subprocess.check_output(["tar", "-tzf", archive], text=True).splitlines()
    assert {"run_pretraining.py", "setup.py", "flags/pretraining/uncased_base.flags"} <= {*names}
    assert "job.env" not in names


@pytest.mark.parametrize(
    ("name", "accelerator_type"), [("v5e-16", "v5litepod-16"), ("v4-32", "v4-32")]
)
def test_submit_of_a_slice_of_several_machines(desk, name, accelerator_type):
    desk.job(JOB.replace("v5e-8", name))
    desk.submit()
    [create] = desk.requests("create")
    assert f"--accelerator-type={accelerator_type}" in create
    assert desk.object("job.flags").splitlines()[-3:] == [
        "--tpu=pjrt",
        "--output_dir=gs://my-bucket/bert-test/output",
        "--coordinator=auto",
    ]


def test_submit_pins_what_it_uploads(submitted):
    note = (submitted.checkout / "job.env.submitted").read_text().strip()
    values = dict(pair.split("=") for pair in note.split(","))
    head, place = ["git", "rev-parse", "HEAD"], submitted.checkout
    commit = subprocess.check_output(head, cwd=place, text=True)
    assert values.pop("bert-commit") == commit.strip()
    for name, key in {"source.tar.gz": "source", "job.flags": "flags"}.items():
        content = (submitted.bucket / "bert-test" / name).read_bytes()
        assert values.pop(f"bert-{key}-sha256") == hashlib.sha256(content).hexdigest()
    assert {*values} == {"bert-date"}
    [create] = submitted.requests("create")
    [metadata] = [word for word in create if word.startswith("--metadata=")]
    assert metadata.endswith(f",bert-zone=us-central1-a,{note}")
    # The machine may call two services.
    [scopes] = [word for word in create if word.startswith("--scopes=")]
    names = [scope.rpartition("/")[2] for scope in scopes.split(",")]
    assert names == ["cloud.tpu", "devstorage.read_write"]


@pytest.mark.parametrize("note", [None, "bert-commit=x,startup-script-url=http://example.com"])
def test_watch_needs_the_note_of_what_was_submitted(desk, note):
    desk.plan(["SUSPENDED"], [["ACTIVE", "done today"]])
    desk.submit()
    path = desk.checkout / "job.env.submitted"
    path.write_text(note) if note else path.unlink()
    desk.fails("watch.sh", "job.env.submitted", "tpu/submit.sh w")
    assert len(desk.requests("create")) == 1 and not desk.requests("delete")


def test_submit_checks_the_zone_that_the_bucket_names(desk):
    (desk.bucket / "bert-test").mkdir()
    (desk.bucket / "bert-test" / "zone").write_text("--flags-file=x\n")
    rule = "zone must be a zone like us-central1-a in gs://my-bucket/bert-test/zone"
    desk.fails("submit.sh", rule)
    assert not desk.requests("create")


def test_submitted_again_nothing_happens(submitted):
    again = submitted.run("submit.sh", "job.env", "--yes")
    assert again.returncode == 0
    assert "was submitted before and is WAITING_FOR_RESOURCES" in again.stdout
    assert len(submitted.requests("create")) == 1


def test_submit_of_a_job_that_is_done(desk):
    (desk.bucket / "bert-test").mkdir()
    (desk.bucket / "bert-test" / "result").write_text("done 2026-11-21T00:00:00Z\n")
    desk.works("submit.sh", "bert-test is done; nothing to do", "gs://my-bucket/bert-test/output")
    assert not desk.requests("create")


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED", "ACTIVE"])
def test_submit_of_a_job_that_failed_goes_on(desk, state):
    desk.plan([state], ["ACTIVE"])
    desk.submit()
    (desk.bucket / "bert-test" / "result").write_text("failed 2026-11-21T00:00:00Z: bad flags\n")
    desk.works("submit.sh", "result of the last attempt: failed 2026-11-21T00:00:00Z: bad flags")
    assert not (desk.bucket / "bert-test" / "result").exists()
    assert len(desk.requests("create")) == 2 and len(desk.requests("delete")) == 1


@pytest.mark.parametrize("script", ["submit.sh", "watch.sh", "delete.sh", "status.sh"])
def test_dry_run_executes_nothing(desk, script):
    for name in ("gcloud", "curl"):
        (desk.bin / name).unlink()
    done = desk.works(script, DRY_RUN="1")
    assert not desk.calls()
    assert "+ gcloud compute tpus queued-resources list --project=my-project" in done.stdout
    created = "+ gcloud compute tpus queued-resources create bert-test" in done.stdout
    assert created == (script in ("submit.sh", "watch.sh"))
    deleted = "+ gcloud compute tpus queued-resources delete bert-test" in done.stdout
    assert deleted == (script in ("watch.sh", "delete.sh"))
    assert ("+ git -C" in done.stdout) == (script == "submit.sh")


def test_submit_asks_before_it_creates(desk):
    for answer in ("", "n\n"):
        done = desk.run("submit.sh", "job.env", answer=answer)
        assert done.returncode == 1
        assert "An estimate" in done.stdout
        assert "nothing was created: answer y, or add --yes" in done.stderr
        assert not desk.requests("create") and not desk.calls("storage", "cp")
    assert desk.run("submit.sh", "job.env", answer="y\n").returncode == 0
    assert len(desk.requests("create")) == 1


def test_on_demand(desk):
    job = JOB.replace("SPOT=yes", "SPOT=no").replace("v5e-8", "v3-8")
    desk.job(job)
    desk.submit()
    assert "--accelerator=v3-8 --nospot" in desk.lines("python")[0]
    [create] = desk.requests("create")
    assert "--spot" not in create and "--accelerator-type=v3-8" in create


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("=v5e-8", "=v5e-12", "must be one of v2-8 v3-8 v4-8 v4-16 v4-32 v5e-8 v5e-16"),
        ("FLAGS=(", "FLAGS=(--coordinator=a:1", "--tpu=pjrt and --coordinator are added here"),
        ("gs://my-bucket\n", "my-bucket\n", "BUCKET must be gs:// and a bucket's name"),
        ("gs://my-bucket\n", "gs://my-bucket/a\n", "BUCKET must be gs:// and a bucket's name"),
        ("NAME=bert-test", "NAME=Bert_Test", "NAME must be lower-case letters, digits"),
        ("ZONE=us-central1-a", "", "job.env must set ZONE"),
        ("SPOT=yes", "SPOT=maybe", "SPOT must be yes or no"),
        ("NAME=bert-test", "NAME=bert-", "NAME must be lower-case letters, digits and hyphens"),
        ("central1-a", "central1-a,startup-script-url=x", "ZONE must be a zone like us-central1-a"),
        ("PROJECT=my-project", "PROJECT=My_Project", "PROJECT must be a project's ID: 6 to 30"),
        ("PROJECT=my-project", "PROJECT=p,bert-zone=x", "PROJECT must be a project's ID: 6 to 30"),
        ("gs://my-bucket\n", "'gs://my-bucket,x=y'\n", "BUCKET must be gs:// and a bucket's name"),
        ("bert-tpu@my", "bert-tpu@your,my", "SERVICE_ACCOUNT must be the address of a service acc"),
        ("bert-tpu@my-project.iam.", "1-compute@developer.", "service account that you made"),
        ("ACCELERATOR=v5e-8", f"ACCELERATOR={'v' * 999}", "ACCELERATOR must be one of"),
        ("ZONE=us-central1-a", f"ZONE=$'{'z' * 999}\\n'", "ZONE must be a zone like"),
        ("FLAGS=(", "FLAGS=($'--x=1\\n--output_dir=y'", "FLAGS of job.env must be one line each"),
        ("uncased_base", "uncased_bass", "there is no such file in"),
        ("FLAGS=(", "FLAGS=(--output_dir=x", "FLAGS of job.env must not have --output_dir=x"),
        ("FLAGS=(", "FLAGS=(do_train", "must be flags, --name=value; it has do_train"),
    ],
)
def test_a_job_file_that_cannot_be(desk, old, new, message):
    desk.job(JOB.replace(old, new, 1))
    done = desk.fails("submit.sh")
    assert message in done.stderr
    assert len(done.stderr) <= 500 and done.stderr.count("\n") == 1
    assert not desk.calls()


def test_nothing_of_the_job_comes_from_the_environment(desk):
    desk.job(JOB.replace("ZONE=us-central1-a", ""))
    desk.fails("submit.sh", "job.env must set ZONE", ZONE="us-east1-d")


def test_messages_without_a_job(desk):
    assert "there is no job file other.env" in desk.run("watch.sh", "other.env").stderr
    assert "usage: tpu/submit.sh JOB_FILE [--yes]" in desk.run("submit.sh").stderr
    assert "received: job.env --force" in desk.run("submit.sh", "job.env", "--force").stderr
    (desk.bin / "gcloud").unlink()
    assert "gcloud is not installed: https://" in desk.run("delete.sh", "job.env").stderr


@pytest.mark.slow
def test_flags_that_the_program_refuses_cost_nothing(desk_with_library):
    desk = desk_with_library
    (desk.state / "real_python").touch()
    desk.job(JOB.replace("FLAGS=(", "FLAGS=(--learning_rat=1", 1))
    desk.fails("submit.sh", "Unknown command line flag 'learning_rat'", "nothing was created")
    assert not desk.requests("create") and not desk.calls("storage", "cp")


def test_the_machine_gets_what_is_committed(desk):
    (desk.checkout / "run_pretraining.py").write_text("changed")
    desk.fails("submit.sh", "the machine runs the current commit.\n M run_pretraining.py")
    subprocess.run(["git", "checkout", "-q", "."], cwd=desk.checkout, check=True)
    (desk.checkout / "mine.flags").touch()
    desk.job(JOB.replace("flags/pretraining/uncased_base.flags", "mine.flags"))
    desk.fails("submit.sh", "commit mine.flags first")
    assert not desk.calls()


def test_a_bucket_that_is_not_there(desk):
    desk.job(JOB.replace("gs://my-bucket\n", "gs://other\n"))
    desk.fails("submit.sh", "gs://other not found: 404")
    assert not desk.requests("create")


def test_watch_asks_again_until_the_job_is_done(desk):
    desk.plan(
        ["WAITING_FOR_RESOURCES", "ACTIVE", "SUSPENDING", "SUSPENDED"],
        ["ERROR: error: no network", "PROVISIONING", "ACTIVE", "ACTIVE/PREEMPTED"],
        ["ACTIVE", ["ACTIVE", "done 2026-11-21T00:00:00Z\n"]],
    )
    desk.submit()
    done = desk.works("watch.sh")
    assert done.stdout.count("requesting another machine") == 2
    assert "bert-test: done 2026-11-21T00:00:00Z" in done.stdout
    first, *others = desk.requests("create")
    assert others == [first, first]
    assert not [*(desk.state / "requests").iterdir()]


def test_watch_ends_with_a_job_that_failed(desk):
    desk.plan([["ACTIVE", "failed 2026-11-21T00:00:00Z: run_pretraining.py ended with status 1\n"]])
    desk.submit()
    done = desk.fails("watch.sh")
    assert "bert-test: failed 2026-11-21T00:00:00Z: run_pretraining.py ended" in done.stdout
    assert len(desk.requests("create")) == 1


def test_watch_leaves_the_request_of_another_watcher_alone(desk):
    desk.plan(["SUSPENDED"])
    desk.submit()
    # While this watcher sleeps after deleting the request, the other one makes it again.
    (desk.state / "other").write_text('["PROVISIONING", ["ACTIVE", "done today"]]')
    copy = 'cp -n "$STAND_IN_STATE/other" "$STAND_IN_STATE/requests/us-central1-a.bert-test"'
    write_program(desk.bin / "sleep", copy)
    desk.works("watch.sh", "bert-test: done today")
    assert len(desk.requests("create")) == 1 and len(desk.requests("delete")) == 2


def test_watch_does_not_revive_what_was_deleted(submitted):
    submitted.run("delete.sh", "job.env")
    submitted.fails("watch.sh", "there is no request named bert-test in us-central1-a")
    assert len(submitted.requests("create")) == 1


@pytest.mark.parametrize(("hours", "requests"), [(1, 7), (2, 11)])
def test_watch_asks_less_and_less_often_and_gives_up(desk, hours, requests):
    write_program(desk.bin / "sleep", 'echo "$1" >>"$STAND_IN_STATE/slept"')
    desk.plan(*[["FAILED"]] * 20)
    desk.submit()
    done = desk.run("watch.sh", "job.env", str(hours))
    assert done.returncode == 1
    assert f"gave up: all {requests} requests of {hours} hours failed; see the" in done.stderr
    assert len(desk.requests("create")) == requests
    slept = [int(seconds) for seconds in desk.lines("slept") if seconds != "60"]
    assert slept == [120, 240, 480, *[960] * (requests - 5)]


@pytest.mark.parametrize("hours", ["0", "1.5", "24h"])
def test_watch_takes_whole_hours(desk, hours):
    told = desk.run("watch.sh", "job.env", hours).stderr
    assert told == f"watch.sh: HOURS must be a whole number of hours; received {hours}\n"


def test_a_job_moves_to_another_zone_after_it_was_deleted(desk):
    desk.plan(["WAITING_FOR_RESOURCES"], ["ACTIVE"])
    desk.submit()
    desk.job(JOB.replace("us-central1-a", "us-east1-d"))
    desk.fails("submit.sh", "was submitted in us-central1-a before and is WAITING_FOR_RESOURCES")
    assert len(desk.requests("create")) == 1
    desk.job(JOB)
    desk.run("delete.sh", "job.env")
    desk.job(JOB.replace("us-central1-a", "us-east1-d"))
    desk.submit()
    assert "--zone=us-east1-d" in desk.requests("create")[1]
    assert desk.object("zone") == "us-east1-d\n"


def test_delete_twice(submitted):
    for _ in range(2):
        submitted.works("delete.sh", "no request and no machine named bert-test is left")
    assert len(submitted.requests("delete")) == 1
    assert (submitted.bucket / "bert-test" / "job.flags").exists()


def test_status(submitted):
    submitted.machine(0)
    submitted.works("status.sh", "request: ABSENT\nresult: done 20", "a line of the program")
    assert "no log yet" in submitted.run("status.sh", "job.env", DRY_RUN="1").stdout
