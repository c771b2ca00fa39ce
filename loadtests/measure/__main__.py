"""Measure one thing of this server.

    python -m loadtests.measure                 the list of all measures
    python -m loadtests.measure steps --help    the options of one
    python -m loadtests.measure steps --graph model_repository/gpt/1/model.onnx --rounds 3

A run leaves its figures and rounds in `build/loadtests/results/NAME.json`. Those that are published
are in `loadtests/results`; `python -m loadtests.pages` writes docs/benchmarks out of them.
"""

from loadtests.measure.harness import program
from loadtests.measure.measures import MEASURES

app = program(MEASURES)

if __name__ == "__main__":
    app()
