"""The environment variable TF_CONFIG, which lists the machines of a run."""

import json
import re
from typing import Any

from bert_tf.errors import UserError, quoted

_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def check_tf_config(text: str | None) -> None:
    """Checks the content of TF_CONFIG early; TensorFlow reports mistakes much later.

    Raises:
        UserError: the text is missing, or does not list the machines and which one this is.
    """
    if not text:
        raise UserError(
            "--distribution_strategy=multi_worker_mirrored needs the environment variable"
            f" TF_CONFIG, on each machine with its own index: {_EXAMPLE}"
        )
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _error(f"it is not JSON ({error})") from error
    if not isinstance(config, dict):
        config = {}
    cluster, task = config.get("cluster"), config.get("task")
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise _error(f"cluster and task must be dictionaries; it is {quoted(text)}")
    _check_cluster(cluster)
    _check_task(cluster, task)


def _check_cluster(cluster: dict[str, Any]) -> None:
    if not cluster.keys() <= {"chief", "worker"}:
        raise _error(
            f"cluster may only have the keys chief and worker; it has {quoted(sorted(cluster))}"
        )
    for kind in cluster or ("worker",):
        addresses = cluster.get(kind)
        if not isinstance(addresses, list) or not addresses or not all(map(is_address, addresses)):
            raise _error(
                f"cluster.{kind} must be a list of HOST:PORT, ports from 1 to 65535; it is"
                f" {quoted(addresses)}"
            )
    if len(cluster.get("chief", [""])) > 1:
        raise _error(f"cluster.chief must be one address; it is {quoted(cluster['chief'])}")
    every = [address for addresses in cluster.values() for address in addresses]
    if len(set(every)) < len(every):
        raise _error(
            f"cluster lists an address twice: {quoted(every)}. Give every worker its own HOST:PORT"
        )


def is_address(value: Any) -> bool:
    """Returns whether a value is HOST:PORT."""
    found = re.fullmatch(r"\S+:([0-9]{1,5})", value) if isinstance(value, str) else None
    return found is not None and 0 < int(found[1]) < 2**16


def _check_task(cluster: dict[str, list[str]], task: dict[str, Any]) -> None:
    kind, index = task.get("type"), task.get("index")
    if kind not in list(cluster):
        raise _error(f"task.type must be one of {', '.join(cluster)}; it is {quoted(kind)}")
    most = len(cluster[kind]) - 1
    number = int(index) if isinstance(index, str) and re.fullmatch(r"\d{1,9}", index) else index
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise _error(f"task.index must be a whole number from 0 to {most}; it is {quoted(index)}")


def _error(problem: str) -> UserError:
    return UserError(
        f"The environment variable TF_CONFIG: {problem}. It must be like {_EXAMPLE}, on each"
        " machine with its own index"
    )
