"""The machine that figures depend on: the processor, its instructions, the memory."""

import os
import platform
from pathlib import Path

from service.runtime.cpus import available_cpus

INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


def machine() -> dict[str, object]:
    """Name, cores that we may use, which of `INSTRUCTIONS` it has, memory."""
    facts = _facts()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": facts.get("model name", platform.machine()),
        "family_model": f"{facts.get('cpu family', '?')}/{facts.get('model', '?')}",
        "cores": available_cpus(),
        "instructions": instructions(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def instructions() -> list[str]:
    """Those of `INSTRUCTIONS` that the processor has."""
    facts = _facts()
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    return [name for name in INSTRUCTIONS if name in flags]


def _facts() -> dict[str, str]:
    """Of the first processor, by the names that the kernel gives them."""
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return facts
