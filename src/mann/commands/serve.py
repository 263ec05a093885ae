"""`mann serve`: the playground, on this machine alone unless you say otherwise."""

import dataclasses
import gc
import ipaddress
import re
import signal
import socket
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mann.commands import parse
from mann.errors import MannError
from mann.files import data_dir
from mann.installation import install_command
from mann.runtime import prepare_jax

if TYPE_CHECKING:
    from mann.web.playground import Playground

DESCRIPTION = """The playground in your browser: draw symbols and teach them, watch the memory, play the human
experiment of the paper against the network, look at results. And learners as a service: /v1/openapi.json says how.

It answers on this machine alone. To let others in, listen for them and name the addresses that they will type.
Every browser has its own learner, which is kept until it has not been used for a month; so are trials of the human
experiment (mann trials). Stop it with Ctrl-C: what was taught is there again the next time.

    mann serve
    mann serve --port 9000 --no-browser
    mann serve --model runs/mine                    a model of your own
    mann serve --host 0.0.0.0 --public 192.168.1.5 --token-file tokens.txt
"""


EVERYWHERE = ("0.0.0.0", "::")  # every interface


@dataclasses.dataclass(frozen=True)
class Arguments:
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8000
    """The port to listen on; 0 picks a free one."""
    public: tuple[str, ...] = ()
    """Names by which other machines reach it; others are refused. It has no encryption: a proxy can add it."""
    browser: bool = True
    """Open the page in your browser."""
    model: str = ""
    """The model to play with: a shipped name, a run folder, or a file; empty: omniglot-many."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the products in that model; auto: bfloat16 where the processor has it, which is faster, else float32."""
    results: str = ""
    """The folder of results to show; empty: results if it is here, else those that ship with mann."""
    trials: str = ""
    """The SQLite file of the human experiment; empty: mann/trials.sqlite in your folder for user data."""
    store: str = ""
    """Where learners are kept: a SQLite file or redis://HOST; empty: mann/learners.sqlite among your user data."""
    token_file: str = ""
    """A file with the tokens of the service (/v1 and /metrics), one per line; needed where others can reach it."""
    learners: int = 1000
    """Learners of the service that are kept at a time."""
    browsers: int = 1000
    """Learners that are kept at a time, one per browser; another machine may have a quarter of them."""
    idle: float = 30.0
    """Days after which the learner of a browser that did not come back is dropped."""
    trial_length: int = 50
    """Pictures in a trial; the paper has 50."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "serve", DESCRIPTION, arguments)
    _check(options)
    try:
        import httptools  # noqa: F401
        import python_multipart  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise MannError(f"The playground needs more packages: {install_command('web')}.") from None
    with listen(options.host, options.port) as listener:
        print("Loading the models …", flush=True)
        playground = _prepare(options)
        from mann.web.app import create_app
        from mann.web.server import configure

        name = options.host if _is_loopback(options.host) else options.public[0]
        address = f"http://{_in_address(name)}:{listener.getsockname()[1]}/"

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                print(f"The playground is at {address} (stop it with Ctrl-C)", flush=True)
                if options.browser:
                    # In a thread: a browser without windows would not return before it is left.
                    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        # The server finishes what it is doing at SIGINT or SIGTERM, then raises the signal anew: end in peace.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        try:
            Server(configure(create_app(playground))).run([listener])
        finally:
            playground.close()
    print("Stopped.")
    return 0


def _check(options: Arguments) -> None:
    if not _is_loopback(options.host) and not options.public:
        raise MannError(
            f"{options.host} can be reached from other machines: name the addresses that people will type, such as "
            "--public 192.168.1.5 playground.example, or leave --host out."
        )
    if not _is_loopback(options.host) and not options.token_file:
        raise MannError(
            f"{options.host} can be reached from other machines, so the service needs a token: write one into a "
            "file, and name that with --token-file."
        )
    for name in options.public:
        if not _is_name(name):
            raise MannError(f"{name!r} is no host: give names or addresses alone, without http:// and port.")
    if options.token_file:
        read_tokens(Path(options.token_file))
    if not 0 <= options.port <= 65535:
        raise MannError(f"A port is a number from 0 to 65535, not {options.port}.")
    if not 1 <= options.learners <= 1_000_000:
        raise MannError(f"Keep between 1 and a million learners, not {options.learners}.")
    if not 1 <= options.browsers <= 10_000:
        raise MannError(f"Allow between 1 and 10000 browsers, not {options.browsers}.")
    if not 0 < options.idle <= 3650:
        raise MannError("An idle browser's learner is dropped after more than 0 days and at most ten years.")
    if not 1 <= options.trial_length <= 500:
        raise MannError("A trial has between 1 and 500 pictures.")


def _prepare(options: Arguments) -> "Playground":
    prepare_jax(1)
    import numpy as np

    from mann.data.pictures import draw_pictures
    from mann.online import OneShotLearner
    from mann.online.learner import default_model
    from mann.store import open_store
    from mann.trained import load_trained, with_precision
    from mann.web.experiment import MODEL, load_material
    from mann.web.playground import Playground, Settings
    from mann.web.results import choose_results
    from mann.web.trials import default_path

    store = options.store or str(data_dir() / "learners.sqlite")
    open_store(store).close()  # if it cannot be used, that is said before the models are loaded
    opponent = OneShotLearner.from_pretrained(MODEL)
    learner = OneShotLearner(
        with_precision(load_trained(options.model or default_model()), options.precision)
    )
    material = load_material()
    (picture, _), *_ = draw_pictures(material.bitmaps, 1, 1, np.random.default_rng(0))
    for one in {learner, opponent}:
        one.sibling().learn_one(picture, "compiled before the first request")
    playground = Playground(
        learner,
        opponent,
        material,
        Settings(
            choose_results(options.results),
            Path(options.trials) if options.trials else default_path(),
            store,
            most_sessions=options.browsers,
            # On loopback, one address may be a proxy for everyone.
            most_per_address=options.browsers if _is_loopback(options.host) else -(-options.browsers // 4),
            idle_seconds=86400 * options.idle,
            trial_length=options.trial_length,
            most_learners=options.learners,
            tokens=read_tokens(Path(options.token_file)) if options.token_file else (),
            hosts=_hosts(options),
        ),
    )
    playground.desk.compile()
    _collect_less()
    return playground


def _collect_less() -> None:
    """Leave the models and the libraries to themselves when unused objects are looked for, and look less often.

    With Python's own settings that took a tenth of the time of a prediction.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens of a file, one per line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise MannError(f"The tokens in {path} cannot be read: {reason}.") from None
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens or any(len(token) < 16 or not token.isascii() or " " in token for token in tokens):
        raise MannError(
            f"{path} must hold tokens of at least 16 letters, one per line, such as `openssl rand -hex 32`."
        )
    return tokens


def _hosts(options: Arguments) -> tuple[str, ...]:
    """What a request may call this machine. Not 0.0.0.0, which stands for every interface."""
    named = [name.lower() for name in (options.host, *options.public) if name not in EVERYWHERE]
    return ("127.0.0.1", "localhost", "::1", *named)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=512)
        # Accepted connections inherit it. Without it every answer would wait 40 ms for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        reason = error.strerror or str(error)
        raise MannError(f"Cannot listen on {host}, port {port}: {reason}. Try another --port.") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return re.fullmatch(r"(?!-)[a-zA-Z0-9-]{1,63}(\.[a-zA-Z0-9-]{1,63})*", host) is not None


def _in_address(host: str) -> str:
    if host in EVERYWHERE:  # from here, that is
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"
    return f"[{host}]" if ":" in host else host
