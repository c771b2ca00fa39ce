"""Dashboards: that they are fresh, whole, and ask for what exists."""

import re

import pytest

from deploy.generate import dashboards, queries
from deploy.generate.grafana import WIDTH
from tests.deploy import promql
from tests.deploy.dockerfile import ROOT

PAGES = {page["uid"]: page for page in queries.pages()}
each_page = pytest.mark.parametrize("uid", PAGES)


def test_dashboards_are_fresh() -> None:
    made = dashboards.made_files()
    found = {path: path.read_text(encoding="utf-8") for path in dashboards.FOLDER.glob("*.json")}
    assert found == made, "run `make dashboards`"


@pytest.mark.parametrize(
    "query", queries.dashboard_queries() + queries.rule_queries(), ids=lambda query: query.where
)
def test_a_query_asks_for_metrics_that_exist(query: queries.Query) -> None:
    assert query.names
    assert query.names <= promql.exposed() | queries.recorded() | promql.ADDED_BY_PROMETHEUS


@each_page
def test_panels_do_not_overlap(uid: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PAGES[uid]["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@each_page
def test_every_panel_says_what_it_shows(uid: str) -> None:
    panels = [panel for panel in PAGES[uid]["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in panels if len(panel.get("description", "")) < 15] == []


@each_page
def test_releases_are_chosen_and_told_apart(uid: str) -> None:
    """By namespace and job: queries choose by both, sums keep them apart, and legends name them."""
    assert {"namespace", "job", "instance"} <= {
        variable["name"] for variable in PAGES[uid]["templating"]["list"]
    }
    for panel in PAGES[uid]["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            selectors = re.findall(r"\{([^}]*)\}", query)
            assert all('namespace=~"$namespace",job=~"$job"' in one for one in selectors), query
            if panel["type"] == "timeseries":
                assert "{{namespace}} {{job}}" in target["legendFormat"]
                groups = re.findall(r"\bby \(([^)]*)\)", query)
                assert all(one.startswith("namespace, job") for one in groups), query


@each_page
def test_ids_are_unique_and_queries_have_a_source_to_choose(uid: str) -> None:
    page = PAGES[uid]
    numbers = [panel["id"] for panel in page["panels"]]
    assert len(numbers) == len(set(numbers))
    variables = {variable["name"] for variable in page["templating"]["list"]}
    for panel in page["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables


def test_every_metric_of_ours_is_on_a_dashboard_or_in_a_rule() -> None:
    """A metric without a reader need not be collected."""
    asked = queries.dashboard_queries() + queries.rule_queries()
    read = {re.sub("_(bucket|sum|count|total)$", "", name) for each in asked for name in each.names}
    ours = {re.sub("_(bucket|sum|count|total)$", "", name) for name in promql.exposed()}
    assert {name for name in ours if name.startswith("attendant_")} <= read


def test_the_home_page_is_one_of_them() -> None:
    assert "/etc/dashboards/attendant.json" in (ROOT / "docker-compose.yml").read_text()
    assert "attendant" in PAGES
