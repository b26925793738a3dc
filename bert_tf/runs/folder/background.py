"""Runs work in a thread, one piece at a time, and raises its errors in the thread that waits."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Background:
    """A thread for work that must not keep the devices waiting."""

    def __init__(self):
        self._pool = ThreadPoolExecutor(1, "background")
        self._future: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Waits for the previous work and starts this work, unless the previous work failed."""
        self.wait()
        self._future = self._pool.submit(work)

    def check(self) -> None:
        """Raises the exception of work that has failed, without waiting."""
        if self._future is not None and self._future.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the current work, and raises its exception, once."""
        if self._future is not None:
            wait([self._future])  # after an interrupt here, the next call waits again
            future, self._future = self._future, None
            future.result()
