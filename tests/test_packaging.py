"""The source distribution, the wheel that is built from it, and what works once that is installed."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "from setuptools import build_meta; print(build_meta.build_{kind}({folder!r}))"


def build(kind: str, tree: Path, folder: Path) -> Path:
    """As pip does, but with the setuptools that is installed: no network."""
    command = [sys.executable, "-c", BUILD.format(kind=kind, folder=str(folder))]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def sdist(tracked, tmp_path_factory) -> Path:
    """From a copy of what is tracked: nothing that lies about gets in, and nothing is left in the tree."""
    tree = tmp_path_factory.mktemp("tree")
    for name in tracked:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    return build("sdist", tree, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    tree = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(tree, filter="data")
    return build("wheel", tree / sdist.name.removesuffix(".tar.gz"), tmp_path_factory.mktemp("wheel"))


def test_a_wheel_from_the_source_distribution_has_every_file_of_the_package(wheel, tracked):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name.relative_to("src").as_posix() for name in tracked if name.parts[0] == "src"}
    package = {name for name in package if not (ROOT / "src" / name).is_dir()}  # a link to a folder
    assert package <= names
    for needed in (
        "results/table1/table.json",
        "pretrained/omniglot-5.safetensors",
        "web/static/index.html",
        "native/kernel.cpp",
        "native/leastsquares.cpp",
        "py.typed",
    ):
        assert f"mann/{needed}" in names
    strangers = {name.split("/")[0] for name in names} - {"mann"}
    assert all(name.endswith(".dist-info") for name in strangers), strangers
    assert wheel.stat().st_size < 25_000_000


def test_the_source_distribution_says_what_it_is(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = {
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "CHANGELOG.md",
        "Makefile",
        "docs/choices.md",
        "results/table1/table.json",
    }
    assert files <= names
    assert sdist.name.startswith("mann_oneshot-")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A fresh environment with the wheel alone; what it depends on is borrowed from ours."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--disable-pip-version-check"]
    clean = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }  # pip looks there, too
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], env=clean, check=True)
    return folder


def run(installed: Path, tmp_path: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": str(installed / "bin"),
        "PYTHONPATH": sysconfig.get_path("purelib"),  # no .pth is read there: our own mann stays out of it
        "MANN_CACHE": str(tmp_path),
        "HOME": str(tmp_path),
        "COLUMNS": "80",
        "JAX_PLATFORMS": "cpu",
    }
    environment |= more
    program, *arguments = command
    done = subprocess.run(
        [str(installed / "bin" / program), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_command_is_installed_and_answers(installed, tmp_path):
    assert "mann quickstart" in run(installed, tmp_path, "mann", "--help").stdout
    assert run(installed, tmp_path, "mann", "--version").stdout[0].isdigit()
    assert "--episodes" in run(installed, tmp_path, "mann", "eval", "omniglot-5", "--help").stdout


UNROLL = """
import jax, jax.numpy as jnp, mann
model = mann.load_trained("gp-1d").model
outputs = model.unroll_batch(jnp.zeros((2, 3, 1)), jnp.zeros((2, 3, 1))).outputs
print(mann.__file__, mann.kernel.load(), bool(jnp.all(jnp.isfinite(outputs))))
"""


def test_without_a_compiler_it_works_and_says_what_is_missing(installed, tmp_path):
    done = run(installed, tmp_path, "python", "-c", UNROLL)
    file, kernel, finite = done.stdout.split()
    assert Path(file).is_relative_to(installed)
    assert (kernel, finite) == ("False", "True")
    assert "about twice as slow" in done.stderr
    assert (
        done.stderr.count("C++ compiler") == 2
    )  # that there is none, and that one should be installed: once


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler")
def test_with_a_compiler_the_shipped_sources_are_compiled(installed, tmp_path):
    compiler = tmp_path / "quick-c++"  # the last -O counts: to optimise takes most of the time
    path, real = map(shlex.quote, (os.environ["PATH"], shutil.which("c++")))
    compiler.write_text(f'#!/bin/sh\nexport PATH={path}\nexec {real} "$@" -O0\n')
    compiler.chmod(0o755)
    done = run(installed, tmp_path, "python", "-c", UNROLL, CXX=str(compiler))
    assert done.stdout.split()[1:] == ["True", "True"]
    assert "slow" not in done.stderr


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[-\w.]+", name)[0]).lower()


def test_constraints_are_exact_versions_of_all_that_we_depend_on_and_nothing_else():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)
    pinned = {line.partition("==")[0] for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {canonical(name) for name in project["dependencies"] + extras["dev"]}
    assert wanted <= pinned, f"run `make constraints`: {wanted - pinned}"
    assert {canonical(name) for extra in set(extras) - {"bench"} for name in extras[extra]} <= pinned


def test_constraints_are_made_from_what_pip_would_install():
    report = {
        "install": [
            {
                "metadata": {"name": "Typing_Extensions", "version": "4.1"},
                "download_info": {"url": "https://x"},
            },
            {"metadata": {"name": "mann-oneshot", "version": "0.1.0"}},
            {"metadata": {"name": "torch", "version": "2.13.0+cpu"}},
        ]
    }
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools/constraints.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = tool.constraints(report)
    assert text.splitlines()[-2:] == ["torch==2.13.0", "typing-extensions==4.1"]
    assert "https" not in text
    assert "mann-oneshot" not in text


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    tested = {line.rpartition(":: ")[2] for line in project["classifiers"] if ":: 3." in line}
    assert set(re.findall(r'"(3\.\d+)"', workflow)) == tested
    assert project["requires-python"] == f">={min(tested, key=lambda name: int(name[2:]))}"
