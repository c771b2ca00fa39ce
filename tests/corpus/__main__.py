"""Record what a server answers: `python -m tests.corpus --write`, after a change that is meant.

Without `--write` it shows what would change. The requests are made anew from the description of the
port, so that new fields and paths come in. Every request is asked of several servers, each in a
process of its own: an answer that differs between them cannot be kept, and is named.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.corpus.kept import FILE, is_settled, keep, kept, record

NUM_SERVERS = 4


def main() -> None:
    """Ask, compare with what is kept, and keep it if that is asked for."""
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as processes:
        all_recorded = list(processes.map(record, range(NUM_SERVERS)))
    settled = []
    for one, *others in zip(*all_recorded, strict=True):
        if not is_settled(one):
            continue
        if all(each == one for each in others):
            settled.append(one)
        else:
            sys.stdout.write(f"differs each time: {one}\n")
    before = {json.dumps(each) for each in kept()} if FILE.exists() else set()
    after = {json.dumps(each) for each in settled}
    for sign, some in (("-", before - after), ("+", after - before)):
        for line in sorted(some)[:20]:
            sys.stdout.write(f"{sign} {line[:400]}\n")
    sys.stdout.write(f"{len(before - after)} exchanges go, {len(after - before)} come\n")
    if "--write" in sys.argv[1:]:
        keep(settled)


if __name__ == "__main__":
    main()
