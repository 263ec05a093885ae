"""A run folder: what was asked for, what happened, and everything needed to go on.

config.json     the whole configuration
env.json        versions, machine and git commit of every session
metrics.jsonl   loss and accuracy by update; a resumed run ends with the same bytes as an uninterrupted one
times.jsonl     wall-clock seconds by update
checkpoints/    the newest two, and best.safetensors
figures/        curves
"""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from mann.data.cache import write_atomically
from mann.errors import MannError
from mann.training.config import Config, from_dict, to_dict

LIBRARIES = ("mann", "jax", "jaxlib", "equinox", "optax", "numpy")


class Run:
    """The files of one run. Only the main process writes."""

    def __init__(self, folder: Path, writable: bool = True) -> None:
        self.folder = folder
        self.writable = writable
        self.checkpoints = folder / "checkpoints"
        self.figures = folder / "figures"
        self.best = self.checkpoints / "best.safetensors"
        self.started = time.monotonic()
        self.seconds_before = 0.0

    @staticmethod
    def exists(folder: Path) -> bool:
        return (folder / "config.json").is_file()

    def create(self, config: Config) -> None:
        """A new folder; refuses one that is already in use."""
        if not self.writable:
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            hint = "resume it with --resume, or " if self.exists(self.folder) else ""
            raise MannError(f"The folder {self.folder} is not empty: {hint}choose another one with --run.")
        with _writing(self.folder):
            self.checkpoints.mkdir(parents=True)
            self._write("config.json", json.dumps(to_dict(config), indent=2) + "\n")

    def read_config(self) -> Config:
        path = self.folder / "config.json"
        try:
            return from_dict(json.loads(path.read_text()))
        except FileNotFoundError:
            raise MannError(f"There is no run in {self.folder}: it has no config.json.") from None
        except json.JSONDecodeError as error:
            raise MannError(f"{path} is not valid JSON: {error}.") from None

    def note_environment(self, devices: int) -> None:
        """Add this session to env.json."""
        if not self.writable:
            return
        session = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "python": platform.python_version(),
            "libraries": {name: metadata.version(name) for name in LIBRARIES},
            "machine": platform.machine(),
            "system": platform.system(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "backend": jax.default_backend(),
            "devices": devices,
            "processes": jax.process_count(),
            "git_commit": _git_commit(),
        }
        path = self.folder / "env.json"
        sessions = json.loads(path.read_text())["sessions"] if path.exists() else []
        with _writing(path):
            self._write("env.json", json.dumps({"sessions": [*sessions, session]}, indent=2) + "\n")

    def rewind(self, update: int) -> None:
        """Forget what was recorded after the checkpoint at `update`: it will be computed again."""
        records = [r for r in self.read("metrics.jsonl") if r["update"] <= update]
        times = [r for r in self.read("times.jsonl") if r["update"] <= update]
        self.seconds_before = times[-1]["seconds"] if times else 0.0
        self.started = time.monotonic()
        if self.writable:
            with _writing(self.folder):
                self._write("metrics.jsonl", "".join(_line(r) for r in records))
                self._write("times.jsonl", "".join(_line(r) for r in times))

    def seconds(self) -> float:
        """Seconds of work in this run, all sessions together."""
        return self.seconds_before + time.monotonic() - self.started

    def record(self, metrics: dict[str, Any]) -> None:
        """Append to metrics.jsonl, and the time to times.jsonl."""
        if not self.writable:
            return
        with _writing(self.folder):
            self._append("metrics.jsonl", metrics)
            self._append("times.jsonl", {"update": metrics["update"], "seconds": round(self.seconds(), 3)})

    def read(self, name: str) -> list[dict[str, Any]]:
        """The whole lines of a .jsonl file; a line that was cut short by a crash is left out."""
        path = self.folder / name
        if not path.exists():
            return []
        records = []
        for line in path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def keep_best(self, checkpoint: Path) -> None:
        """Give the best checkpoint a name of its own, without copying it where links work."""
        temporary = self.best.with_suffix(".tmp")
        temporary.unlink(missing_ok=True)
        with _writing(self.best):
            try:
                os.link(checkpoint, temporary)
            except OSError:
                shutil.copyfile(checkpoint, temporary)
            temporary.replace(self.best)

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.folder / name, text.encode())

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with (self.folder / name).open("a") as file:
            file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"


@contextlib.contextmanager
def _writing(path: Path) -> Any:
    """Turn what the operating system says into what the user can do."""
    try:
        yield
    except OSError as error:
        raise MannError(
            f"Could not write to {path}: {error.strerror}. Checkpoints written before are intact: make room or "
            "choose another folder with --run."
        ) from None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _git_commit() -> str | None:
    """The commit of the source tree, if the package runs from one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
