"""The real `tf.distribute.TPUStrategy` on a machine without a TPU, to trace functions under it.

TPUStrategy does everything that it does in Python while a function is traced: it makes its kind of
variables, rewrites computations for a TPU and gathers outputs. Only running them needs a TPU.
"""

import collections

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.tpu import tpu_system_metadata

HOST = "/job:localhost/replica:0/task:0"


class _Resolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    """Describes a TPU of one host, which does not exist."""

    task_type = None
    task_id = None
    environment = ""
    tpu_hardware_feature = None

    def __init__(self, cores: int):
        self._cores = cores

    def get_tpu_system_metadata(self):
        names = [f"{HOST}/device:TPU:{i}" for i in range(self._cores)]
        devices = [session._DeviceAttributes(name, "TPU", 0, 0) for name in names]
        counts = {"num_cores": self._cores, "num_hosts": 1, "num_of_cores_per_host": self._cores}
        return tpu_system_metadata.TPUSystemMetadata(**counts, topology=None, devices=devices)

    def master(self, *unused):
        return ""

    def get_master(self):
        return ""

    def get_job_name(self):
        return "localhost"

    def cluster_spec(self):
        return tf.train.ClusterSpec({})


def pretend_tpu(cores: int) -> tf.distribute.TPUStrategy:
    """Returns a TPUStrategy whose variables are on logical CPUs; call it before any computation."""
    [cpu], logical = tf.config.list_physical_devices("CPU"), tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [logical] * cores)
    strategy = tf.distribute.TPUStrategy(_Resolver(cores))
    devices = [f"{HOST}/device:CPU:{i}" for i in range(cores)]
    extended = strategy.extended
    extended._tpu_devices = np.array([[device] for device in devices], dtype=object)
    extended._host_device = devices[0]
    hosts = collections.OrderedDict
    extended._device_input_worker_devices = hosts([(devices[0], devices)])
    extended._host_input_worker_devices = hosts([(devices[0], [devices[0]] * cores)])
    return strategy


def nodes_on_tpu(traced) -> list[tf.compat.v1.NodeDef]:
    """Returns the nodes of a traced function that a TPU would run, nested functions included."""
    graph = traced.graph.as_graph_def(add_shapes=True)
    functions = {function.signature.name: function for function in graph.library.function}
    found = []
    seen = set()

    def add_called(node):
        for value in node.attr.values():
            for name in (value.func.name, *(f.name for f in value.list.func)):
                if name in functions and name not in seen:
                    seen.add(name)
                    for inner in functions[name].node_def:
                        found.append(inner)
                        add_called(inner)

    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if "_tpu_replicate" in node.attr:
                found.append(node)
                add_called(node)
    return found


def has_dynamic_shape(node: tf.compat.v1.NodeDef) -> bool:
    """Returns whether an output of the node has a dimension that is not known."""
    shapes = node.attr["_output_shapes"].list.shape
    return any(shape.unknown_rank or any(d.size < 0 for d in shape.dim) for shape in shapes)


def has_strings(node: tf.compat.v1.NodeDef) -> bool:
    """Returns whether the node takes or gives strings, as far as its attributes tell."""
    types = [value.type for value in node.attr.values()]
    return node.op.startswith(("String", "AsString")) or tf.string.as_datatype_enum in types
