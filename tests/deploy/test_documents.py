"""What documents tell an operator to apply and to type: valid, allowed, and of one piece."""

import re

import pytest
import yaml

from deploy.generate.chart import CHART, ROOT, Object, render
from tests.deploy import objects, pod_rules
from tests.deploy.test_chart import KUBERNETES, validate
from tests.deploy.test_values import DEFAULTS, merged, parse

DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
KUBERNETES_MD = (ROOT / "docs/how-to/kubernetes.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Blocks that are neither an object nor values, by their first name.
OTHERS = {"rules": "of prometheus-adapter", "services": "an override of compose"}


def _blocks(text: str) -> list[Object]:
    blocks = (block for language, block in FENCED.findall(text) if language == "yaml")
    return [one for block in blocks for one in yaml.safe_load_all(block)]


EVERYWHERE = [
    pytest.param(one, id=f"{path.name}-{number}-{one.get('kind', next(iter(one)))}")
    for path in DOCUMENTS
    for number, one in enumerate(_blocks(path.read_text(encoding="utf-8")))
]
OBJECTS = [
    one for one in _blocks(KUBERNETES_MD) if "kind" in one and one["kind"] != "Kustomization"
]
VALUES: Object = next(one for one in _blocks(KUBERNETES_MD) if "modelRepository" in one)
TYPED = "\n".join(block for language, block in FENCED.findall(KUBERNETES_MD) if not language)
HELM = re.findall(r"^helm (install|upgrade) (\S+) (\S+)(.*(?:\\\n.*)*)$", TYPED, re.MULTILINE)


@pytest.mark.parametrize("one", EVERYWHERE)
def test_every_block_is_something_that_its_reader_can_apply(one: Object) -> None:
    """An object of Kubernetes, values of the chart, or one of the few named above."""
    first = next(iter(one))
    if one.get("kind") == "Kustomization":
        assert one.keys() == {"apiVersion", "kind", "resources", "images"}
    elif "kind" in one:
        for version in KUBERNETES:
            validate(one, version)
    elif first not in OTHERS or first in DEFAULTS:
        assert render(merged(VALUES, one))


def test_their_pods_are_let_in_by_pod_security_restricted() -> None:
    assert {one["kind"] for one in OBJECTS} == {"PersistentVolumeClaim", "Pod", "Job"}
    assert pod_rules.pod_security(OBJECTS) == []
    assert pod_rules.bounded(OBJECTS) == []


def test_what_fills_the_claim_and_what_serves_from_it_agree() -> None:
    """One claim, one owner of its files, one path."""
    (claim,) = objects.of_kind(OBJECTS, "PersistentVolumeClaim")
    made = render(VALUES, "search")
    server = objects.pod_of(made)
    for name, pod in [*objects.pods(OBJECTS), ("server", server)]:
        (volume,) = (one for one in pod["volumes"] if "persistentVolumeClaim" in one)
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"], name
        mounts = {
            m["mountPath"]
            for c in pod["containers"]
            for m in c["volumeMounts"]
            if m["name"] == volume["name"]
        }
        assert mounts == {objects.variables(objects.server_of(made))["ATTENDANT_MODEL_REPOSITORY"]}
        for field in ("runAsUser", "fsGroup"):
            assert pod["securityContext"][field] == server["securityContext"][field], name


def test_the_image_is_built_and_pushed_under_the_name_that_is_pulled() -> None:
    image = objects.server_of(render(VALUES, "search"))["image"]
    assert f"docker build -f deploy/docker/Dockerfile -t {image} ." in TYPED
    assert f"docker push {image}" in TYPED
    (pod,) = objects.of_kind(OBJECTS, "Pod")
    assert pod["spec"]["containers"][0]["image"] == image
    (job,) = objects.of_kind(OBJECTS, "Job")
    train = job["spec"]["template"]["spec"]["containers"][0]["image"]
    assert f"--target train -t {train} ." in TYPED
    assert f"docker push {train}" in TYPED
    (kustomization,) = (one for one in _blocks(KUBERNETES_MD) if one.get("kind") == "Kustomization")
    (override,) = kustomization["images"]
    assert f"{override['newName']}:{override['newTag']}" == image
    plain = yaml.safe_load((ROOT / "deploy/kubernetes/deployment.yaml").read_text())
    assert objects.server_of([plain])["image"].split(":")[0] == override["name"]


@pytest.mark.parametrize("command", HELM, ids=lambda one: one[0])
def test_every_helm_command_renders_with_the_values_of_the_document(
    command: tuple[str, str, str, str],
) -> None:
    _, release, chart, rest = command
    assert ROOT / chart == CHART
    assert "--namespace serving" in rest
    assert "--values values.yaml" in rest
    settings = ",".join(re.findall(r"--set (\S+)", rest))
    assert render(merged(VALUES, parse(settings) if settings else {}), release)


def test_helm_installs_upgrades_and_goes_back() -> None:
    assert [one[0] for one in HELM] == ["install", "upgrade"]
    for words in ("helm test search", "helm history search", "helm rollback search"):
        assert words in TYPED


def test_commands_name_objects_that_exist_in_the_namespace_that_was_made() -> None:
    made = render(VALUES, "search")
    known = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in [*OBJECTS, *made]}
    named = set(re.findall(r"\b((?:deployment|pod|job)/[a-z][\w-]+)", KUBERNETES_MD))
    assert {"deployment/search-attendant", "pod/attendant-models"} <= named <= known
    copied = set(re.findall(r" ([\w-]+):/models", TYPED))
    assert copied == {one["metadata"]["name"] for one in objects.of_kind(OBJECTS, "Pod")}
    assert "kubectl create namespace serving" in TYPED
    for line in TYPED.replace("\\\n", " ").splitlines():
        if line.strip().startswith(("kubectl", "helm")) and "namespace serving" not in line:
            assert re.match(r"kubectl (label|apply -[kf] )", line.strip()), line


def test_files_of_the_repository_that_are_named_exist() -> None:
    for path in re.findall(r"(?<![\w/])(deploy/[\w./-]+\w)", KUBERNETES_MD):
        assert (ROOT / path).exists(), path
