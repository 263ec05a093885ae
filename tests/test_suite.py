"""The test-suite itself: what does not run is told, and cannot be overlooked where it must run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("required", [False, True])
def test_without_a_browser_the_summary_says_so_and_fails_where_one_is_required(required, tmp_path):
    environment = os.environ | {"PATH": str(tmp_path), "MANN_REQUIRE_BROWSER": "1" if required else ""}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "tests/web/test_browser.py",
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "SKIPPED: this was not the whole test-suite" in done.stdout, done.stdout + done.stderr
    assert "tests/web/test_browser.py: there is no chromium" in done.stdout
    assert (done.returncode, "had to run" in done.stdout) == ((1, True) if required else (0, False))


def test_continuous_integration_requires_the_browser():
    assert "MANN_REQUIRE_BROWSER=1 make test" in (ROOT / ".ci/run").read_text()
