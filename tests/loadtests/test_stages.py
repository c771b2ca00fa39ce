"""Stages: whose functions they are, and that no time is counted twice or lost."""

import asyncio
import importlib
import threading
import time

import pytest

from loadtests.staged import MEASURING, OUTSIDE, STAGES, Stages

WORK_S = 0.02  # of processor time
WITHIN = 0.3  # of what was computed: the kernel's clock and ours differ by what stamps take


def compute(seconds: float = WORK_S) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


@pytest.mark.parametrize(
    ("module", "owner", "name"), [each for functions in STAGES.values() for each in functions]
)
def test_every_stage_is_of_functions_that_there_are(module: str, owner: str, name: str) -> None:
    holder = importlib.import_module(module)
    holder = getattr(holder, owner) if owner else holder
    assert hasattr(holder, name) or name == "_collate"  # given to each engine as it is made


def test_what_a_stage_encloses_is_not_its_own() -> None:
    """A stage of 20 ms around another of 20 ms: 20 ms each."""
    stages = Stages()
    inner = stages.wrapped("inner", compute)

    def around() -> None:
        compute()
        inner()

    stages.wrapped("outer", around)()
    found = stages.report()
    assert found["inner"] == pytest.approx(WORK_S * 1e9, rel=WITHIN)
    assert found["outer"] == pytest.approx(WORK_S * 1e9, rel=WITHIN)


async def test_a_stage_that_waits_leaves_the_time_to_others() -> None:
    """While one coroutine waits for an event another computes, which is no part of it."""
    stages, event = Stages(), asyncio.Event()

    async def wait() -> int:
        await event.wait()
        compute()
        return 17

    waiting = asyncio.create_task(stages.wrapped("waiting", wait)())
    await asyncio.sleep(0)
    compute(5 * WORK_S)
    event.set()
    assert await waiting == 17
    assert stages.report()["waiting"] == pytest.approx(WORK_S * 1e9, rel=WITHIN)


def test_all_stages_together_are_the_processor_time_of_the_process() -> None:
    """Threads that were never stamped included."""
    stages, computed, over = Stages(), threading.Event(), threading.Event()

    def work() -> None:
        compute()
        computed.set()
        over.wait()

    before, began_s = stages.report(), time.process_time()
    thread = threading.Thread(target=work)
    thread.start()
    stages.wrapped("some", compute)()
    computed.wait()
    after, took_s = stages.report(), time.process_time() - began_s
    over.set()
    thread.join()
    assert OUTSIDE not in after
    spent_ns = sum(after.values()) - sum(before.values())
    assert spent_ns == pytest.approx(took_s * 1e9, rel=WITHIN)
    assert after[MEASURING] < spent_ns
