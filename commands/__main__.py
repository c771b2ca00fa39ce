"""The console script. A health check, run every few seconds, goes to a client of its own.

So does `--version`, which needs no parser.

Everything else goes to the commands of `commands/main.py`, whose import takes three times as long.
"""

import os
import sys

INTERRUPTED = 130  # as in commands/errors.py, which a health check does not need


def main() -> None:
    if sys.argv[1:2] != ["serve"]:
        # Else gRPC's core writes a line of its own about a handshake that fails, beside our error.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if sys.argv[1:2] == ["healthcheck"]:
        from commands.ask.client.health import main as check

        sys.exit(check(sys.argv[2:]))
    if sys.argv[1:] == ["--version"] and "_ATTENDANT_COMPLETE" not in os.environ:
        from service import __version__

        print(__version__)  # noqa: T201
        return
    try:
        from commands.main import main as run

        run()
    except KeyboardInterrupt:  # while modules are imported: commands have an answer of their own
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
