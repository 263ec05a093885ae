"""The paper's human experiment: person and network see the same pictures and answer before they are told."""

import secrets
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from mann.data import Glyphs, Omniglot
from mann.data.omniglot import CLASSES as CHARACTERS
from mann.data.omniglot import TRAIN_CLASSES, is_at_hand
from mann.data.pictures import draw_pictures
from mann.errors import MannError
from mann.metrics import INSTANCES
from mann.online import OneShotLearner
from mann.paper import paper_human
from mann.web.encoding import encode_levels
from mann.web.trials import Answer, TrialInfo, TrialStore

MODEL = "omniglot-5"  # five one-hot labels, as the participants had five digits
CLASSES = 5
GLYPHS = 200  # classes of them; the model was trained on none


class Material(NamedTuple):
    """Drawings of classes that the network was not trained on."""

    name: str  # for people
    dataset: str
    bitmaps: UInt8[np.ndarray, "classes drawings 105 105"]


def load_material() -> Material:
    """The test classes of Omniglot if it is on this machine, else built-in glyphs."""
    if is_at_hand():
        bitmaps = Omniglot().load().images[TRAIN_CLASSES:]
        return Material(f"Omniglot, classes {TRAIN_CLASSES + 1}–{CHARACTERS}", "omniglot", bitmaps)
    bitmaps = Glyphs(classes=GLYPHS).load().images
    return Material("built-in glyphs (Omniglot is not on this machine)", "glyphs", bitmaps)


class Trial:
    """One participant, one sequence. Pictures come one after the other and never return."""

    def __init__(
        self,
        store: TrialStore,
        network: OneShotLearner,
        material: Material,
        *,
        participant: str,
        scored: bool,
        length: int,
    ) -> None:
        rng = np.random.default_rng(secrets.randbits(128))
        self.info = TrialInfo(
            secrets.token_hex(8), participant, scored, material.dataset, network.model, CLASSES, length
        )
        self.answers: list[Answer] = []
        self._store = store
        self._network = network.sibling(labels=range(1, CLASSES + 1), keep="nothing")
        labels = rng.permutation(np.arange(1, CLASSES + 1)).tolist()
        stream = draw_pictures(material.bitmaps, CLASSES, length, rng)
        self._stream = [(picture, labels[which]) for picture, which in stream]
        store.begin(self.info)

    @property
    def finished(self) -> bool:
        return len(self.answers) == self.info.length

    @property
    def picture(self) -> Image.Image | None:
        """The picture that waits for an answer."""
        return None if self.finished else self.picture_at(len(self.answers) + 1)

    def picture_at(self, step: int) -> Image.Image:
        return self._stream[step - 1][0]

    def seen_at(self, step: int) -> Float32[np.ndarray, "pixels"]:
        """What the network saw at a step."""
        return self._network.prepare(self.picture_at(step)).pixels

    def answer(self, step: int, answer: int, seconds: float) -> Answer:
        """Take the participant's answer, let the network answer, then tell it the label."""
        if step != len(self.answers) + 1 or self.finished:
            raise MannError("This picture has been answered already: go on with the one that is shown.")
        picture, label = self._stream[step - 1]
        drawing = self._network.prepare(picture)
        instance = 1 + sum(earlier.label == label for earlier in self.answers)
        guess = self._network.predict_one(drawing)
        assert isinstance(guess, int)  # every label was announced, so nothing is new
        entry = Answer(step, instance, label, answer, guess, seconds)
        self._store.add(self.info.id, entry, last=step == self.info.length)
        self._network.learn_one(drawing, label)  # after the answer is kept: otherwise it is given anew
        self.answers.append(entry)
        return entry


def compare(trial: Trial) -> dict[str, Any]:
    """Person and network: accuracy by instance in per cent, beside the paper's people, and every answer."""
    answers = trial.answers
    return {
        "instances": list(_instances()),
        "you": [_accuracy([a.answer == a.label for a in answers if a.instance == i]) for i in _instances()],
        "network": [
            _accuracy([a.network == a.label for a in answers if a.instance == i]) for i in _instances()
        ],
        "paper": [paper_human(CLASSES).get(i) for i in _instances()],
        "overall": {
            "you": _accuracy([a.answer == a.label for a in answers]),
            "network": _accuracy([a.network == a.label for a in answers]),
        },
        "pictures": [
            {
                "step": a.step,
                "instance": a.instance,
                "label": a.label,
                "you": a.answer,
                "network": a.network,
                "picture": encode_levels(trial.seen_at(a.step)),
            }
            for a in answers
        ],
    }


def _instances() -> range:
    return range(1, INSTANCES + 1)


def _accuracy(right: list[bool]) -> float | None:
    return round(100 * sum(right) / len(right), 1) if right else None
