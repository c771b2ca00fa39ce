"""Every kept request is answered as it was: status, type and body, to the byte."""

import asyncio
from collections import Counter

from tests.corpus.kept import answered, kept, made
from tests.fakes.every_task import SERVICES

UNSTEADY = 25  # requests at most whose answers differ each time, and are not kept
# Their answers are maps of protobuf, whose order is another in each process.
DISORDERED = {"/v2/logging", "/v2/models/simple/trace/setting", "/v2/trace/setting"}


def test_every_path_and_method_has_five_requests() -> None:
    """Also of fields that were added: what is made of the description is kept, but for a few."""
    counts = Counter(path for path, _, _ in kept())
    assert {path for path, _ in SERVICES.values()} <= counts.keys()
    assert {path: count for path, count in counts.items() if count < 5}.keys() <= DISORDERED
    missing = set(made()) - {(path, request) for path, request, _ in kept()}
    assert len(missing) <= UNSTEADY, f"record them by `python -m tests.corpus --write`: {missing}"


def test_every_request_is_answered_as_it_was() -> None:
    """Bodies of every POST path and messages of every method, right and wrong.

    After a change that is meant to change answers: `python -m tests.corpus --write`.
    """
    before = kept()
    requests = [(path, request) for path, request, _ in before]

    async def differences() -> list[str]:
        found = []
        after = answered(requests)
        for path, request, answer in before:
            _, _, given = await anext(after)
            if given != answer:
                found.append(f"{path} {request[:300]}\n  was {answer}\n  is  {given}")
        await after.aclose()
        return found

    found = asyncio.run(differences())
    assert not found, f"{len(found)} of {len(before)} differ\n" + "\n".join(found[:10])
