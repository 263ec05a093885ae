"""A data set of one's own, in colour: flags of three stripes, each class with its own three colours.

mann train examples/my_data.py:config --run runs/flags
mann eval runs/flags --use examples/my_data.py
"""

import dataclasses
from typing import ClassVar

import numpy as np

import mann


@dataclasses.dataclass(frozen=True)
class Flags(mann.DataConfig, kind="flags"):
    channels: ClassVar[int] = 3  # red, green, blue
    side: int = 12
    """Pixels per side of what the network sees."""
    classes: int = 200
    drawings: int = 10
    seed: int = 0

    def read(self):
        """Pictures of 24×24 pixels: stripes of unsteady width, in faded light."""
        rng = np.random.default_rng(self.seed)
        images = np.zeros((self.classes, self.drawings, 24, 24, 3), np.uint8)
        for number in range(self.classes):
            colours = rng.integers(0, 256, (3, 3))
            for drawing in range(self.drawings):
                first, second = 8 + rng.integers(-2, 3), 16 + rng.integers(-2, 3)
                stripes = np.searchsorted([first, second], np.arange(24), side="right")
                light = rng.uniform(0.7, 1.0)
                images[number, drawing] = (light * colours[stripes]).astype(np.uint8)[None]
        counts = np.full(self.classes, self.drawings)
        names = tuple(f"flag {number + 1}" for number in range(self.classes))
        return mann.ImageSet("flags", images, counts, names, ink=255)


config = mann.Config(
    task=mann.Classification(classes=5),
    data=Flags(validation=20),
    updates=2000,
    evaluate_every=500,
    averaging=0.99,
)
