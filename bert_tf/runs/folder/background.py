"""Work in a thread, one piece at a time, whose errors come back to whoever waits for it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Background:
    """A thread for work that must not hold up the devices."""

    def __init__(self):
        self._pool = ThreadPoolExecutor(1, "background")
        self._future: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Starts the work, once that before is done, and returns.

        Raises:
            Exception: what the work before raised; this one is then not started.
        """
        self.wait()
        self._future = self._pool.submit(work)

    def check(self) -> None:
        """Raises what work that has failed raised; does not wait."""
        if self._future is not None and self._future.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the work in hand.

        Raises:
            Exception: what the work raised; once.
        """
        if self._future is not None:
            wait([self._future])  # an interrupt here leaves it to the next call
            future, self._future = self._future, None
            future.result()
