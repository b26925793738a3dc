"""Replicas that are threads of this process."""

import threading
from concurrent.futures import ThreadPoolExecutor

from bert_tf.engine.steps import Replicas


def on_replicas(count, make_step):
    """Returns what `make_step(replicas)` returns on each of `count` replicas, which sum tensors."""
    barrier = threading.Barrier(count)
    given = [None] * count

    def run(number):
        def total(tensors):
            given[number] = tensors
            barrier.wait(60)
            sums = [sum(several[1:], several[0]) for several in zip(*given, strict=True)]
            barrier.wait(60)
            return sums

        try:
            return make_step(Replicas(count, total, number))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
