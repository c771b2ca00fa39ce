"""`docker-compose.yml`: the schema, what is promised of every container, and what must fit."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from export.settings import ExportSettings
from service.app import EXIT_LIMIT_S, MIN_CLOSE_S
from service.settings import Settings
from tests.deploy.dockerfile import ROOT, Dockerfile

PATH = ROOT / "docker-compose.yml"
OWN_MODELS = ROOT / "docker-compose.own-models.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(PATH.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONCE = {"models", "models-cuda", "loadtest"}  # they end by themselves
each_service = pytest.mark.parametrize("name", SERVICES)


def check(path: Path) -> "subprocess.CompletedProcess[str]":
    command = Path(sys.executable).with_name("check-jsonschema")
    flags = ("--builtin-schema", "vendor.compose-spec")
    return subprocess.run(  # noqa: S603
        [command, *flags, path], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("path", [PATH, OWN_MODELS], ids=lambda path: path.name)
def test_it_is_what_the_compose_specification_says(path: Path) -> None:
    done = check(path)
    assert done.returncode == 0, done.stdout


def test_a_typing_mistake_would_be_found(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(PATH.read_text().replace("depends_on:", "depend_on:", 1))
    assert check(wrong).returncode == 1


@each_service
def test_every_container_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"][0].startswith("/tmp:")
    assert not {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc"} & set(service)


@each_service
def test_memory_is_limited(name: str) -> None:
    number, unit = re.fullmatch(r"(\d+)([mg])", SERVICES[name]["mem_limit"]).groups()  # type: ignore[union-attr]
    assert 256 <= int(number) * {"m": 1, "g": 1024}[unit] <= 8192


def test_the_server_has_the_memory_that_its_defaults_may_take() -> None:
    """The caches of one generative model, requests in flight, and a gigabyte of weights."""
    defaults = Settings()
    limit = int(SERVICES["server"]["mem_limit"].removesuffix("g")) * 2**30
    caches = defaults.kv_cache_bytes + defaults.prefix_cache_bytes
    assert caches + defaults.max_bytes_in_flight + 2**30 <= limit


def test_traces_of_every_request_go_to_a_collector_that_shows_them() -> None:
    environment, collector = SERVICES["server"]["environment"], SERVICES["jaeger"]
    assert environment["ATTENDANT_OTLP_ENDPOINT"] == "http://jaeger:4317"
    assert environment["ATTENDANT_TRACE_SAMPLE_RATIO"] == "1"
    assert collector["environment"]["JAEGER_LISTEN_HOST"] == "0.0.0.0", "4317 is for the server"  # noqa: S104
    assert collector["ports"] == ["127.0.0.1:16686:16686"]
    assert any("max_traces" in word for word in collector["command"]), "its memory is bounded"


def test_who_has_models_builds_no_image_that_trains() -> None:
    """In a profile that is not asked for; the server does without it, and keeps all else."""
    own = yaml.safe_load(OWN_MODELS.read_text())["services"]
    assert own["models"] == own["models-cuda"] == {"profiles": ["train"]}
    assert own["server-cuda"] == own["server"]
    assert SERVICES["server"]["depends_on"]["models"]["required"] is False
    assert own["server"].keys() == {"volumes"}
    (mount,) = own["server"]["volumes"]
    assert mount["target"] == SERVICES["server"]["volumes"][0].split(":")[1]
    assert mount["read_only"] is True
    assert mount["bind"] == {"create_host_path": False}


@each_service
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


@each_service
def test_every_container_that_stays_is_restarted_and_has_a_health_check(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    assert ("healthcheck" in service) == (name not in ONCE)
    if name not in ONCE:
        assert service["healthcheck"]["test"][0] == "CMD", "no shell"


@each_service
def test_images_are_built_of_a_stage_that_exists_or_have_an_exact_version(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        assert service["build"]["context"] == "."
        stages = Dockerfile(ROOT / service["build"]["dockerfile"]).stages
        assert service["build"]["target"] in stages
    else:
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert re.fullmatch(r"\d+:\d+", service["user"]), "by number, not root's"


@each_service
def test_what_is_mounted_exists(name: str) -> None:
    """Volumes are declared, files are in the repository and read-only."""
    for mount in SERVICES[name].get("volumes", []):
        source, _, mode = mount.split(":") if mount.count(":") == 2 else (*mount.split(":"), "rw")
        if source.startswith("./"):
            assert (ROOT / source).exists(), source
            assert mode == "ro"
        else:
            assert source in COMPOSE["volumes"]


def test_the_server_has_time_to_drain() -> None:
    service = SERVICES["server"]
    environment, defaults = service["environment"], Settings()
    drain_s = float(environment["ATTENDANT_DRAIN_TIMEOUT_S"])
    delay_s = float(environment.get("ATTENDANT_DRAIN_DELAY_S", defaults.drain_delay_s))
    grace_s = float(service["stop_grace_period"].removesuffix("s"))
    assert delay_s + drain_s + MIN_CLOSE_S + EXIT_LIMIT_S < grace_s
    assert service["stop_signal"] == "SIGTERM"


def test_the_server_starts_when_its_models_are_built_and_may_not_change_them() -> None:
    server, models = SERVICES["server"], SERVICES["models"]
    needs = {"condition": "service_completed_successfully", "required": False}
    assert server["depends_on"] == {"models": needs}
    assert server["volumes"] == ["models:/models:ro"]
    assert "models:/models" in models["volumes"]
    file = Dockerfile(ROOT / "deploy/docker/Dockerfile")
    assert file.stages["train"].command("ENTRYPOINT")[-1] == "REPOSITORY=/models"
    assert file.whole("server").environment["ATTENDANT_MODEL_REPOSITORY"] == "/models"


def test_the_server_with_a_gpu_is_the_same_but_for_image_models_and_device() -> None:
    """And it is reached under the other's name, which Prometheus and load tests know."""
    cpu, cuda = SERVICES["server"], dict(SERVICES["server-cuda"])
    assert cuda.pop("profiles") == ["gpu"], "not started unasked"
    (device,) = cuda.pop("deploy")["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert cuda.pop("networks") == {"default": {"aliases": ["server"]}}
    assert cuda["build"] == cpu["build"] | {"target": "cuda"}
    assert cuda["environment"] == cpu["environment"] | {"ATTENDANT_DEVICE": "cuda"}
    assert cuda["healthcheck"] == cpu["healthcheck"] | {"start_period": "300s"}
    same = cpu.keys() - {
        "image",
        "build",
        "depends_on",
        "mem_limit",
        "environment",
        "healthcheck",
        "volumes",
    }
    assert {name: cpu[name] for name in same} == {name: cuda[name] for name in same}
    assert cuda.keys() == cpu.keys()
    assert cuda["volumes"] == ["models-cuda:/models:ro"]
    assert list(cuda["depends_on"]) == ["models-cuda"]


def test_models_for_gpus_are_exported_by_the_same_image_from_the_same_checkpoints() -> None:
    cpu, cuda = SERVICES["models"], SERVICES["models-cuda"]
    assert cuda["volumes"] == ["models-cuda:/models", "build:/src/build"]
    assert cuda["build"] == cpu["build"]
    (flags,) = cuda["command"]
    done = subprocess.run(  # noqa: S603
        ["/usr/bin/make", "--dry-run", "--always-make", "models", flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (target,) = (each for each in fields(ExportSettings) if each.name == "target")
    assert "cuda" in get_args(target.type)
    exports = re.findall(r"attendant export (?:.|\\\n)+", done.stdout)
    assert len(exports) == 3
    assert all(" --target cuda " in one for one in exports)


def test_the_health_check_is_the_images() -> None:
    file = Dockerfile(ROOT / "deploy/docker/Dockerfile")
    own = SERVICES["server"]["healthcheck"]["test"]
    assert own == ["CMD", *file.stages["server"].command("HEALTHCHECK")]


def test_prometheus_scrapes_the_server_and_grafana_asks_prometheus() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": [f"server:{Settings().metrics_port}"]}]
    folder = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((folder / "dashboards/attendant.yml").read_text())["providers"]
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["grafana"]["volumes"])
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]


def test_the_load_test_names_a_scenario_and_asks_the_server() -> None:
    service = SERVICES["loadtest"]
    scenario, *flags = service["command"]
    assert (ROOT / f"loadtests/scenarios/{scenario}.toml").exists()
    assert flags == ["--address", f"server:{Settings().grpc_port}"]
    assert service["profiles"] == ["loadtest"], "not started unasked"
    entry = Dockerfile(ROOT / "deploy/docker/Dockerfile").stages["loadtest"].command("ENTRYPOINT")
    assert (ROOT / entry[-1].replace(".", "/") / "__main__.py").exists()
