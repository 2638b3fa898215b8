"""Packaging: wheel, sdist and editable install hold one package, whose folders are links here."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.e2e.test_wheel import installed, python_with_pytest, run
from tests.projects import RUN, Project, agent_text, recorded_history

__all__ = ["installed", "python_with_pytest"]
ROOT = Path(__file__).parents[2]
FOLDERS = ("adapters", "ledger", "projections", "runtime")


def built(source: Path, target: Path, kind: str) -> Path:
    """The one file that hatchling builds from a source tree."""
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, cwd=source)
    (found,) = target.iterdir()
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git tracks or would track, without environments and caches."""
    folder = tmp_path_factory.mktemp("checkout")
    files = run("git", "ls-files", "-co", "--exclude-standard", "-z", cwd=ROOT).split("\0")
    present = [name for name in files if name and (ROOT / name).exists()]
    packed = subprocess.run(
        ["tar", "-c", "--null", "-T", "-"],
        cwd=ROOT,
        input="\0".join(present).encode(),
        capture_output=True,
        check=True,
    )
    subprocess.run(["tar", "-x"], cwd=folder, input=packed.stdout, check=True)
    return folder


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_links_of_this_checkout_are_links() -> None:
    """A checkout that has them as text files can't be imported, and `make` says why."""
    for name in FOLDERS:
        assert (ROOT / "src/turnledger" / name / "__init__.py").is_file(), (
            f"src/turnledger/{name} is not a link to ../../{name}: set git's core.symlinks to true "
            "and check src out again."
        )


def test_make_refuses_links_that_are_text(checkout: Path, tmp_path: Path) -> None:
    """With the reason and what to do, before anything is installed."""
    (tmp_path / "src/turnledger").mkdir(parents=True)
    (tmp_path / "Makefile").write_bytes((checkout / "Makefile").read_bytes())
    (tmp_path / "pyproject.toml").write_bytes((checkout / "pyproject.toml").read_bytes())
    for name in FOLDERS:
        (tmp_path / "src/turnledger" / name).write_text(f"../../{name}")
    done = subprocess.run(["make", "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "this checkout has links as text files" in done.stderr
    assert "core.symlinks" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_wheel_and_sdist_hold_the_same_package(checkout: Path, tmp_path: Path) -> None:
    """A wheel from the sdist is the wheel from the checkout; nothing stands in either twice."""
    sdist = built(checkout, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        assert not [one.name for one in archive if one.issym()]
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    tops = {name.split("/")[1] for name in names if "/" in name}
    assert tops >= {"src", "tests", "docs", "examples", "benchmarks", "Makefile"}
    assert not tops & set(FOLDERS)
    first = contents(built(checkout, tmp_path / "one", "wheel"))
    second = contents(built(unpacked, tmp_path / "two", "wheel"))
    assert first == second
    modules = {name for name in first if ".dist-info" not in name}
    package = checkout / "src/turnledger"
    found = {path for name in FOLDERS for path in (package / name).resolve().rglob("*")}
    # The sources of the page: what is built from them is in the wheel.
    found -= set((checkout / "adapters/web/ui").rglob("*"))
    tracked = {f"turnledger/{path.relative_to(checkout)}" for path in found if path.is_file()}
    tracked |= {f"turnledger/{path.name}" for path in package.iterdir() if path.is_file()}
    assert modules == tracked


def test_an_editable_install_is_one_path(checkout: Path, tmp_path: Path) -> None:
    """A change in a folder is seen at once: no module is copied."""
    wheel = built(checkout, tmp_path / "made", "wheel:editable")
    files = {name: data for name, data in contents(wheel).items() if ".dist-info" not in name}
    ((name, text),) = files.items()
    assert name.endswith(".pth")
    assert text.decode().strip() == str(checkout / "src")


def test_a_project_may_have_packages_of_the_same_names(
    python_with_pytest: Path, tmp_path: Path
) -> None:
    """Both sides import right, the plugin loads and its fixture works, by either command."""
    project = Project(tmp_path, python_with_pytest)
    project.write("shop.py", agent_text())
    project.write("tests/histories/bug.jsonl", recorded_history())
    for name in FOLDERS:
        project.write(f"{name}/__init__.py", f'OWN = "{name} of this project"\n')
    project.write(
        "tests/test_both.py",
        "import adapters, ledger, projections, runtime\n"
        "import shop\n"
        "import turnledger.adapters, turnledger.ledger\n"
        "import turnledger.projections, turnledger.runtime\n\n\n"
        "def test_both(turnledger_replay):\n"
        "    for package in (adapters, ledger, projections, runtime):\n"
        "        theirs = getattr(turnledger, package.__name__)\n"
        '        assert package.OWN == f"{package.__name__} of this project"\n'
        '        assert theirs.__name__ == f"turnledger.{package.__name__}"\n'
        '        assert not hasattr(theirs, "OWN")\n'
        '    (replayed,) = turnledger_replay("histories/bug.jsonl", shop.loop)\n'
        f'    assert str(replayed.run_id) == "{RUN}"\n',
    )
    assert "1 passed" in (done := project.pytest("-q")).out, done.out
    program = python_with_pytest.with_name("pytest")
    assert "1 passed" in run(program, "-q", cwd=tmp_path)
