"""What is said of a body that is no JSON."""

import pytest

from service.http import body as bodies


@pytest.mark.parametrize("at", range(-14, 4))
def test_a_pair_at_the_end_of_what_is_searched_is_no_half(at: int) -> None:
    """Wherever its middle stands; a half well before the end is one."""
    pair, start = b"\\ud83d\\ude00", bodies.SEARCHED_BYTES + at
    body = b"a" * start + pair + b"a" * 100
    assert not bodies._half_surrogate(body)
    assert "\\ud83d at byte 3" in bodies._half_surrogate(b"aaa" + pair[:6] + body)
