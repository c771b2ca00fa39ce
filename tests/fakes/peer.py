"""A worker of no engine: answers what its options say, as `worker.py` wants it."""

import sys

from loadtests.compare.worker import Answer, Run, Setup, Work, serve


def open_engine(setup: Setup) -> Run:
    if setup.options.get("fails"):
        raise RuntimeError("no such model")
    print("a library prints what it likes")  # noqa: T201

    def run(work: Work) -> Answer:
        if setup.options.get("ends"):
            sys.exit("gone")
        wrong = int(setup.options.get("wrong", 0))
        if work.num_tokens:
            outputs = [
                [row[0] + wrong] * n for row, n in zip(work.rows, work.num_tokens, strict=True)
            ]
            return Answer(2.0, outputs)
        return Answer(2.0, [[row[0] + wrong * i, -row[0]] for i, row in enumerate(work.rows)])

    return run


if __name__ == "__main__":
    serve(open_engine)
