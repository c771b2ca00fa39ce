"""What holds for every test: one thread for PyTorch, SIGINT as a terminal has it, and no width."""

import gc
import itertools
import os
import signal
from collections import defaultdict
from operator import itemgetter

import pytest
from hypothesis import HealthCheck, settings

# Before torch is imported, and for the commands that tests start. Networks as small as those of
# tests gain nothing from threads, which wait for each other for longer than they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs start with SIGINT ignored, and so would the commands that tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The servers and commands that tests start are compiled once, not at each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# On cores that others share an example may take any time. Each run draws examples of its own;
# CI has Hypothesis's profile `ci`, whose examples are the same every time.
settings.register_profile(
    "shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared cores")

# The readline library, which pytest imports, exports a terminal's size to the processes that run
# tests, where it would outweigh the width that a test gives to a command.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)


# Ten thousand tests and the libraries that they import are millions of objects, and a server looks
# for garbage whenever it closes a model. So what is alive after the collection of tests, and after
# each file, is looked at once.
def pytest_collection_finish() -> None:
    _set_aside()


@pytest.hookimpl(trylast=True)  # when the file's servers are gone
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path != item.path:
        _set_aside()


def _set_aside() -> None:
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the time goes, beside `--durations`: the files that take half of it."""
    if not terminalreporter.config.option.durations:
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    total, named = sum(seconds.values()), 0.0
    terminalreporter.section("files with half of the time")
    for file, of_file in sorted(seconds.items(), key=itemgetter(1), reverse=True):
        terminalreporter.write_line(f"{of_file:7.1f}s {file}")
        named += of_file
        if named >= total / 2:
            break
    terminalreporter.write_line(f"{total:7.1f}s in all {len(seconds)} files")
