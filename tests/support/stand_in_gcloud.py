"""A gcloud for tests: it records the calls, keeps a little state, and refuses unknown commands.

The folder STAND_IN_STATE holds
    calls.jsonl   the arguments of every call, one a line
    plan.json     for each request, the states that successive `list` calls find; the last state
                  stays. [state, text] also writes the object `result` in the job's folder
    requests/     one file for each queued resource, ZONE.NAME
    metadata/     what the machine of the newest request would find as its attributes
    buckets/      a folder for each bucket

COMMANDS has the commands and flags that the project's scripts and documents use, from
https://cloud.google.com/sdk/gcloud/reference and checked against the command table of Cloud SDK
528. A flag ending in `=` takes a value; `!` marks required ones.

What no real gcloud was asked: whether the names of slices and images are accepted, whether a
machine of each zone can be had, whether the startup script runs on every machine of a slice and
finds its `agent-worker-number`, whether the rights suffice, how states follow each other, and what
the messages are. No real kubectl has read the manifests.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

WIDE = "--project= --quiet --format="
QUEUED = "compute tpus queued-resources"
COMMANDS = {
    f"{QUEUED} create": "--node-id=! --zone=! --accelerator-type=! --runtime-version=! --spot"
    " --service-account= --scopes= --metadata= --metadata-from-file=",
    f"{QUEUED} list": "--zone=! --filter=",
    f"{QUEUED} describe": "--zone=!",
    f"{QUEUED} delete": "--zone=! --force --async",
    "compute tpus tpu-vm list": "--zone=! --filter=",
    "compute tpus tpu-vm ssh": "--zone=! --worker= --command=",
    "storage cp": "--recursive",
    "storage cat": "--range=",
    "storage ls": "",
    "storage rm": "--recursive",
    "storage buckets create": "--location= --uniform-bucket-level-access",
    "storage buckets add-iam-policy-binding": "--member=! --role=!",
    "services enable": "",
    "iam service-accounts create": "--display-name=",
    "iam service-accounts delete": "",
    "iam service-accounts add-iam-policy-binding": "--member=! --role=!",
    "iam roles create": "--title= --permissions=",
    "iam roles delete": "",
    "projects describe": "",
    "projects add-iam-policy-binding": "--member=! --role=! --condition=",
    "projects remove-iam-policy-binding": "--member=! --role=! --condition=",
    "auth login": "",
    "auth configure-docker": "",
    "config set": "",
    "artifacts repositories create": "--location= --repository-format=!",
    "container clusters create": "--location= --workload-pool= --num-nodes=",
    "container clusters delete": "--location=",
    "container clusters get-credentials": "--location=",
    "container node-pools create": "--cluster=! --location= --node-locations= --machine-type="
    " --tpu-topology= --num-nodes= --spot --enable-autoscaling --min-nodes= --max-nodes=",
}


class Refusal(Exception):
    """What the real gcloud would print before it ends with an error."""


def parse(words: list[str]) -> tuple[str, dict[str, str], list[str]]:
    """Returns the command, its flags with their values, and its other arguments."""
    length = next((n for n in (4, 3, 2) if " ".join(words[:n]) in COMMANDS), None)
    if length is None:
        raise Refusal(f"Invalid choice: {' '.join(words[:4])!r}.")
    command = " ".join(words[:length])
    known = f"{COMMANDS[command]} {WIDE}".split()
    values, arguments, rest = {}, [], words[length:]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            arguments.append(word)
        elif name in known and not equals:
            values[name] = ""
        elif {f"{name}=", f"{name}=!"} & {*known}:
            if not equals and not rest:
                raise Refusal(f"argument {name}: expected one argument")
            values[name] = value if equals else rest.pop(0)
        else:
            raise Refusal(f"unrecognized arguments: {word}")
    missing = [name[:-2] for name in known if name.endswith("=!") and name[:-2] not in values]
    if missing:
        raise Refusal(f"argument {' '.join(missing)}: Must be specified.")
    return command, values, arguments


class Cloud:
    """The state, and the effect of the commands on it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.requests = folder / "requests"
        self.requests.mkdir(parents=True, exist_ok=True)

    def path(self, url: str) -> Path:
        bucket, _, name = url.removeprefix("gs://").partition("/")
        if not (self.folder / "buckets" / bucket).is_dir():
            raise Refusal(f"gs://{bucket} not found: 404.")
        return self.folder / "buckets" / bucket / name

    def create(self, values: dict[str, str], name: str) -> None:
        request = self.requests / f"{values['--zone']}.{name}"
        if request.exists():
            raise Refusal(f"ALREADY_EXISTS: Resource 'queuedResources/{name}' already exists")
        plan = json.loads((self.folder / "plan.json").read_text())
        attributes = self.folder / "metadata"
        shutil.rmtree(attributes, ignore_errors=True)
        attributes.mkdir()
        for pair in values.get("--metadata", "").split(","):
            key, _, value = pair.partition("=")
            (attributes / key).write_text(value)
        key, _, source = values.get("--metadata-from-file", "=").partition("=")
        if key:
            shutil.copyfile(source, attributes / key)
        request.write_text(json.dumps(plan.pop(0)))
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def look(self, values: dict[str, str]) -> None:
        """Prints the state that the plan has next for the request in the filter."""
        name = re.fullmatch(r'name~"/([-a-z0-9]+)\$"', values["--filter"]).group(1)
        request = self.requests / f"{values['--zone']}.{name}"
        if not request.exists():
            print("Listed 0 items.", file=sys.stderr)
            return
        plan = json.loads(request.read_text())
        state = plan[0]
        if not isinstance(state, str):
            state, result = state
            folder = (self.folder / "metadata" / "bert-folder").read_text()
            self.path(f"{folder}/result").write_text(result)
        if "error" in state:
            request.write_text(json.dumps(plan[1:]))
            raise Refusal(state)
        print(state.partition("/")[0])
        # ACTIVE/PREEMPTED is an active request whose machine is gone.
        (self.folder / "machine_state").write_text(state.partition("/")[2] or "READY")
        request.write_text(json.dumps(plan[1:] or plan))

    def delete(self, values: dict[str, str], name: str) -> None:
        request = self.requests / f"{values['--zone']}.{name}"
        if not request.exists():
            raise Refusal(f"NOT_FOUND: Resource 'queuedResources/{name}' was not found")
        if "--force" not in values:
            raise Refusal("FAILED_PRECONDITION: the queued resource has nodes")
        request.unlink()

    def copy(self, sources: list[str], target: str) -> None:
        for source in sources:
            end = target + Path(source).name if target.endswith("/") else target
            to = self.path(end) if end.startswith("gs://") else Path(end)
            to = to / Path(source).name if to.is_dir() else to
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.path(source) if source.startswith("gs://") else source, to)

    def execute(self, command: str, values: dict[str, str], arguments: list[str]) -> None:
        if command == f"{QUEUED} create":
            self.create(values, arguments[0])
        elif command == f"{QUEUED} list":
            self.look(values)
        elif command == f"{QUEUED} delete":
            self.delete(values, arguments[0])
        elif command == "compute tpus tpu-vm list":
            print((self.folder / "machine_state").read_text())
        elif command == "storage cp":
            self.copy(arguments[:-1], arguments[-1])
        elif command == "storage ls":
            paths = sorted(self.path(arguments[0]).glob("*"))
            if not paths:
                raise Refusal("One or more URLs matched no objects.")
            print("\n".join(arguments[0] + path.name for path in paths))
        elif command in ("storage cat", "storage rm"):
            path = self.path(arguments[0])
            if not path.is_file():
                raise Refusal(f"The following URLs matched no objects or files:\n{arguments[0]}")
            if command == "storage rm":
                path.unlink()
            else:
                print(path.read_text()[int(values.get("--range", "0")) :], end="")
        else:
            raise Refusal(f"the stand-in only knows the words of {command}")


def main() -> None:
    folder = Path(os.environ["STAND_IN_STATE"])
    with open(folder / "calls.jsonl", "a", encoding="utf-8") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    try:
        command, values, arguments = parse(sys.argv[1:])
        Cloud(folder).execute(command, values, arguments)
    except Refusal as refusal:
        sys.exit(f"ERROR: (gcloud) {refusal}")


if __name__ == "__main__":
    main()
