"""Worker processes that are killed, or stopped while they tell of an error."""

import os
import signal

import pytest

from bert_tf.engine import interrupts
from bert_tf.tasks.pretraining.records import workers
from tests.support.refusals import refusal


@pytest.mark.parametrize("status", [9, 3])
def test_a_worker_that_ends_by_itself_is_worth_another_try(status):
    message = refusal(workers.run_workers, os._exit, [status], kind=OSError)
    assert message == f"worker 0 ended with status {status}; start the same command again"


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_worker_that_is_stopped_while_it_tells_of_an_error_ends_quietly(
    monkeypatch, number, status
):
    """Another worker failed first, and `run_workers` terminates this one."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(workers, "logging", _Quiet())
    told = []

    class Errors:
        def put(self, error):
            told.append(error)
            os.kill(os.getpid(), number)

    def fail(argument):
        raise OSError(f"{argument} cannot be written")

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(SystemExit) as end:
            workers._call(fail, "a", Errors())
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert end.value.code == status and str(told[0]) == "a cannot be written"
    assert interrupts.held() is None


class _Quiet:
    INFO = 0

    def use_absl_handler(self):
        """Leaves the test's own handler."""

    def set_verbosity(self, level):
        """Leaves the test's own level."""
