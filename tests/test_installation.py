"""What people are told to install, and what they get when they do."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mann.cli import main
from mann.errors import MannError
from mann.installation import DISTRIBUTION, install_command, version
from mann.training.loop import train
from tests.training.tiny import TINY

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_distribution_has_the_name_that_messages_give():
    assert PROJECT["name"] == DISTRIBUTION
    assert list(PROJECT["scripts"]) == ["mann"]


def test_nobody_is_sent_to_the_package_that_is_called_mann_elsewhere():
    """The package of that name on the index, with or without extras, is a stranger's."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = [
        name for name in listed.stdout.split("\0") if Path(name).suffix in {".md", ".py", ".toml", ".yml"}
    ]
    assert "README.md" in texts
    wrong = re.compile(r"pip install (?:[-\w]+ )*['\"]?" + r"mann(?![-\w])")
    assert wrong.search("pip install --upgrade 'ma" + "nn[web]'")
    assert [name for name in texts if wrong.search((ROOT / name).read_text())] == []


def test_every_extra_that_a_message_names_exists():
    used = {
        extra
        for path in (ROOT / "src").rglob("*.py")
        for extra in re.findall(r"install_command\(['\"](\w+)['\"]\)", path.read_text())
    }
    assert {"web", "tensorboard", "bench"} <= used <= set(PROJECT["optional-dependencies"])
    assert install_command("web") == "pip install 'mann-oneshot[web]' (in a clone: pip install '.[web]')"


def test_a_wheel_has_every_file_that_the_package_reads_and_the_results_that_the_playground_shows(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [Path(name) for name in listed.stdout.split("\0") if name]
    for name in names:
        if name.parts[0] in ("src", "results", "MANIFEST.in", "pyproject.toml", "README.md", "LICENSE"):
            (tmp_path / name.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    command = [
        sys.executable,
        "-c",
        "import setuptools; setuptools.setup()",
        "-q",
        "build_py",
        "--build-lib",
        "built",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    built = {
        path.relative_to(tmp_path / "built") for path in (tmp_path / "built").rglob("*") if path.is_file()
    }
    package = {name.relative_to("src") for name in names if name.parts[0] == "src"} - {Path("mann/results")}
    shown = {
        Path("mann") / name
        for name in names
        if name.match("results/*/table.json") or name.match("results/*/figures/*.png")
    }
    assert built == package | shown
    assert sum(name.suffix == ".png" for name in shown) == 15
    assert sum((tmp_path / "built" / name).stat().st_size for name in shown) < 3_000_000


def test_version_is_that_of_the_distribution(monkeypatch, capsys):
    monkeypatch.setattr("importlib.metadata.version", {"mann-oneshot": "1.2", "jax": "0.3"}.__getitem__)
    assert (version(), version("jax")) == ("1.2", "0.3")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "1.2\n"


def test_a_source_tree_that_is_not_installed_has_no_version():
    assert version("no-such-distribution-of-anyone") == "unknown"


def test_without_its_extra_tensorboard_is_refused_before_the_folder_is_made(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "tensorboardX" else found(name)
    )
    with pytest.raises(MannError, match=r"mann-oneshot\[tensorboard\]"):
        train(TINY, tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_without_the_extra_web_the_playground_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "--no-browser"]) == 2
    assert "mann-oneshot[web]" in capsys.readouterr().err
