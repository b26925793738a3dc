"""The flags that name the devices to run on."""

import dataclasses

from bert_tf.engine.distribution import PJRT, STRATEGIES
from bert_tf.engine.tf_config import is_address
from bert_tf.errors import UserError, as_given
from bert_tf.runs.flags.setting_fields import Group, Settings

AUTO = "auto"  # the value of --coordinator for which JAX finds the processes


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSettings(Settings):
    """The devices to run on."""

    tpu: str | None = Group.DEVICES.setting(
        None,
        help="TPU to run on: `local` for this machine's TPU, run by TensorFlow. `pjrt` runs on all"
        " devices that JAX finds: TPUs of all generations, or --num_cpu_devices.",
    )
    use_tpu: bool = Group.DEVICES.setting(False, help="Run on a TPU.")
    tpu_name: str | None = Group.DEVICES.setting(
        None,
        help="Name of a TPU node. Google ended TPU nodes in April 2025.",
        needs="use_tpu",
        excludes="tpu",
    )
    tpu_zone: str | None = Group.DEVICES.setting(
        None,
        help="Zone of a TPU node. Google ended TPU nodes in April 2025.",
        excludes=("tpu", "local", PJRT),
        needs_one_of=["tpu", "tpu_name", "master"],
    )
    gcp_project: str | None = Group.DEVICES.setting(
        None,
        help="Project of a TPU node. Google ended TPU nodes in April 2025.",
        excludes=("tpu", "local", PJRT),
        needs_one_of=["tpu", "tpu_name", "master"],
    )
    master: str | None = Group.DEVICES.setting(
        None,
        help="Address of a TPU node. Google ended TPU nodes in April 2025.",
        needs="use_tpu",
        excludes=["tpu", "tpu_name"],
    )
    num_tpu_cores: int | None = Group.DEVICES.setting(
        None, help="Number of cores that the TPU must have. Default: any.", at_least=1
    )
    coordinator: str | None = Group.DEVICES.setting(
        None,
        help="With --tpu=pjrt on several machines, each of which runs this command: HOST:PORT of"
        " process 0, with --num_processes and --process_index; or `auto` on Cloud TPU, where JAX"
        " finds the machines by itself.",
        needs=("tpu", PJRT),
    )
    num_processes: int | None = Group.DEVICES.setting(
        None,
        help="Number of processes that --coordinator waits for.",
        at_least=1,
        needs="coordinator",
    )
    process_index: int | None = Group.DEVICES.setting(
        None,
        help="Number of this process, from 0, among --num_processes.",
        at_least=0,
        needs="coordinator",
    )
    distribution_strategy: str = Group.DEVICES.setting(
        STRATEGIES[0],
        help="Devices to use without a TPU. one_device: one GPU, or the CPU. mirrored: all GPUs of"
        " this machine. multi_worker_mirrored: all GPUs of the machines listed in the environment"
        " variable TF_CONFIG. Batch sizes are over all devices.",
        choices=STRATEGIES,
    )
    num_cpu_devices: int = Group.DEVICES.setting(
        1,
        help="Split this machine's CPU into N devices, to try several replicas without GPUs. Needs"
        " --distribution_strategy=mirrored or --tpu=pjrt.",
        at_least=1,
        at_most=64,  # each is traced and compiled
    )

    def __post_init__(self):
        super().__post_init__()
        address, number, index = self.coordinator, self.num_processes, self.process_index
        if not address:
            return
        if address == AUTO:
            if (number, index) != (None, None):
                raise UserError(
                    f"--coordinator={AUTO} finds the processes by itself: leave --num_processes and"
                    " --process_index out, or give the HOST:PORT of process 0"
                )
        elif not is_address(address):
            raise UserError(
                f"--coordinator={as_given(address)} must be the HOST:PORT of process 0, the port"
                f" from 1 to 65535, or {AUTO}"
            )
        elif number is None or index is None:
            raise UserError(
                f"--coordinator={as_given(address)} needs --num_processes and --process_index: how"
                " many processes the run has, and which one this is, from 0. Only"
                f" --coordinator={AUTO} needs neither"
            )
        elif index >= number:
            raise UserError(
                f"--process_index={index} must be from 0 to {number - 1}, because"
                f" --num_processes={number}"
            )
