import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from mann.baselines.knn import is_correct, nearest_before, raw_pixels, tally_neighbours
from mann.data import Glyphs
from mann.data.render import prepare
from mann.metrics import InstanceCounts
from mann.tasks import Classification


@pytest.fixture(scope="module")
def drawings(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        return prepare(Glyphs(classes=40).load())


def test_the_nearest_earlier_sample_is_scikit_learns(drawings):
    task = Classification(classes=4, length=30)
    episode = task.draw(jax.random.key(1), drawings)
    features = np.asarray(episode.inputs)
    correct = np.asarray(is_correct(episode, episode.inputs, 4, jax.random.key(2)))
    classes = np.asarray(episode.classes)
    for step in range(1, 30):
        theirs = KNeighborsClassifier(n_neighbors=1).fit(features[:step], classes[:step])
        assert correct[step] == (theirs.predict(features[step : step + 1])[0] == classes[step]), step


def test_only_earlier_samples_are_neighbours():
    features = jnp.array([[0.0], [5.0], [5.1], [0.1], [5.0]])
    assert nearest_before(features)[1:].tolist() == [0, 1, 0, 1]


def test_first_instances_are_right_once_in_n_squared(drawings):
    task = Classification(classes=5, length=10)
    keys = jax.random.split(jax.random.key(0), 4000)
    counts: InstanceCounts = jax.jit(lambda k, d: tally_neighbours(task, raw_pixels, k, d))(keys, drawings)
    seen = np.asarray(counts.seen[:, 0])
    # Every class shown has one first instance, and only that of the first step can be right: 1/N of the time.
    expected = 1 / 5 / seen.mean()
    measured = counts.correct[:, 0].sum() / seen.sum()
    assert measured == pytest.approx(expected, abs=float(4 * np.sqrt(expected / seen.sum())))
    assert counts.correct[:, 1].sum() / counts.seen[:, 1].sum() > 0.3  # far better than 1/5 from then on
