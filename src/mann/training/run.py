"""A run folder: what was asked for, what happened, and everything needed to go on.

config.json     the whole configuration
env.json        versions, machine and git commit of every session
metrics.jsonl   loss and accuracy by update; a resumed run ends with the same bytes as an uninterrupted one
times.jsonl     wall-clock seconds by update
checkpoints/    each with configuration and metrics: the newest two, and best.safetensors
figures/        curves
"""

import contextlib
import json
import math
import os
import platform
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mann.errors import MannError
from mann.files import (
    Damaged,
    Lock,
    load_arrays,
    read_json,
    save_arrays,
    set_aside,
    write_atomically,
    writing,
)
from mann.installation import version
from mann.training.checkpoint import (
    Checkpoint,
    checkpoint_path,
    list_checkpoints,
    newest_checkpoint,
    prune_checkpoints,
)
from mann.training.config import Config, from_dict, to_dict

METRICS = "metrics.jsonl"  # in a checkpoint: the bytes of the file, as far as it goes
SEEN = "seen"  # in a checkpoint: the fingerprints of every drawing that the network has met
NO_BEST: dict[str, Any] = {"update": -1, "score": -math.inf}
LOCK = ".lock"
UNFINISHED = tuple(
    f".{name}" for name in ("config.json.", "env.json.", "metrics.", "times.", "update-", "best.", "curves.")
)
LIBRARIES = ("mann", "jax", "jaxlib", "equinox", "optax", "numpy")


class Run:
    """The files of one run. Only the main process writes, and only one at a time (`close` lets go of the folder).

    The newest checkpoint is the truth: it holds the configuration and the metrics up to its update, so that the
    files beside it can be compared with it and, where they are damaged, written again.
    """

    def __init__(self, folder: Path, writable: bool = True) -> None:
        self.folder = folder
        self.writable = writable
        self.checkpoints = folder / "checkpoints"
        self.figures = folder / "figures"
        self.best = self.checkpoints / "best.safetensors"
        self.metrics = b""  # the content of metrics.jsonl
        self.started = time.monotonic()
        self.seconds_before = 0.0
        self._lock: Lock | None = None

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def exists(folder: Path) -> bool:
        return (folder / "config.json").is_file()

    def create(self, config: Config, devices: int) -> None:
        """A new folder; refuses one that is already in use, and leaves nothing behind if it fails."""
        if not self.writable:
            return
        with writing(self.folder):
            self.refuse_if_used()
            is_new = not self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._claim()
            self.refuse_if_used()  # by a process that was faster
            self._sweep()
            try:
                self._write("config.json", _pretty(to_dict(config)))
                self.start_session(config, devices, warn=lambda _: None)
            except BaseException:
                for name in ("config.json", "env.json"):
                    (self.folder / name).unlink(missing_ok=True)
                self.close()
                if is_new:
                    self.folder.rmdir()
                raise

    def resume(self, warn: Callable[[str], None]) -> tuple[Config, Checkpoint | None]:
        """The configuration and the newest valid checkpoint. Forgets what was recorded after it.

        Damaged files are set aside and named through `warn`. An edited configuration is refused.
        """
        if not os.path.lexists(self.folder / "config.json") and not list_checkpoints(self.checkpoints):
            raise MannError(f"There is no run in {self.folder}: it has no config.json.")
        with writing(self.folder):
            if self.writable:
                self._claim()
                self._sweep()
            checkpoint = newest_checkpoint(self.checkpoints, warn)
            if checkpoint is None:
                config = self.read_config()
            else:
                config = from_dict(checkpoint.description["config"])
                self._check_config(config, warn)
                best = self._check_best(checkpoint, warn)
                checkpoint = checkpoint._replace(description=checkpoint.description | {"best": best})
            self._rewind(checkpoint, warn)
        return config, checkpoint

    def close(self) -> None:
        """Let other processes use the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check_place(self) -> None:
        """Refuse to go on in a folder that was deleted or moved, where everything would be lost."""
        if self._lock is not None and not self._lock.is_in_place():
            raise MannError(
                f"The folder {self.folder} was deleted, moved or replaced while the run was writing to it: what "
                "was not copied elsewhere is lost."
            )

    def read_config(self) -> Config:
        """What config.json says."""
        try:
            return from_dict(read_json(self.folder / "config.json"))
        except FileNotFoundError:
            raise MannError(f"There is no run in {self.folder}: it has no config.json.") from None
        except OSError as error:
            raise MannError(f"Could not read {self.folder / 'config.json'}: {error.strerror}.") from None

    def sessions(self) -> list[dict[str, Any]]:
        """What env.json says: the versions and the machine of every session."""
        path = self.folder / "env.json"
        try:
            content = read_json(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Damaged(f"{path} cannot be read: {error.strerror}.") from None
        sessions = content.get("sessions") if isinstance(content, dict) else None
        if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
            raise Damaged(f"{path} is damaged: it does not hold a list of sessions.")
        return sessions

    def start_session(self, config: Config, devices: int, warn: Callable[[str], None]) -> None:
        """Start the clock, and add this session to env.json. Warns if it computes in another precision."""
        self.started = time.monotonic()
        if not self.writable:
            return
        session = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "python": platform.python_version(),
            "libraries": {name: version(name) for name in LIBRARIES},
            "machine": platform.machine(),
            "system": platform.system(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "backend": jax.default_backend(),
            "devices": devices,
            "precision": config.model.resolved_precision,
            "processes": jax.process_count(),
            "git_commit": _git_commit(),
        }
        try:
            sessions = self.sessions()
        except Damaged as error:
            sessions = []
            self._set_aside("env.json", f"{error} A new one begins", warn)
        before = sessions[-1].get("precision", session["precision"]) if sessions else session["precision"]
        if before != session["precision"]:
            warn(
                f"So far this run was computed in {before}, but model.precision {config.model.precision} means "
                f"{session['precision']} on this machine: it goes on, but will not be the same to the last bit."
            )
        with writing(self.folder / "env.json"):
            self._write("env.json", _pretty({"sessions": [*sessions, session]}))

    def seconds(self) -> float:
        """Seconds of work in this run, all sessions together."""
        return self.seconds_before + time.monotonic() - self.started

    def record(self, metrics: dict[str, Any]) -> None:
        """Append to metrics.jsonl, and the time to times.jsonl."""
        if not self.writable:
            return
        self.check_place()
        times = {"update": metrics["update"], "seconds": round(self.seconds(), 3)}
        with writing(self.folder):
            self._append("metrics.jsonl", metrics)
            self._append("times.jsonl", times | {"crc32": _checksum(times)})
        self.metrics += _line(metrics)

    def read(self, name: str) -> list[dict[str, Any]]:
        """The records of a .jsonl file, without lines that were cut short by a crash or damaged."""
        try:
            return _parse_lines((self.folder / name).read_bytes())[0]
        except FileNotFoundError:
            return []

    def save_checkpoint(self, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> None:
        """Write a checkpoint with the metrics so far, remember it if it is the best, and delete old ones."""
        if not self.writable:
            return
        self.check_place()
        path = checkpoint_path(self.checkpoints, description["update"])
        save_arrays(path, arrays | {METRICS: np.frombuffer(self.metrics, np.uint8)}, description)
        if description["best"]["update"] == description["update"]:
            self._keep_best(path)
        prune_checkpoints(self.checkpoints)

    def _keep_best(self, checkpoint: Path) -> None:
        """Give the best checkpoint a name of its own, without copying it where links work."""
        temporary = self.checkpoints / ".best.safetensors.tmp"
        temporary.unlink(missing_ok=True)
        with writing(self.best):
            try:
                os.link(checkpoint, temporary)
            except OSError:
                shutil.copyfile(checkpoint, temporary)
            temporary.replace(self.best)

    def _claim(self) -> None:
        try:
            self._lock = Lock(self.folder / LOCK)
        except BlockingIOError:
            raise MannError(
                f"Another process is writing to the run in {self.folder}: wait until it has ended."
            ) from None

    def refuse_if_used(self) -> None:
        """Refuse a folder that holds anything, except what a run left that was killed before it had begun."""
        if (
            self.writable
            and self.folder.exists()
            and not all(self._is_leftover(path) for path in self.folder.iterdir())
        ):
            hint = "resume the run in it, or " if self.exists(self.folder) else ""
            raise MannError(
                f"The folder {self.folder} is not empty: {hint}choose another folder for this run."
            )

    def _is_leftover(self, path: Path) -> bool:
        """Whether it may stem from a run that was killed before it had begun."""
        if path == self.checkpoints and path.is_dir():
            return all(_is_temporary(inside) for inside in path.iterdir())
        return path.name == LOCK or _is_temporary(path)

    def _sweep(self) -> None:
        """Remove what a killed process had not finished writing."""
        for folder in (self.folder, self.checkpoints, self.figures):
            for path in folder.iterdir() if folder.is_dir() else ():
                if _is_temporary(path):
                    path.unlink(missing_ok=True)

    def _check_config(self, config: Config, warn: Callable[[str], None]) -> None:
        """Compare config.json with the configuration of the checkpoint."""
        try:
            content = read_json(self.folder / "config.json")
            if not isinstance(content, dict):
                raise Damaged(f"{self.folder / 'config.json'} is damaged: it holds no named fields.")
        except (OSError, Damaged) as error:
            reason = str(error) if isinstance(error, Damaged) else "config.json cannot be read."
            self._set_aside("config.json", f"{reason} It is written again from the checkpoint", warn)
            if self.writable:
                self._write("config.json", _pretty(to_dict(config)))
            return
        with contextlib.suppress(MannError):  # fields that came later are missing in older files
            content = to_dict(from_dict(content))
        ours, theirs = _flat(to_dict(config)), _flat(content)
        edited = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        if edited:
            edits = [f"{name} is {theirs.get(name)!r}, was {ours.get(name)!r}" for name in edited[:8]]
            more = f" and {len(edited) - 8} more" if len(edited) > 8 else ""
            raise MannError(
                f"{self.folder / 'config.json'} was edited since the run began ({'; '.join(edits)}{more}). A run "
                "keeps its configuration: undo the edit, or delete the file to have it restored."
            )

    def _check_best(self, checkpoint: Checkpoint, warn: Callable[[str], None]) -> dict[str, Any]:
        """What the checkpoint says is the best one so far, or that there is none if that one is lost."""
        best: dict[str, Any] = checkpoint.description["best"]
        if best["update"] < 0:
            return best
        problem = None
        try:
            update = load_arrays(self.best)[1]["update"] if self.best.exists() else -1
        except MannError as error:
            problem, update = str(error), -1
        if update == best["update"] or update > checkpoint.description["update"]:  # the latter is ahead of us
            return best
        if problem and self.writable:
            set_aside(self.best)
        with contextlib.suppress(MannError):
            # Killed between the checkpoint and its second name, or the second name is damaged.
            source = checkpoint_path(self.checkpoints, best["update"])
            load_arrays(source)
            if self.writable:
                self._keep_best(source)
            if problem:
                warn(f"{problem} It is taken again from {source.name}.")
            return best
        warn(f"{problem or f'{self.best} is missing.'} The best checkpoint from here on takes its place.")
        return dict(NO_BEST)

    def _rewind(self, checkpoint: Checkpoint | None, warn: Callable[[str], None]) -> None:
        """Forget what was recorded after the checkpoint: it will be computed again."""
        update = checkpoint.description["update"] if checkpoint else 0
        if checkpoint is None:
            self.metrics = b""
        elif METRICS in checkpoint.arrays:
            self.metrics = checkpoint.arrays[METRICS].tobytes()
        else:  # from before checkpoints held them
            records = [record for record in self.read("metrics.jsonl") if record["update"] <= update]
            self.metrics = b"".join(_line(record) for record in records)
        if not (self._content("metrics.jsonl") or b"").startswith(self.metrics):
            path = self.folder / "metrics.jsonl"
            self._set_aside(
                "metrics.jsonl",
                f"{path} was altered, damaged or removed. It is written again from the checkpoint",
                warn,
            )
        content = self._content("times.jsonl")
        records, bad = _parse_lines(content or b"")
        times = [record for record in records if record["update"] <= update]
        if bad or (content is None and self.metrics):
            path = self.folder / "times.jsonl"
            self._set_aside("times.jsonl", f"{path} was damaged or removed. Its good lines are kept", warn)
        self.seconds_before = times[-1].get("seconds", 0.0) if times else 0.0
        if self.writable:
            write_atomically(self.folder / "metrics.jsonl", self.metrics)
            write_atomically(self.folder / "times.jsonl", b"".join(_line(record) for record in times))

    def _content(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except OSError:
            return None

    def _set_aside(self, name: str, reason: str, warn: Callable[[str], None]) -> None:
        path = self.folder / name
        if not self.writable:
            return
        remark = f"; the damaged one is kept as {set_aside(path).name}" if os.path.lexists(path) else ""
        warn(f"{reason}{remark}.")

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.folder / name, text.encode())

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())


def _pretty(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _checksum(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record).encode())


def _parse_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The records, and how many lines are damaged; a last one without its end was cut short by a crash."""
    *lines, _ = content.split(b"\n")
    records = [_parse_line(line) for line in lines]
    good = [record for record in records if record is not None]
    return good, len(records) - len(good)


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("update")) is not int:
        return None
    seconds = record.get("seconds", 0.0)  # in times.jsonl
    if type(seconds) not in (int, float) or not math.isfinite(seconds):
        return None
    unsigned = {name: value for name, value in record.items() if name != "crc32"}
    return record if record.get("crc32", _checksum(unsigned)) == _checksum(unsigned) else None


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields by their dotted names."""
    fields: dict[str, Any] = {}
    for name, value in content.items():
        inside = isinstance(value, dict)
        fields |= _flat(value, f"{prefix}{name}.") if inside else {f"{prefix}{name}": value}
    return fields


def _is_temporary(path: Path) -> bool:
    return path.is_file() and (path.name == "best.tmp" or path.name.startswith(UNFINISHED))


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
