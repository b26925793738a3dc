"""The files of tpu/: scripts pass shellcheck, documents name commands that exist, and the manifest,
the job file and the table of machines agree with one another.
"""

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
    for language, block in re.findall(
        r"^```(bash|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        block = block.replace("\\\n", " ")
        if language == "console":  # where a command begins with "$ " and the rest is output
            block = "\n".join(re.findall(r"^\$ (.*)$", block, re.MULTILINE))
        lines += block.replace(" && ", "\n").replace(" | ", "\n").splitlines()
    ours = [line for line in lines if re.match(r"(\w+=\S+ )*(gcloud |tpu/)", line.strip())]
    return [shlex.split(line, comments=True) for line in ours]


def test_shellcheck():
    scripts = [*sorted(TPU.glob("*.sh")), ROOT / ".ci" / "run"]
    assert len(scripts) >= 7
    # From the root, where the scripts' `source=` directives begin; it follows those.
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    command = [shutil.which("shellcheck", path=places), "--external-sources", *scripts]
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
            assert f"`{path.name}" in text, f"tpu/README.md does not tell of {path.name}"


def test_table():
    assert {*ROWS} == {"v2-8", "v3-8", "v4-8", "v5e-8", "v5p-8", "v6e-8"}
    for name, columns in ROWS.items():
        accelerator_type, runtime_version, pjrt, chips, tflops, spot, on_demand, zone = columns
        generation = int(name[1])
        assert accelerator_type == name.replace("v5e", "v5litepod")
        assert pjrt == ("yes" if generation >= 5 else "no")
        assert runtime_version.startswith("v2-alpha-tpu" if generation >= 5 else "tpu-ubuntu2204")
        # Names of v2, v3, v4 and v5p count cores, two a chip.
        assert int(chips) == (8 if name in ("v5e-8", "v6e-8") else 4)
        assert 0 < float(spot) < float(on_demand) < 10 < float(tflops)
        assert re.fullmatch(r"[a-z]+-[a-z]+\d-[a-z]", zone)


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
    # A failure policy needs it.
    assert pod["restartPolicy"] == "Never"
    policy = {
        code: rule["action"]
        for rule in job["spec"]["podFailurePolicy"]["rules"]
        for code in rule.get("onExitCodes", {"values": ["disruption"]})["values"]
    }
    assert policy == {"disruption": "Ignore", 75: "Ignore", 1: "FailJob", 65: "FailJob"}
    [container] = pod["containers"]
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        assert rule.get("onExitCodes", container).get("containerName", "train") == container["name"]

    labels = pod["nodeSelector"]
    assert labels["cloud.google.com/gke-tpu-accelerator"] == "tpu-v5-lite-podslice"
    assert labels["cloud.google.com/gke-spot"] == "true"
    rows, columns = labels["cloud.google.com/gke-tpu-topology"].split("x")
    resources = container["resources"]
    assert resources["requests"] == resources["limits"] == {"google.com/tpu": 8}
    assert int(rows) * int(columns) == 8 == int(ROWS["v5e-8"][3])
    assert "ct5lp-hightpu-8t" in (ROOT / "docs" / "tpu.md").read_text()

    arguments = container["args"]
    assert "--tpu=local" in arguments
    [recipe] = [word.partition("=")[2] for word in arguments if word.startswith("--flagfile")]
    assert (ROOT / recipe).exists()
    entry = (TPU / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["python", "run_pretraining.py"]' in entry


def test_image_and_machine_set_up_the_same():
    image, machine = ((TPU / name).read_text() for name in ("Dockerfile", "startup.sh"))
    for variable in ("NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"):
        ours = [
            re.search(rf"{variable}=(\S+)", text).group(1).split("/lib/")[-1]
            for text in (image, machine)
        ]
        assert ours[0] == ours[1]
    version = re.search(r"FROM python:([\d.]+)-slim", image).group(1)
    assert f"--python {version} " in machine and f"lib/python{version}/" in machine + image
    setup = (ROOT / "setup.py").read_text()
    assert version in re.search(r"python_requires=\"(.*?)\"", setup).group(1)
