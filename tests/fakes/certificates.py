"""Certificates for tests, made by the `openssl` command: an authority, and what it signs."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
NAMES = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost"


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates; its own is `cert`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._own = _make(folder, name)
        self.cert = self._own.cert

    def sign(self, name: str, days: int = 2) -> Signed:
        signer = "-CA", str(self._own.cert), "-CAkey", str(self._own.key)
        return _make(self._folder, name, *signer, days=days)


def _make(folder: Path, name: str, *signer: str, days: int = 2) -> Signed:
    made = Signed(folder / f"{name}.crt", folder / f"{name}.key")
    is_authority = "critical,CA:FALSE" if signer else "critical,CA:TRUE"
    command = [
        *("openssl", "req", "-x509", *CURVE, "-days", str(days), "-subj", f"/CN={name}", *signer),
        *("-addext", NAMES, "-addext", f"basicConstraints={is_authority}"),
        *("-keyout", str(made.key), "-out", str(made.cert)),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=30)  # noqa: S603 - our own
    return made
