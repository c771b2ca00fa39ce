"""A section whose process ends under it."""

import os

from loadtests.gpu.context import Context


def run(context: Context) -> None:
    os._exit(7)
