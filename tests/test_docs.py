"""What is documented is what exists: settings, metrics, paths, rooms; README is short and right."""

import re
from collections import defaultdict
from dataclasses import Field, fields
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles

import pytest

from deploy.generate import queries
from loadtests.compare import charts
from loadtests.measure.results import read_all
from service.api.access import PROTOCOLS
from service.observe.metrics import Metrics
from service.settings import Settings
from tests.test_imports import ROOMS

ROOT = Path(__file__).parents[1]
LOOSE = {
    "__main__",
    "flags",
    "help",
    "pictures",
}  # modules that a map of rooms may leave out
PATH = r"`((?:service|models|export|commands|demos|loadtests|tests)/[\w/]+\.py)`"


def _rows(document: str) -> dict[str, list[str]]:
    """Cells of a document's table rows by the first, without their backticks."""
    rows = {}
    for line in (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first, *cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            rows[first] = cells
    return rows


def _tables(document: str) -> dict[str, dict[str, str]]:
    """The same, with each cell by the name of its column."""
    rows, columns = {}, [""]
    for line in (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("| name |"):
            columns = cells
        elif line.startswith("| `"):
            rows[cells[0]] = dict(zip(columns, cells, strict=True))
    return rows


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_every_setting_is_documented_with_its_default(setting: Field[object]) -> None:
    flag = "--" + setting.name.replace("_", "-")
    assert _rows("reference/settings.md")[flag][0] == str(setting.default)


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    metrics = Metrics()
    metrics.for_model("m", 1)
    endings = {"counter": "_total", "info": "_info"}
    exposed = {metric.name + endings.get(metric.type, "") for metric in metrics.registry.collect()}
    assert set(_tables("reference/metrics.md")) == exposed


def test_every_metric_has_a_unit_and_histograms_their_buckets() -> None:
    metrics = Metrics()
    metrics.for_generation("m", 1)
    bounds: dict[str, list[float]] = defaultdict(list)
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket") and sample.labels["le"] != "+Inf":
                bounds[family.name].append(float(sample.labels["le"]))
    expected = {
        name: f"{len(les)}, {les[0]:.10g} to {les[-1]:.10g}" for name, les in bounds.items()
    }
    rows = _tables("reference/metrics.md")
    assert all(row["unit"] for row in rows.values())
    assert {name: row["buckets"] for name, row in rows.items() if row.get("buckets")} == expected


def test_every_metric_says_who_reads_it() -> None:
    pages = {"attendant": "dashboard", "attendant-generation": "generation"}
    readers: dict[str, set[str]] = defaultdict(set)
    for reader, names in queries.read_names():
        for name in names:
            readers[name].add(pages.get(reader, reader.removeprefix("Attendant")))
    known = set().union(*readers.values())
    for name, row in _tables("reference/metrics.md").items():
        words = set(row["read by"].split(", "))
        assert words & known == readers[name], name
        assert words - known <= {"autoscaler", "people", "Triton's dashboards"}, name


def test_every_call_is_in_the_table_of_restricted_groups() -> None:
    text = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `inference` \| (.*) \|$", text, re.MULTILINE)
    named = set(re.findall(r"\w+", row))
    assert {method.rpartition("/")[2] for method in PROTOCOLS["inference"]} <= named


def test_the_map_names_every_room() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w]+", text))
    assert {part for room in ROOMS for part in room.split("/")} - LOOSE <= named


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_every_module_that_a_page_runs_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"python -m ((?:loadtests|models|deploy|tests)[\w.]*\w)", text))
    assert {name for name in names if find_spec(name) is None} == set()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not heading or heading in _headings(file), target


def _headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_path_that_a_page_names_exists() -> None:
    missing = {
        (page.name, path)
        for page in PAGES
        for path in re.findall(PATH, page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists() and not (ROOT / "service" / path).exists()
    }
    assert not missing


README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_WORDS, MOST_WORDS_OF_A_SENTENCE = 700, 25
FIRST_COMMAND_LINE, FIRST_ANSWER_LINE = 12, 14  # at the latest


def _sentences(text: str) -> list[str]:
    """Sentences of a page's paragraphs and items, without code, tables, pictures and addresses."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(?:    |\||#|!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = re.split(r"\n\s*\n|^- |^\d+\. ", text, flags=re.MULTILINE)
    return [one for block in blocks for one in re.split(r"(?<=[.!?])\s+", block.strip()) if one]


def test_readme_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_nine_of_ten_sentences_of_readme_have_at_most_25_words() -> None:
    lengths = [len(sentence.split()) for sentence in _sentences(README)]
    assert quantiles(lengths, n=10)[-1] <= MOST_WORDS_OF_A_SENTENCE


BY_HAND = [page for page in PAGES if "benchmarks" not in page.parts and page.name != "cuda.md"]
MOST_WORDS_OF_A_PAGE_S_SENTENCE, FEW_SENTENCES = 33, 10


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: page.name)
def test_nine_of_ten_sentences_of_a_page_have_at_most_33_words(page: Path) -> None:
    """Pages of a few sentences are left out, where one of them is a tenth."""
    lengths = [len(each.split()) for each in _sentences(page.read_text(encoding="utf-8"))]
    if len(lengths) >= FEW_SENTENCES:
        assert quantiles(lengths, n=10)[-1] <= MOST_WORDS_OF_A_PAGE_S_SENTENCE


def test_readme_begins_with_what_it_is_and_how_it_answers() -> None:
    lines = README.splitlines()
    first_command = next(n for n, line in enumerate(lines, 1) if line.startswith("git clone "))
    first_answer = next(n for n, line in enumerate(lines, 1) if line.startswith("curl "))
    assert first_command <= FIRST_COMMAND_LINE
    assert first_answer <= FIRST_ANSWER_LINE
    assert _sentences(README)[0].startswith("Attendant serves ")


def test_the_first_sentence_has_the_ratios_of_the_picture() -> None:
    """The least and the most of the servers, and of the engines, in one decimal."""
    ratios = charts.times_as_fast(read_all())
    for result, peers in ((charts.SERVERS, "servers"), (charts.ENGINES, "engines")):
        known = [ratios[peer] for peer, (kept, _) in charts.PEERS.items() if kept == result]
        words = rf"{min(known):.1f} to {max(known):.1f} times as fast as other {peers}"
        assert words in " ".join(_sentences(README)[0].split()), words
