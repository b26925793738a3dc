"""What is made of SIGTERM and Ctrl-C."""

import os
import signal
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_tf.engine import interrupts
from tests.support.pretraining_runs import run_code


@pytest.fixture(autouse=True)
def handlers():
    """Both signals are heard, in the background too; later tests have their handlers back."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hook = sys.unraisablehook
    interrupts.raise_on_sigterm()
    yield
    sys.unraisablehook = hook
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


def test_sigterm_is_raised_once():
    with pytest.raises(interrupts.Terminated) as info:
        send(signal.SIGTERM)
    send(signal.SIGTERM)  # while it saves
    assert interrupts.exit_status(info.value) == 75
    assert interrupts.exit_status(KeyboardInterrupt()) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_callback_of_a_weak_reference_is_not_lost(number):
    """Python drops what such a callback raises."""
    interrupts.raise_on_ctrl_c()
    target = frozenset("a")
    watched = weakref.ref(target, lambda _: send(number))
    with pytest.raises(KeyboardInterrupt) as info:
        del target
        time.sleep(10)
    assert isinstance(info.value, interrupts.Terminated) == (number == signal.SIGTERM)
    assert watched() is None


@pytest.mark.parametrize(
    "number, kind", [(signal.SIGTERM, interrupts.Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_what_is_held_is_told_of_and_raised_at_the_end(number, kind):
    done = []
    assert interrupts.held() is None
    with pytest.raises(KeyboardInterrupt) as info, interrupts.hold():
        assert interrupts.held() is None
        send(number)
        done.append(interrupts.held())
    assert type(info.value) is kind and done == [info.value]
    assert interrupts.held() is None
    with pytest.raises(kind):
        send(number)


def test_a_hold_within_another_leaves_the_end_to_it():
    with pytest.raises(interrupts.Terminated), interrupts.hold():
        with interrupts.hold():
            send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert interrupts.held()
        done = True
    assert done
    # A thread that hears no signals holds nothing.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(interrupts.hold().__enter__).result()
    assert interrupts.held() is None
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_after_another_interrupt_ends_the_program_at_once(first, capfd):
    child = os.fork()
    if not child:
        with interrupts.hold():
            send(first)
            send(signal.SIGINT)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 131
    assert capfd.readouterr().err == (
        "\nCtrl-C again: ended at once. The steps since the last checkpoint are lost; the same"
        " command continues from that checkpoint.\n"
    )


def test_a_program_whose_work_is_done_comes_to_its_end():
    # An instance that is torn down with the interpreter stands for what TensorFlow does then.
    run_code(
        "import os, signal\n"
        "from bert_tf.engine import interrupts\n"
        "interrupts.raise_on_sigterm()\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()):\n"
        "        kill(pid, 15)\n"
        "late = Late()\n"
        "interrupts.ignore_sigterm()\n"
    )
