"""The server of a file's tests, as those of HTTP have it."""

from tests.service.http.conftest import served, server

__all__ = ["served", "server"]
