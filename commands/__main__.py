"""The console script. A health check, run every few seconds, goes to a client of its own.

Everything else goes to the commands of `commands/main.py`, whose import takes three times as long.
"""

import os
import sys

INTERRUPTED = 130  # as in commands/errors.py, which imports more than a health check needs


def main() -> None:
    if sys.argv[1:2] != ["serve"]:
        # Else gRPC's core writes a line of its own about a handshake that fails, beside our error.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if sys.argv[1:2] == ["healthcheck"]:
        from commands.ask.client.health import main as check

        sys.exit(check(sys.argv[2:]))
    try:
        from commands.main import main as run

        run()
    except KeyboardInterrupt:  # while modules are imported: commands have an answer of their own
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
