"""Every file that mentions CUDA says what was verified there, or refers to docs/how-to/cuda.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("commands", "deploy", "docs", "export", "loadtests", "models", "protos", "service")
TEXTS = {"", ".md", ".proto", ".py", ".sh", ".toml", ".tpl", ".txt", ".yaml", ".yml"}
PAGE = ROOT / "docs/how-to/cuda.md"
STATUS = re.compile(r"[Uu]nverified\s+(?:#\s+)?on\s+CUDA\s+\((\d{4}-\d\d-\d\d)\)")
SHARED_MEMORY = "CUDA's shared memory is refused, as tests check"
# Files that mention CUDA for another reason than that something runs on it.
OTHERS = {
    "docs/reference/clients.md": SHARED_MEMORY,
    "docs/reference/http.md": SHARED_MEMORY,
    "docs/reference/triton.md": SHARED_MEMORY,
    "docs/explanation/security.md": SHARED_MEMORY,
    "service/api/access.py": SHARED_MEMORY,
    "service/api/shared_memory.py": SHARED_MEMORY,
    "service/http/kserve/control.py": SHARED_MEMORY,
    "service/http/kserve/routes.py": SHARED_MEMORY,
    "loadtests/compare/environments.py": "GPUs are hidden from all engines that are compared",
}


def _mentioning() -> list[Path]:
    inner = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return sorted(
        path
        for path in (*ROOT.iterdir(), *inner)
        if path.is_file()
        and path.suffix in TEXTS
        and not path.name.startswith(".")
        and not path.stem.endswith(("_pb2", "_pb2_grpc"))
        and "cuda" in path.read_text(encoding="utf-8").lower()
    )


MENTIONING = _mentioning()


def test_the_page_has_a_date() -> None:
    assert len(set(STATUS.findall(PAGE.read_text(encoding="utf-8")))) == 1


@pytest.mark.parametrize("path", MENTIONING, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_that_mentions_cuda_says_what_was_verified_there(path: Path) -> None:
    """By the words and the date of the page, or by its name."""
    if str(path.relative_to(ROOT)) in OTHERS:
        return
    text = path.read_text(encoding="utf-8")
    dates = set(STATUS.findall(text))
    assert dates or "cuda.md" in text, "add 'docs/how-to/cuda.md says what was verified on CUDA.'"
    assert dates <= set(STATUS.findall(PAGE.read_text(encoding="utf-8")))


def test_exceptions_are_files_that_mention_cuda() -> None:
    assert OTHERS.keys() <= {str(path.relative_to(ROOT)) for path in MENTIONING}
