"""`mann bench`: how fast training is on this machine, and how near to what the machine can do."""

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from mann.commands import parse
from mann.commands.console import plain_console, plain_table
from mann.errors import MannError
from mann.files import check_writable, write_json
from mann.runtime import prepare_jax

QUICK_ROUNDS = 5
BUSY = 0.7  # processes that ran or waited on average over the last minute


@dataclasses.dataclass(frozen=True)
class Arguments:
    quick: bool = False
    """Measure the headline setting alone, with fewer repeats: less than a minute."""
    json: str = ""
    """Write the result to this file as JSON."""
    plot: str = ""
    """Draw how time and memory grow, to this name with .png and with .svg."""
    devices: int = 0
    """CPU devices to split the batch over; 0 means one for each core."""


def main(arguments: list[str]) -> int:
    options = parse(
        Arguments,
        "bench",
        "Speed of training: an update and its parts, against matrix products and PyTorch on this machine.",
        arguments,
    )
    if options.quick and options.plot:
        raise MannError(
            "--quick does not measure growth, so there is nothing to plot: leave out one of them."
        )
    for name in filter(None, (options.json, options.plot)):
        check_writable(Path(name))
    prepare_jax(options.devices)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from mann import benchmark
    from mann.benchmark.growth import draw_growth, measure_growth

    setting = benchmark.HEADLINE
    if options.quick:
        setting = dataclasses.replace(setting, rounds=min(QUICK_ROUNDS, setting.rounds))
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        bar_id = bar.add_task("starting", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(bar_id, description=what, completed=done, total=total)

        result = benchmark.measure(setting, options.devices, report)
        networks = None if options.quick else benchmark.measure_networks(setting, report)
        growth = None if options.quick else measure_growth(setting, options.devices, report)

    console = plain_console()
    print_headline(result, console)
    if networks is not None:
        print_networks(networks, console)
    if growth is not None:
        print_growth(growth, console)
    if options.plot and growth is not None:
        for path in draw_growth(growth, Path(options.plot)):
            console.print(f"Plot: {path}")
    if options.json:
        write_json(Path(options.json), result | {"networks": networks, "growth": growth})
    return 0


def print_headline(result: dict[str, Any], console: Console) -> None:
    config, environment = result["setting"]["config"], result["environment"]
    task, model, memory = config["task"], config["model"], config["model"]["memory"]
    console.print(
        f"{task['classes']} classes, {task['length']} steps, batch {config['batch']}, LSTM "
        f"{model['controller']['hidden']}, memory {memory['slots']}×{memory['width']}, {memory['heads']} heads; "
        f"{result['devices']} devices, {environment['cores']} cores"
    )
    table = plain_table(left=("",), right=("median", "min – max"))
    table.add_column("")
    rate = f"{result['updates_per_second']:.1f} updates/s, {result['episodes_per_second']:.0f} episodes/s"
    for name, key, about in (
        ("update", "update", rate),
        ("  draw", "draw", f"{config['batch'] * task['length']} pictures"),
        ("  model", "model", "gradient of every weight"),
        ("  optimiser", "optimiser", "clip and Adam"),
        ("  model, bfloat16", "model_bfloat16", f"{result['bf16_speedup']:.2f} times as fast"),
        ("  optimiser, Muon", "muon", "in place of Adam"),
        ("  Muon, bfloat16", "muon_bfloat16", ""),
        ("update as trained", "update_default", f"Muon, {result['precision_default']}: the presets' default"),
        ("update, bfloat16", "update_bfloat16", "Muon, bfloat16"),
        ("update, convolutions", "update_conv", "as trained, with 4 layers of 64 maps on 28×28 pixels"),
        ("  bfloat16", "update_conv_bfloat16", ""),
        ("  with a pool", "update_conv_pool", "as trained, episodes share 384 pictures"),
        ("  with a pool, bfloat16", "update_conv_pool_bfloat16", ""),
        ("forward alone", "forward", ""),
        ("draw on one core", "draw_one_core", ""),
        (
            "update, PyTorch eager",
            "torch",
            f"threads: {result['torch_threads']}, the faster of 1 and all cores",
        ),
    ):
        if key in result["spread"]:
            times = result["spread"][key]
            span = f"{times['min']:.2f} – {times['max']:.2f}"
            table.add_row(name, f"{times['median']:.2f} ms", span, about)
        else:
            table.add_row(name, "–", "", escape(result["torch_note"]))  # [bench] is no markup
    p50, p99 = result["online_ms_p50"], result["online_ms_p99"]
    table.add_row("one step on one core", f"{p50:.3f} ms", "", f"99 % below {p99:.3f} ms")
    command = result["command"]
    console.print(table)
    console.print(
        f"`mann train`: {command['updates_per_second']:.1f} updates/s over {command['updates']} updates; "
        f"{command['ms_evaluation']:.0f} ms per evaluation, {command['ms_checkpoint']:.0f} ms per checkpoint."
    )
    console.print(
        f"The model's {result['gflop_per_update']:.2f} GFLOP per update run at "
        f"{100 * result['utilisation']:.0f} % of this machine's matrix products "
        f"({result['sgemm_gflops']:.0f} GFLOP/s)."
    )
    if result["speedup_vs_torch"] is not None:
        console.print(
            f"An update is {result['speedup_vs_torch']:.1f} times as fast as in PyTorch eager, as trained "
            f"{result['speedup_vs_torch_default']:.1f} times."
        )
    if environment["load"] is not None and environment["load"] > BUSY:
        console.print(
            f"Other processes were at work (load {environment['load']:.1f}): do not trust these numbers, measure "
            "again on a quiet machine."
        )


def print_networks(networks: dict[str, dict[str, Any]], console: Console) -> None:
    table = plain_table(
        left=("",), right=("ms", "min – max", "ms with MANN_NATIVE=0", "min – max", "times as fast")
    )
    for name, row in networks.items():
        spreads = (row["ms"], row["ms_xla"])
        cells = [(f"{s['median']:.2f}", f"{s['min']:.2f} – {s['max']:.2f}") for s in spreads]
        table.add_row(name, *cells[0], *cells[1], f"{row['speedup']:.2f}")
    console.print("\nThe gradient of every weight, for each network", style="bold")
    console.print(table)


def print_growth(growth: dict[str, list[dict[str, Any]]], console: Console) -> None:
    from mann.benchmark.growth import UNITS

    for axis, rows in growth.items():
        columns = (axis, "ms per update", "min – max", "MiB", "time per unit", "devices")
        table = plain_table(right=columns)
        for row in rows:
            if row["ms"] is None:
                table.add_row(str(row["size"]), row["problem"])
                continue
            memory = "" if row["memory"] is None else f"{row['memory'] / 2**20:.0f}"
            span = f"{row['ms']['min']:.1f} – {row['ms']['max']:.1f}"
            linearity = "" if row["linearity"] is None else f"× {row['linearity']:.2f}"
            cells = (f"{row['ms']['median']:.1f}", span, memory, linearity, str(row["devices"]))
            table.add_row(str(row["size"]), *cells)
        console.print(f"\nGrowth with the {UNITS[axis]}", style="bold")
        console.print(table)
    console.print(
        "\nMiB: peak above weights and data set. Time per unit: over that of the first row; 1 is linear."
    )
