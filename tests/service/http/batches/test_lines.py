"""The lines of a batch's file: which files are taken, and the fault of each line that is not."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from service.http.batches.lines import MAX_FAULTS, check_lines, numbered, read_line

URL = "/v1/embeddings"
MAX_BYTES = 1_000


def line(custom_id: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "mini", "input": "x"}
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": body, **fields}


def written(*lines: Any, end: str = "\n") -> bytes:
    return "".join(json.dumps(each) + end for each in lines).encode()


def checked(content: bytes, max_lines: int = 100) -> tuple[int, list[Any]]:
    count, faults = check_lines(content.splitlines(keepends=True), URL, max_lines, MAX_BYTES)
    return count, [(fault.line, fault.code, fault.param) for fault in faults]


# Each makes a wrong line of a right one, with its code and the field that is at fault.
WRONG: list[tuple[Callable[[dict[str, Any]], Any], str, str | None]] = [
    (lambda each: [each], "invalid_json_line", None),
    (lambda _: "text", "invalid_json_line", None),
    (lambda each: {**each, "method": "GET"}, "invalid_method", "method"),
    (lambda each: {**each, "method": 1}, "invalid_request", "method"),
    (lambda each: {**each, "url": "/v1/completions"}, "mismatched_url", "url"),
    (lambda each: {**each, "url": URL + "/"}, "mismatched_url", "url"),
    (lambda each: {**each, "custom_id": ""}, "invalid_custom_id", "custom_id"),
    (lambda each: {**each, "custom_id": "x" * 513}, "invalid_custom_id", "custom_id"),
    (lambda each: {**each, "custom_id": None}, "invalid_request", "custom_id"),
    (lambda each: {**each, "body": []}, "invalid_request", "body"),
    (lambda each: {**each, "body": None}, "invalid_request", "body"),
    (lambda each: {**each, "body": {"input": "x" * MAX_BYTES}}, "line_too_long", None),
    *(
        (
            lambda each, name=name: {k: v for k, v in each.items() if k != name},
            "missing_required_parameter",
            name,
        )
        for name in ("custom_id", "method", "url", "body")
    ),
]


@given(
    lines=some.lists(some.sampled_from([None, *range(len(WRONG))]), min_size=1, max_size=12),
    end=some.sampled_from(["\n", "\r\n", "\n\n", "\r\n \r\n"]),
    has_mark=some.booleans(),
    has_last_end=some.booleans(),
)
def test_every_fault_is_told_with_the_number_of_its_line(
    lines: list[int | None], end: str, has_mark: bool, has_last_end: bool
) -> None:
    """Empty lines count as lines, and are no requests."""
    content, expected, step = b"", [], end.count("\n")
    for place, wrong in enumerate(lines):
        right = line(f"id-{place}")
        if wrong is not None:
            change, code, param = WRONG[wrong]
            right = change(right)
            expected.append((1 + place * step, code, param))
        content += written(right, end=end)
    content = content if has_last_end else content.rstrip()
    content = (b"\xef\xbb\xbf" if has_mark else b"") + content
    assert checked(content) == (len(lines), expected)


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_requests_is_refused(content: bytes) -> None:
    assert checked(content) == (0, [(None, "empty_file", None)])


@pytest.mark.parametrize("content", [b"{", b"nul", b'{"a": "\xff"}', b'{"a": 1}}', b"[" * 2_000])
def test_a_line_that_is_no_json_is_refused_by_its_number(content: bytes) -> None:
    first = written(line("a"))
    count, faults = check_lines([first, content[:MAX_BYTES]], URL, 9, MAX_BYTES)
    assert (count, [fault.line for fault in faults]) == (2, [2])
    assert faults[0].code == "invalid_json_line"


def test_a_name_that_is_taken_is_refused_with_the_line_that_has_it() -> None:
    _, faults = check_lines([written(line(each)) for each in "aba"], URL, 9, MAX_BYTES)
    assert [(fault.line, fault.code) for fault in faults] == [(3, "duplicate_custom_id")]
    assert faults[0].message == "custom_id 'a' is that of line 1 already"


def test_lines_beyond_the_bound_are_not_read() -> None:
    content = written(*(line(str(each)) for each in range(11)))
    assert checked(content, max_lines=10) == (11, [(None, "too_many_requests", None)])
    assert checked(content, max_lines=11) == (11, [])


def test_the_faults_that_are_told_have_a_bound() -> None:
    _, faults = checked(b"{\n" * 1_000, max_lines=2_000)
    assert len(faults) == MAX_FAULTS


@given(body=some.dictionaries(some.text(max_size=9), some.text(max_size=9) | some.integers(0, 9)))
def test_a_body_is_handed_on_as_it_is_written(body: dict[str, Any]) -> None:
    content = json.dumps(line("a", body=body), ensure_ascii=False).encode()
    ((_, kept),) = numbered([content])
    assert json.loads(bytes(read_line(kept, URL, 10_000).body)) == body
