"""`compose.yaml`: it names commands and options that exist, pinned images, and no secret."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from turnledger.adapters.cli import turnledger

ROOT = Path(__file__).parents[2]
PROGRAMS = ("server", "worker")


@pytest.fixture(scope="module")
def compose() -> Any:
    """The file as it is read where no variable is set."""
    text = (ROOT / "compose.yaml").read_text()
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$"))


@pytest.mark.parametrize("service", PROGRAMS)
def test_commands_and_options_exist(compose: Any, service: str) -> None:
    """Each service's command line is one that the command takes."""
    program, name, *arguments = compose["services"][service]["command"]
    assert program == "turnledger"
    command = turnledger.commands[name]
    with click.Context(command) as context:
        command.parse_args(context, list(arguments))


def test_what_is_served_is_called_by_its_name(compose: Any) -> None:
    """Workers call the server by a name that it allows; an app is a file in the folder there."""
    serve, work = (compose["services"][name]["command"] for name in PROGRAMS)
    assert serve[serve.index("--allow-host") + 1] == "server"
    assert work[work.index("--url") + 1] == f"http://server:{serve[serve.index('--port') + 1]}"
    folder = compose["services"]["worker"]["volumes"][0].partition(":")[0]
    module = work[work.index("--app") + 1].partition(":")[0]
    assert (ROOT / folder / f"{module}.py").is_file()


def test_images_are_pinned(compose: Any) -> None:
    """To a whole version each; ours to the version of the project."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {name: service["image"] for name, service in compose["services"].items()}
    assert images["server"] == images["worker"] == f"turnledger:{version}"
    base = re.findall(r"^FROM (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for image in (images["postgres"], *base):
        assert re.fullmatch(r"\w+:\d+(\.\d+)+-[\w-]+", image)


def test_nothing_is_published_beyond_loopback(compose: Any) -> None:
    """Only the server's port, and that of loopback; the database is on a network of its own."""
    services = compose["services"]
    ports = {name: service.get("ports", []) for name, service in services.items()}
    assert ports == {"postgres": [], "server": ["127.0.0.1:8321:8321"], "worker": []}
    assert services["postgres"]["networks"] == ["database"]
    assert compose["networks"]["database"] == {"internal": True}
    assert "database" not in services["worker"]["networks"]


def test_secrets_are_files(compose: Any) -> None:
    """Each that a service reads is one that it was given; none is in the file or in the image."""
    for service in compose["services"].values():
        read = set(re.findall(r"/run/secrets/(\w+)", str(service)))
        assert read == set(service.get("secrets", []))
        assert read <= set(compose["secrets"])
        plain = [n for n in service.get("environment", {}) if re.search("PASSWORD$|TOKEN|KEY", n)]
        assert plain == []
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in kept
    assert "!secrets" not in kept
    assert "secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_health_is_asked_where_the_server_answers(compose: Any) -> None:
    """The readiness path of the API, on the port that is served; others wait for it."""
    services = compose["services"]
    assert "http://127.0.0.1:8321/readyz" in services["server"]["healthcheck"]["test"][-1]
    assert services["server"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["worker"]["depends_on"] == {"server": {"condition": "service_healthy"}}
    assert services["postgres"]["healthcheck"]["test"][1] == "pg_isready"
