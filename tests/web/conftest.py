"""A playground on a free loopback port, with a real server; pictures are a few glyphs."""

import base64
import contextlib
import dataclasses
import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image

from mann import OneShotLearner
from mann.commands.serve import listen
from mann.data.glyphs import make_glyphs
from mann.web.experiment import Material

uvicorn = pytest.importorskip("uvicorn", reason="the extra web is not installed")

from mann.web.app import create_app  # noqa: E402
from mann.web.playground import Playground, Settings  # noqa: E402
from mann.web.server import configure  # noqa: E402


@pytest.fixture(scope="session")
def learner() -> OneShotLearner:
    return OneShotLearner.from_pretrained("omniglot-5")


@pytest.fixture(scope="session")
def material() -> Material:
    return Material("test glyphs", "glyphs", make_glyphs(8, 12, seed=5))


@dataclasses.dataclass
class Running:
    """A playground that is being served."""

    address: str
    playground: Playground

    def browser(self) -> httpx.Client:
        """A client with cookies of its own."""
        return httpx.Client(base_url=self.address, timeout=30, verify=False)  # it would load certificates


@pytest.fixture(scope="session")
def serve(
    learner: OneShotLearner, material: Material, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., contextlib.AbstractContextManager[Running]]:
    """`with serve(most_sessions=2) as running`: a server with these settings, or with another learner."""

    @contextlib.contextmanager
    def start(learner: OneShotLearner = learner, **changes: object) -> Iterator[Running]:
        folder = tmp_path_factory.mktemp("serve")
        settings = Settings(
            folder / "results", folder / "trials.sqlite", str(folder / "learners.sqlite"), trial_length=4
        )
        playground = Playground(learner, learner, material, dataclasses.replace(settings, **changes))
        listener = listen("127.0.0.1", 0)
        server = uvicorn.Server(configure(create_app(playground)))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", playground)
        finally:
            server.should_exit = True
            thread.join(timeout=20)
            listener.close()
            playground.close()

    return start


@pytest.fixture(scope="session")
def running(serve: Callable[..., contextlib.AbstractContextManager[Running]]) -> Iterator[Running]:
    """One server for the tests that need nothing special."""
    with serve() as started:
        yield started


def encode(picture: Image.Image) -> str:
    """A picture as the page sends it."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


STATIC = Path(__file__).parents[2] / "src/mann/web/static"
