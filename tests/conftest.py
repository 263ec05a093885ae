"""Tests run strictly: two CPU devices, no silent rank or dtype promotion, warnings are errors.

What XLA compiles is kept for the whole session, also for the processes that tests start and for the workers among
which `make test` shares out the tests.
"""

import fcntl
import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not WORKER:  # the workers are started with this environment
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="mann-tests-")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
if os.environ.get("MANN_OPTIMISED") != "1":
    # Tests spend their time compiling, not computing; test_optimised.py has some run as users compile them.
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    # One piece per program instead of 32, compiled side by side: three quarters of the work.
    quick = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}".strip()

gc.set_threshold(100_000, 20, 100)  # traced programs are millions of objects that live on

import jax  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


BROWSER_TESTS = "tests/web/test_browser.py"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Forget what was compiled; fail if the tests in a browser had to run (MANN_REQUIRE_BROWSER=1) and did not."""
    if WORKER:
        return
    shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
    if os.environ.get("MANN_REQUIRE_BROWSER") == "1" and not _ran_in_browser(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say loudly what did not run, and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    counts = Counter((report.nodeid.partition("::")[0], _reason(report)) for report in skipped)
    lines = [f"{count} × {file}: {reason}" for (file, reason), count in sorted(counts.items())]
    if os.environ.get("MANN_REQUIRE_BROWSER") == "1" and not _ran_in_browser(config):
        lines.append(f"FAILED: {BROWSER_TESTS} had to run (MANN_REQUIRE_BROWSER=1)")
    if lines:
        lines.insert(0, f"{len(skipped)} SKIPPED: this was not the whole test-suite")
        width = max(map(len, lines))
        box = [
            f"┏{'━' * (width + 2)}┓",
            *(f"┃ {line:<{width}} ┃" for line in lines),
            f"┗{'━' * (width + 2)}┛",
        ]
        terminalreporter.write("\n" + "\n".join(box) + "\n", yellow=True, bold=True)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix(
        "Skipped: "
    )


def _ran_in_browser(config: pytest.Config) -> bool:
    stats = config.pluginmanager.get_plugin("terminalreporter").stats
    ran, skipped = (
        any(report.nodeid.startswith(BROWSER_TESTS) for report in stats.get(kind, []))
        for kind in ("passed", "skipped")
    )
    return ran and not skipped


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for data sets that several tests use (set MANN_CACHE to it), the same for all workers.

    It shares the compiled kernel with the usual cache: compiling it takes longer than most tests.
    """
    from mann.files import cache_dir

    def make(folder: Path) -> None:
        kernels = cache_dir() / "native"
        kernels.mkdir(parents=True, exist_ok=True)
        (folder / "native").symlink_to(kernels)

    return made_once(tmp_path_factory, "cache", make)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that the first worker to ask for it makes, while the others wait. It is left as it was made: whoever
    wants to change it takes a copy."""
    base = factory.getbasetemp().parent if WORKER else factory.getbasetemp()
    folder, part = base / f"shared-{name}", base / f"shared-{name}.part"
    with (base / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(part, ignore_errors=True)  # of a worker that failed
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


@pytest.fixture(scope="module")
def shared_trainers() -> Iterator[None]:
    """For a module that trains the same configuration again and again."""
    from tests.trainers import Shared

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mann.training.loop.Trainer", Shared)
        yield
