"""File descriptors: every connection takes one, and the process may open a limited number."""

import logging
import resource
from dataclasses import replace

from service.errors import SettingError
from service.settings import Settings

logger = logging.getLogger(__name__)
OWN_FILES = 512  # models, shared memory, scrapes, and what libraries open
LEAST_FILES = 256  # with fewer there is no room for connections beside a few models


def settings_within_files(settings: Settings) -> Settings:
    """The settings with as many connections as descriptors allow, once the limit is raised.

    Raises `SettingError` where the process may open too few files to serve at all.
    """
    num_ports = 1 + (settings.http_port >= 0) + (settings.admin_port >= 0)
    allowed = _raised(num_ports * settings.max_connections + OWN_FILES)
    most = max_connections(allowed, num_ports)
    if most >= settings.max_connections:
        return settings
    logger.warning(
        "--max-connections is lowered from %d to %d: this process may open %d files "
        "(ulimit -n, LimitNOFILE)",
        *(settings.max_connections, most, allowed),
    )
    return replace(settings, max_connections=most)


def max_connections(allowed: int, num_ports: int) -> int:
    """The connections of each port for that number of files. Raises `SettingError`."""
    if allowed < LEAST_FILES:
        raise SettingError(
            f"this process may open {allowed} files, expected at least {LEAST_FILES}: raise the "
            "limit (ulimit -n, LimitNOFILE of systemd, --ulimit nofile of docker)"
        )
    return (allowed - min(OWN_FILES, allowed // 2)) // num_ports


def _raised(count: int) -> int:
    """The number of files that may be open, which is raised to `count` where it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= count:
        return count
    allowed = count if hard == unlimited else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed
