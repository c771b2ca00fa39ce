"""`attendant serve`: what it prints when it is ready."""

from rich.text import Text

from commands.serve import address_lines
from service.settings import Settings


def test_no_address_breaks_in_a_terminal_of_80_characters() -> None:
    """HTTP's address has a line of its own above the line that programs wait for."""
    lines = address_lines(Settings(), 8001, 8002, 8000)
    http, last = (Text.from_markup(line).plain for line in lines)
    assert http == "HTTP http://127.0.0.1:8000   a browser shows the models there"
    assert last == "gRPC 127.0.0.1:8001   metrics http://127.0.0.1:8002/metrics"
    assert max(len(http), len(last)) < 80
    assert len(address_lines(Settings(), 8001, 8002, None)) == 1
    without = address_lines(Settings(playground=False), 8001, 8002, 8000)[0]
    assert Text.from_markup(without).plain == "HTTP http://127.0.0.1:8000"
