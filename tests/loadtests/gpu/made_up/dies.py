"""A section whose process ends under it."""

import os

from loadtests.gpu.context import Context, Findings


def run(context: Context) -> Findings:
    os._exit(7)
