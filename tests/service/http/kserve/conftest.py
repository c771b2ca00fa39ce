"""The server of a file, as for the tests of gRPC, with both of its ports."""

from tests.service.rpc.conftest import served, server  # noqa: F401 - fixtures
