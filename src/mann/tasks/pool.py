"""Encode once, unroll many: episodes of an update that share their pictures.

What an encoder makes of a picture depends neither on its label nor on what came before it. So several episodes of
one update may draw their classes from one pool of pictures, each with an order and with labels of its own, and
every picture is encoded once; its gradient sums over the episodes.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mann.data.render import (
    Drawings,
    Transform,
    random_bend,
    random_distortion,
    random_transform,
    render,
)
from mann.episodes import choose_below, sample_distinct
from mann.errors import MannError, check_range
from mann.tasks.alphabets import Alphabets, choose_classes

MOST = 2**16
MOST_DISTORTED = 0.3  # past it, drawings may collapse to a line
MOST_BENT = 0.1  # of the side; past it, a drawing may fold over itself


@dataclasses.dataclass(frozen=True)
class PoolConfig:
    """Pictures that episodes share while training; they are tested on pictures of their own in any case.

    In an episode from a pool every drawing comes once, so that it ends when those of its classes are used up.

    Raises:
        MannError: for sizes that no pool can have.
    """

    episodes: int = 0
    """Episodes that share a pool: the batch of every device must be a multiple of it. 0 means that none do."""
    classes: int = 64
    """Classes in a pool; the episode's are some of them."""
    drawings: int = 6
    """Drawings of each class in a pool."""
    distortion: float = 0.0
    """How far each drawing is stretched and sheared, besides the usual augmentation; those of tests are not."""
    bend: float = 0.0
    """How far its parts move against each other, in shares of its side; those of tests do not."""

    def __post_init__(self) -> None:
        check_range("The episodes that share a pool", self.episodes, 0, MOST)
        check_range("The classes of a pool", self.classes, 1, MOST)
        check_range("The drawings per class of a pool", self.drawings, 1, MOST)
        check_range("The distortion of a pool", self.distortion, 0.0, MOST_DISTORTED)
        check_range("The bend of a pool", self.bend, 0.0, MOST_BENT)

    def check_batch(self, episodes: int) -> None:
        """Refuse a number of episodes that cannot share pools evenly.

        Raises:
            MannError: for such a number.
        """
        if episodes % self.episodes:
            raise MannError(
                f"{self.episodes} episodes share a pool, but a device has {episodes} of the batch: make the batch "
                "a multiple of task.pool.episodes on every device."
            )

    def draw(
        self, key: PRNGKeyArray, source: Drawings, augment: bool, alphabets: Alphabets = "across"
    ) -> tuple[Float[Array, "pictures pixels"], Int[Array, "classes"]]:
        """The pictures of one pool, class by class, and the first class of each one's alphabet (`Choice.alike`).

        Args:
            key: random key.
            source: the data set.
            augment: rotate, shift and turn, as in other episodes.
            alphabets: where its classes come from.

        Raises:
            MannError: if the data set has fewer classes, or fewer drawings of each.
        """
        population, per_class = source.grids.shape[:2]
        if population < self.classes or per_class < self.drawings:
            raise MannError(
                f"A pool of {self.classes} classes with {self.drawings} drawings each cannot be drawn from "
                f"{population} classes of {per_class}: make it smaller."
            )
        keys = jax.random.split(key, 4)
        if alphabets == "across" or source.alphabets is None:
            chosen = sample_distinct(jax.random.uniform(keys[0], (self.classes,)), population)
            alike = jnp.arange(self.classes, dtype=jnp.int32)
        else:
            chosen, alike = choose_classes(keys[0], source.alphabets, self.classes, alphabets)
        priority = jax.random.uniform(keys[1], (self.classes, per_class))
        available = source.counts[chosen][:, None]
        order = jnp.argsort(jnp.where(jnp.arange(per_class)[None] < available, priority, 2.0), axis=1)
        turns = jnp.arange(self.drawings)[None] % available  # a class with few drawings shows them again
        drawings = jnp.take_along_axis(order, turns, axis=1).reshape(-1)
        pictures = self.classes * self.drawings
        rotation, shift = random_transform(jax.random.uniform(keys[2], (pictures, 3)), source.format.side)
        quarter = choose_below(jax.random.uniform(keys[3], (self.classes,)), 4)
        quarter = jnp.repeat(quarter[alike], self.drawings)
        distortion = bend = None
        if not augment:
            rotation, shift, quarter = (jnp.zeros_like(x) for x in (rotation, shift, quarter))
        if augment and self.distortion:
            distortion = random_distortion(jax.random.fold_in(key, 0), pictures, self.distortion)
        if augment and self.bend:
            bend = random_bend(jax.random.fold_in(key, 1), pictures, self.bend, source.format.side)
        classes = jnp.repeat(chosen, self.drawings)
        transform = Transform(rotation, shift, quarter, distortion, bend)
        return render(source, classes, drawings, transform), alike

    def arrange(
        self, key: PRNGKeyArray, alike: Int[Array, "classes"], active: int | Int[Array, ""], steps: int
    ) -> tuple[Int[Array, "time"], Int[Array, "time"]]:
        """An episode of some classes of a pool, of as few alphabets as can be, in random order.

        Args:
            key: random key.
            alike: what `draw` gave: classes that are alike come together.
            active: classes in the episode.
            steps: its length; where it is longer than the classes' drawings, the rest is padding.

        Returns:
            Which picture of the pool each step shows, and which of the episode's classes that is.
        """
        class_key, step_key = jax.random.split(key)
        order = choose_classes(class_key, alike, self.classes, "within").classes
        ranks = jnp.argsort(order)  # below `active`: in the episode
        of_picture = jnp.repeat(ranks, self.drawings)
        priority = jax.random.uniform(step_key, of_picture.shape)
        shuffled = jnp.argsort(jnp.where(of_picture < active, priority, 2.0))
        places = jnp.resize(shuffled, (steps,))  # past the end of the pool: padding
        return places.astype(jnp.int32), of_picture[places].astype(jnp.int32)
