"""What the playground does: teach and recognise, replay a test episode, play against the network."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from mann.data.pictures import draw_pictures
from mann.errors import MannError
from mann.online import OneShotLearner, Prepared
from mann.online.page import MOST_EXAMPLES, MOST_SYMBOLS, check_room, read_page
from mann.online.sight import see_one
from mann.online.together import Glance
from mann.store import Learners, open_store
from mann.web import experiment
from mann.web.desk import Ask, Desk
from mann.web.encoding import encode_step, encode_weights
from mann.web.experiment import Material, Trial
from mann.web.explain import Writings
from mann.web.metrics import Metrics
from mann.web.requests import (
    check_label,
    read_label,
    read_picture,
    read_pixels,
    read_seconds,
    read_threshold,
    read_version,
    read_whole,
)
from mann.web.service import Service
from mann.web.sessions import Session, Sessions
from mann.web.trials import TrialStore

REPLAY_LENGTH = 50
KEPT_REPLAYS = 30  # of half a megabyte each
RANKED = 5  # labels in an answer


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `mann serve` chooses."""

    results: Path
    trials: Path
    store: str
    """Where learners are kept: a SQLite file, or redis://…"""
    most_sessions: int = 1000
    most_per_address: int = 1000
    most_learners: int = 1000
    """Of the service, beside those of browsers."""
    idle_seconds: float = 30 * 86400.0
    trial_length: int = 50
    tokens: tuple[str, ...] = ()
    """Who may use the service; none: everybody, which is for loopback alone."""
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    """Host names that a request may ask for, against DNS rebinding."""


class Playground:
    """The requests, each a method that returns what the page reads. They compute: run them in threads."""

    def __init__(
        self, learner: OneShotLearner, opponent: OneShotLearner, material: Material, settings: Settings
    ) -> None:
        self.learner, self.opponent, self.material, self.settings = learner, opponent, material, settings
        self.metrics = Metrics()
        self.learners = Learners(open_store(settings.store), learner)
        self.desk = Desk(learner, self.metrics)
        self.service = Service(self.learners, settings.most_learners, self.metrics)
        self.sessions = Sessions(
            self.learners, settings.most_sessions, settings.most_per_address, settings.idle_seconds
        )
        trace = learner.memory
        self._slots = 0 if trace is None else trace.memory.shape[0]
        self.replay = functools.lru_cache(KEPT_REPLAYS)(self._replay)
        self.store = TrialStore(settings.trials)

    def close(self) -> None:
        """After the last request: nothing is left to be done."""
        self.desk.close()
        self.learners.store.close()

    def session(self, session: Session) -> dict[str, Any]:
        side, channels = self.learner.format
        return {
            "model": Path(self.learner.model).name,
            "capacity": min(self.learner.capacity, MOST_SYMBOLS),
            "slots": self._slots,
            "side": side if channels == 1 else None,
            "coloured": channels > 1,
            **session.snapshot(),
        }

    def drawing(self, body: dict[str, Any]) -> Prepared:
        """The drawing of a request, as the network sees it; the page may have found that out already."""
        if "pixels" in body:
            return read_pixels(body, self.learner.format)
        return self.learner.prepare(read_picture(body), "the drawing")

    async def predict(self, cookie: str | None, content: dict[str, Any] | Prepared) -> dict[str, Any]:
        return await self.desk.ask(self.prepare_predictions, (cookie, content))

    def prepare_predictions(self, requests: list[tuple[str | None, Any]]) -> list[Ask | Exception]:
        """Predictions for browsers, by cookie and what was drawn."""
        sessions = self.sessions.find_all([cookie for cookie, _ in requests])
        return [
            self._prepare_prediction(session or self.sessions.guest(), content)
            for session, (_, content) in zip(sessions, requests, strict=True)
        ]

    def _prepare_prediction(self, session: Session, content: Any) -> Ask | Exception:
        try:
            picture = content if isinstance(content, Prepared) else self.drawing(content)
        except MannError as error:
            return error
        now = session.taught.now

        def finish(glances: list[Glance]) -> dict[str, Any]:
            (glance,) = glances
            chances = dict(glance.probabilities)
            guess = glance.best
            confidence, new = chances[guess], chances.pop(None)
            ranked = sorted(chances.items(), key=lambda item: -item[1])[:RANKED]
            return session.explain(now, glance) | {
                "guess": guess,
                "confidence": confidence,
                "ranked": [{"label": label, "probability": chance} for label, chance in ranked],
                "new": new,
                "memory": None if glance.memory is None else encode_weights(glance.memory, self._slots),
            }

        return Ask(now.learner, [picture.pixels], finish)

    def learn(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        learned = session.teach(self.drawing(body), read_label(body))
        self.metrics.examples.add()
        return self.session(session) | {"learned": learned}

    def forget(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        """One symbol, or everything where none is named."""
        session.forget(None if body.get("label") is None else read_label(body))
        return self.session(session)

    def rename(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        session.rename(read_label(body), read_label(body, "to"))
        return self.session(session)

    def undo(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        session.undo()
        return self.session(session)

    def unlearn(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        session.unlearn(read_whole(body, "example", 1, MOST_EXAMPLES), read_version(body))
        return self.session(session)

    def relabel(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        number = read_whole(body, "example", 1, MOST_EXAMPLES)
        session.relabel(number, read_label(body), read_version(body))
        return self.session(session)

    def set_novelty(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        session.set_novelty(read_threshold(body))
        return self.session(session)

    def examples(self, session: Session) -> dict[str, Any]:
        return session.examples()

    def save(self, session: Session) -> dict[str, Any]:
        """What was taught, as the text of a file that this page and the one without a server can open."""
        return {"text": json.dumps(session.export(), separators=(",", ":"))}

    def load(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        """Take such a file, in place of what was taught."""
        text = body.get("text")
        examples, novelty = read_page(text if isinstance(text, str) else "", MOST_EXAMPLES)
        check_room("This file", [label for label, _ in examples], len(examples))
        session.load([(check_label(label), levels) for label, levels in examples], novelty)
        return self.session(session)

    def memory(self, session: Session) -> dict[str, Any]:
        return {"steps": session.history()}

    def _replay(self, number: int) -> bytes:
        """A test episode, driven through the learner step by step, as JSON."""
        rng = np.random.default_rng(number)
        labels = rng.permutation(np.arange(1, experiment.CLASSES + 1)).tolist()
        network = self.opponent.sibling(labels=sorted(labels), seed=number, keep="nothing")
        stream = draw_pictures(self.material.bitmaps, experiment.CLASSES, REPLAY_LENGTH, rng)
        steps: list[dict[str, Any]] = []
        writings = Writings()
        for place, (picture, which) in enumerate(stream, start=1):
            label, drawing = labels[which], network.prepare(picture)
            look = network.look_and_learn(drawing, label)
            assert look.memory is not None
            instance = 1 + sum(step["label"] == str(label) for step in steps)
            because = writings.explain(place, see_one(look.memory), network.similarity)
            writings.add(place, str(label), look.memory)
            step = encode_step(place, str(label), look.best, drawing.pixels, look.memory)
            steps.append(step | {"instance": instance, "because": because})
        content = {
            "episode": number,
            "dataset": self.material.name,
            "model": Path(network.model).name,
            "steps": steps,
        }
        return json.dumps(content, separators=(",", ":")).encode()

    def begin_trial(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        def begin(participant: str, scored: bool) -> Trial:
            return Trial(
                self.store,
                self.opponent,
                self.material,
                participant=participant,
                scored=scored,
                length=self.settings.trial_length,
            )

        return self._with_dataset(session.begin_trial(begin, scored=body.get("scored") is True))

    def current_trial(self, session: Session) -> dict[str, Any]:
        return self._with_dataset(session.current_trial())

    def answer_trial(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        step = read_whole(body, "step", 1, 10_000)
        answer = read_whole(body, "answer", 1, experiment.CLASSES)
        verdict = session.answer_trial(body.get("trial"), step, answer, read_seconds(body))
        return verdict | {"next": self._with_dataset(verdict["next"])}

    def _with_dataset(self, trial: dict[str, Any]) -> dict[str, Any]:
        return trial | {"dataset": self.material.name}
