"""Runs a compiled loop in a second thread, so that this one shows progress and hears interrupts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import tensorflow as tf

from bert_tf.engine import distribution, interrupts

POLL_SECONDS = 0.5

T = TypeVar("T")


class LoopControl:
    """Two variables that a loop of steps and this process share.

    stop: bool; a loop ends after the step in hand when it is set.
    steps_done: int32; a loop sets it to the number of steps that it has made.

    Args:
        strategy: the devices.

    `host` is the CPU of the machine that runs the loop, where the variables are.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.host = distribution.input_shards(strategy)[0].device
        # On a TPU its host runs the loop, which may be another machine. On a GPU a device would
        # move the step to the CPU.
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self._loop_device = self.host if on_tpu else None
        with tf.device(self.host):
            self.stop = tf.Variable(False, trainable=False)
            self.steps_done = tf.Variable(0, trainable=False)

    def run(self, loop: Callable[[], T], advance: Callable[[int], None]) -> T:
        """Returns what `loop()` returns. Interrupts must be held: one that comes sets `stop`.

        Args:
            loop: makes steps; called in a second thread.
            advance: called now and then with the number of further steps that have been made.
        """
        self.stop.assign(interrupts.held() is not None)
        self.steps_done.assign(0)
        told = 0
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self._run_on_device, loop)
            try:
                while not future.done():
                    if interrupts.held():
                        self.stop.assign(True)
                    try:
                        future.exception(POLL_SECONDS)
                    except TimeoutError:
                        pass
                    done = int(self.steps_done.numpy())
                    advance(done - told)
                    told = done
            except BaseException:
                self.stop.assign(True)
                raise
        return future.result()

    def _run_on_device(self, loop: Callable[[], T]) -> T:
        with tf.device(self._loop_device):  # of the thread that calls it
            return loop()
