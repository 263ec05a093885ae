"""How fast training is: an update and its parts, against the machine's matrix products and against PyTorch.

Measured in turn, round after round, in one process. benchmarks/README.md says what each number means.
"""

import dataclasses
import importlib.util
import os
import platform
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from mann.benchmark import parts, worker
from mann.benchmark.flops import flop_per_update
from mann.benchmark.timing import Report, Work, interleave, warm_up
from mann.controllers import FeedForwardConfig
from mann.data.render import Drawings
from mann.encoders import ConvStackConfig
from mann.installation import install_command, version
from mann.memory import NoMemoryConfig, NTMConfig
from mann.models import build_model
from mann.parts import to_dict
from mann.runtime import usable_cores
from mann.tasks import Classification, Task
from mann.tasks.pool import PoolConfig
from mann.training.config import Config
from mann.training.distributed import make_mesh
from mann.training.optimisers import AdamW, Muon, OptimiserConfig
from mann.training.presets import PRESETS
from mann.training.run import LIBRARIES
from mann.training.trainer import Trainer

TORCH_EAGER = Path(__file__).parents[3] / "benchmarks" / "torch_eager.py"  # in a source checkout only
TORCH_UPDATES = 2  # in one measurement
NETWORKS: dict[str, dict[str, Any]] = {  # those that the paper compares
    "MANN, LSTM": {},
    "MANN, feed-forward": {"controller": FeedForwardConfig()},
    "NTM": {"memory": NTMConfig()},
    "LSTM": {"memory": NoMemoryConfig()},
    "feed-forward": {"controller": FeedForwardConfig(), "memory": NoMemoryConfig()},
}
NETWORK_ROUNDS, NETWORK_UPDATES = 7, 2  # fewer than for the headline: some take much longer


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is measured, on noise of Omniglot's size, and how often."""

    config: Config = Config(task=Classification(classes=5, length=50), optimiser=AdamW())
    """With Adam, as in PyTorch's loop; what Muon takes instead is measured apart."""
    classes: int = 1100
    drawings: int = 20
    rounds: int = 15
    """Measurements of each number."""
    calls: int = 1000
    """Single steps for the latency."""
    trained: int = 300
    """Updates of the training run."""


HEADLINE = Setting()
DEFAULT = PRESETS["omniglot-5"]  # whose optimiser and precision are what people train with
CONV, CONV_SIDE = ConvStackConfig(), 28  # four layers of 64 maps
CONV_CLASSES, CONV_UPDATES = 200, 2  # in the data set, since pictures are larger; in one measurement
POOL = (32, 12)  # classes and drawings of what the devices' pools hold together: 384 pictures in place of 800


def measure(setting: Setting, devices: int, report: Report) -> dict[str, Any]:
    """All numbers of one setting, as they stand in the JSON file."""
    config, updates = setting.config, setting.config.dispatch
    before = environment()
    drawings = parts.random_drawings(setting.classes, setting.drawings)
    mesh = make_mesh(config.shares)
    trainer = Trainer(config, drawings, None, mesh)
    state = trainer.initial_state()
    snapshot = jax.tree.map(jnp.copy, state)

    def changed(
        optimiser: OptimiserConfig, base: Config = config, source: Drawings = drawings, **of_model: Any
    ) -> Trainer:
        model = dataclasses.replace(base.model, **of_model)
        return Trainer(dataclasses.replace(base, model=model, optimiser=optimiser), source, None, mesh)

    default = changed(DEFAULT.optimiser, precision=DEFAULT.model.precision)
    fast = changed(Muon(), precision="bfloat16")
    large = parts.random_drawings(min(setting.classes, CONV_CLASSES), setting.drawings, CONV_SIDE)
    larger = dataclasses.replace(config, data=dataclasses.replace(config.data, side=CONV_SIDE))
    shared = dataclasses.replace(larger, task=with_pool(setting, mesh.size))
    convolutional = {
        f"update_conv{name}{suffix}": changed(
            DEFAULT.optimiser, base, large, precision=precision, encoder=CONV
        )
        for name, base in (("", larger), ("_pool", shared))
        for suffix, precision in (("", DEFAULT.model.precision), ("_bfloat16", "bfloat16"))
    }
    muon = changed(Muon(), precision="float32"), fast
    works = {
        "update": parts.update_work(trainer, state, updates),
        "draw": parts.draw_work(config, drawings, mesh, updates),
        **parts.model_works(trainer, snapshot.model, updates),
        "optimiser": parts.optimiser_work(trainer, snapshot.model, snapshot.optimiser, updates),
        "model_bfloat16": parts.model_works(fast, fast.initial_state().model, updates)["model"],
        "update_default": parts.update_work(default, default.initial_state(), updates),
        "update_bfloat16": parts.update_work(fast, fast.initial_state(), updates),
        **{
            name: parts.update_work(each, each.initial_state(), CONV_UPDATES)
            for name, each in convolutional.items()
        },
        **{
            name: parts.optimiser_work(
                each, each.initial_state().model, each.initial_state().optimiser, updates
            )
            for name, each in zip(("muon", "muon_bfloat16"), muon, strict=True)
        },
        **{f"sgemm {side}": work for side, work in parts.sgemm_works(mesh).items()},
    }
    torch, torch_note = torch_works(config, drawings)
    works |= {f"PyTorch, {threads} threads": work for threads, work in torch.items()}
    warm_up(works, report)
    times = interleave(works, setting.rounds, report)
    report("one core", 0, 1)
    one_core = worker.start("one_core", setting, devices)
    report("mann train", 0, 1)
    command = worker.start("command", setting, devices)

    update, model = times["update"], times["model"]
    gflop = flop_per_update(config) / 1e9
    sgemm = {
        side: parts.sgemm_gflop(mesh, side) / times[f"sgemm {side}"].median * 1e3 for side in parts.SGEMM
    }
    eager = {threads: times.pop(f"PyTorch, {threads} threads") for threads in torch}
    best_threads = min(eager, key=lambda threads: eager[threads].median, default=None)
    if best_threads is not None:
        times["torch"] = eager[best_threads]
    return {
        "ms_per_update": update.median,
        "updates_per_second": 1e3 / update.median,
        "episodes_per_second": 1e3 / update.median * config.batch,
        "ms_draw": times["draw"].median,
        "ms_draw_one_core": one_core["draw"]["median"],
        "ms_forward": times["forward"].median,
        "ms_model": model.median,
        "ms_optimiser": times["optimiser"].median,
        "ms_muon": times["muon" if default.precision == "float32" else "muon_bfloat16"].median,
        "ms_per_update_default": times["update_default"].median,
        "ms_per_update_bfloat16": times["update_bfloat16"].median,
        **{f"ms_per_{name}": times[name].median for name in convolutional},
        "precision_default": default.precision,
        "bf16_speedup": model.median / times["model_bfloat16"].median,
        "command": command,
        "gflop_per_update": gflop,
        "sgemm_gflops": max(sgemm.values()),
        "utilisation": gflop / (model.median / 1e3) / max(sgemm.values()),
        "torch_ms_per_update": times["torch"].median if eager else None,
        "torch_threads": best_threads,
        "torch_note": torch_note,
        "speedup_vs_torch": times["torch"].median / update.median if eager else None,
        "speedup_vs_torch_default": times["torch"].median / times["update_default"].median if eager else None,
        "online_ms_p50": one_core["online_p50"],
        "online_ms_p99": one_core["online_p99"],
        "devices": mesh.size,
        "spread": {name: spread._asdict() for name, spread in times.items() if "sgemm" not in name}
        | {"draw_one_core": one_core["draw"]},
        "sgemm_gflops_by_side": {str(side): rate for side, rate in sgemm.items()},
        "setting": to_dict(setting),
        "environment": before,
    }


def with_pool(setting: Setting, devices: int) -> Task:
    """The setting's task, with a pool of pictures for the episodes of each device."""
    classes, drawings = POOL
    pool = PoolConfig(
        episodes=setting.config.batch // devices,
        classes=min(classes // devices, setting.classes),
        drawings=min(drawings, setting.drawings),
    )
    return dataclasses.replace(setting.config.task, pool=pool)  # type: ignore[call-arg]


def measure_networks(setting: Setting, report: Report) -> dict[str, dict[str, Any]]:
    """The gradient of every weight for each network: as it runs by default (`ms`), and without the kernel."""
    mesh, drawings = (
        make_mesh(setting.config.shares),
        parts.random_drawings(setting.classes, setting.drawings),
    )
    works = {}
    for name, changes in NETWORKS.items():
        config = dataclasses.replace(
            setting.config, model=dataclasses.replace(setting.config.model, **changes)
        )
        trainer = Trainer(config, drawings, None, mesh)
        arrays = trainer.initial_state().model
        works[name] = parts.model_works(trainer, arrays, NETWORK_UPDATES)["model"]
        works[f"{name}, XLA"] = parts.model_works(trainer, arrays, NETWORK_UPDATES, parts.Scanned)["model"]
    warm_up(works, report)
    times = interleave(works, min(NETWORK_ROUNDS, setting.rounds), report)
    return {
        name: {
            "ms": times[name]._asdict(),
            "ms_xla": times[f"{name}, XLA"]._asdict(),
            "speedup": times[f"{name}, XLA"].median / times[name].median,
        }
        for name in NETWORKS
    }


def torch_works(config: Config, drawings: Drawings) -> tuple[dict[int, Work], str]:
    """Whole updates in PyTorch eager by number of threads, or why there are none.

    All cores and one: with more processes than cores, threads that wait for one another can make it ten times
    slower than it needs to be, and the comparison should be with PyTorch at its best.
    """
    if importlib.util.find_spec("torch") is None:
        return {}, install_command("bench")
    if not TORCH_EAGER.is_file():
        return {}, "in a source checkout only (benchmarks/torch_eager.py)"
    spec = importlib.util.spec_from_file_location("torch_eager", TORCH_EAGER)
    assert spec is not None and spec.loader is not None
    torch_eager = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torch_eager)
    model = build_model(config.model, config.task, key=jax.random.key(config.seed))
    training = torch_eager.Training(model, drawings, config)
    return {
        threads: Work(partial(training.run, TORCH_UPDATES, threads), TORCH_UPDATES)
        for threads in sorted({1, usable_cores()})
    }, ""


def environment() -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    libraries = {name: version(name) for name in LIBRARIES}
    if importlib.util.find_spec("torch") is not None:
        libraries["torch"] = version("torch")
    return {
        "python": platform.python_version(),
        "libraries": libraries,
        "machine": f"{platform.machine()} {platform.system()}",
        "backend": jax.default_backend(),
        "cores": usable_cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }
