"""Input that another machine reads, as with a TPU that is not this machine's; here a process."""

import socket
import subprocess
import sys

import pytest

from bert_tf.engine import input_pipeline
from bert_tf.engine.distribution import InputShard
from bert_tf.tasks.pretraining.schema import pretraining_schema
from tests.support.pretraining_runs import run_code, write_records

SCHEMA = pretraining_schema(12, 2)
SERVE = """
import sys
import tensorflow as tf
cluster = {"worker": [sys.argv[1]]}
server = tf.distribute.Server(cluster, job_name="worker", task_index=0, protocol="grpc")
print("serving", flush=True)
server.join()
"""


def check(address, folder):
    """Runs in a process of its own, for it connects TensorFlow to a cluster."""
    import tensorflow as tf

    tf.config.experimental_connect_to_host(address, job_name="worker")
    host = "/job:worker/replica:0/task:0/device:CPU:0"
    files = [write_records(f"{folder}/{i}.tfrecord", 30 + i, 12, 2, seed=i) for i in range(3)]

    def source():
        shard = InputShard(0, 1, host)
        return input_pipeline.TrainingInput(files, SCHEMA, 4, 3, shard)

    def draw(iterator, count):
        batches = [next(iterator)["input_ids"] for _ in range(count)]
        assert {batch.device for batch in batches} == {host}
        return [batch.numpy().tolist() for batch in batches]

    first, second = source(), source()
    draw(first.iterator, 40)  # in the second epoch
    first.capture()(f"{folder}/ckpt")
    assert second.restore(f"{folder}/ckpt")
    assert draw(second.iterator, 30) == draw(first.iterator, 30)


@pytest.mark.slow
def test_the_place_in_the_input_is_saved_where_it_is_read(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout.readline() == "serving\n"
        code = "from tests.engine import remote_host_test as t; "
        run_code(code + f"t.check({address!r}, {str(tmp_path)!r})", timeout=200)
    finally:
        server.kill()
        server.wait()
