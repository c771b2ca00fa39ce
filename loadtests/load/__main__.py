"""Runs a load test: `python -m loadtests.load`."""

import typer

from loadtests.load.main import main
from loadtests.load.scenario import scenario_names

if __name__ == "__main__":
    names = ", ".join(scenario_names())
    main.__doc__ = f"{main.__doc__} Ours are {names}."
    typer.run(main)
