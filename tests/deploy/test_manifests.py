"""What is made from other files is as it would be made now, and whole."""

from pathlib import Path

import pytest
import yaml

from deploy.generate.chart import CHART, ROOT, Object
from deploy.generate.manifests import DECIDED, KSERVE_CUDA, KSERVE_HTTP, PLAIN, made_files
from tests.deploy import objects, rules
from tests.deploy.test_chart import validate

MADE = made_files()
FOLDERS = [ROOT / "deploy" / folder for folder in PLAIN]
in_every_folder = pytest.mark.parametrize("folder", FOLDERS, ids=list(PLAIN))


def _objects(folder: Path) -> list[Object]:
    """Those that `kubectl apply -k` would apply."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    return [
        yaml.safe_load((folder / name).read_text(encoding="utf-8"))
        for name in kustomization["resources"]
    ]


@pytest.mark.parametrize("path", MADE, ids=lambda path: str(path.relative_to(ROOT)))
def test_made_files_are_fresh(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path], "stale: make manifests"


def test_nothing_made_is_left_over() -> None:
    folders = *FOLDERS, CHART / "files"
    found = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert found == MADE.keys() - {CHART / "values.schema.json", KSERVE_CUDA, KSERVE_HTTP}


@in_every_folder
def test_kustomization_names_every_file(folder: Path) -> None:
    named = {f"{one['kind'].lower()}.yaml" for one in _objects(folder)}
    assert named | {"kustomization.yaml"} == {path.name for path in folder.glob("*.yaml")}


@in_every_folder
def test_plain_manifests_are_valid_and_keep_the_rules(folder: Path) -> None:
    made = _objects(folder)
    for one in made:
        validate(one, "1.36")
        assert "Helm" not in one["metadata"].get("labels", {}).values()
    assert {name: rule(made) for name, rule in rules.RULES.items()} == {
        name: [] for name in rules.RULES
    }


@in_every_folder
def test_they_name_what_they_need_and_do_not_make(folder: Path) -> None:
    """Every claim and image; a namespace of their own they do make."""
    made = _objects(folder)
    head = (folder / "kustomization.yaml").read_text(encoding="utf-8").split("apiVersion")[0]
    namespace = objects.of_kind(made, "Namespace")[0]["metadata"]["name"]
    claims = [
        one["persistentVolumeClaim"]["claimName"]
        for one in objects.pod_of(made)["volumes"]
        if "persistentVolumeClaim" in one
    ]
    for name in (objects.server_of(made)["image"], namespace, *claims):
        assert f" {name}" in head
    assert claims
    assert not objects.of_kind(made, "PersistentVolumeClaim")


@in_every_folder
def test_their_namespace_enforces_pod_security_restricted(folder: Path) -> None:
    namespace = _objects(folder)[0]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_settings_that_the_chart_decides_exist() -> None:
    from dataclasses import fields

    from service.settings import Settings

    assert {setting.name for setting in fields(Settings)} >= DECIDED
