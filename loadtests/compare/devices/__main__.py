"""Measure a network of random weights on a device, beside transformers.

    python -m loadtests.compare.devices encoders --shape bert-base --device cuda --peer eager
    python -m loadtests.compare.devices decoders --shape gpt2 --device cuda --peer compiled
    python -m loadtests.compare.devices layouts --shape gpt2 --device cuda

Graphs are written into the repository where they are not there yet. The GPU check runs the same
measures within its budget. docs/how-to/cuda.md says what was verified on CUDA.
"""

from loadtests.compare.devices.decoders import DECODERS
from loadtests.compare.devices.encoders import ENCODERS
from loadtests.compare.devices.layouts import LAYOUTS
from loadtests.measure.harness import program

app = program((ENCODERS, DECODERS, LAYOUTS))

if __name__ == "__main__":
    app()
