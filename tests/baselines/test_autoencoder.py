import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.baselines.autoencoder import Autoencoder, AutoencoderConfig, reconstruction_loss, train_autoencoder
from mann.data import Glyphs
from mann.data.render import prepare
from mann.errors import MannError

SMALL = AutoencoderConfig(hidden=16, bottleneck=4, images=640, batch=16, learning_rate=3e-3, save_every=15)


@pytest.fixture(scope="module")
def drawings(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        return prepare(Glyphs(classes=40).load())


def test_it_has_the_papers_sizes():
    model = Autoencoder(AutoencoderConfig(), 400, key=jax.random.key(0))
    shapes = [layer.weight.shape for layer in (*model.encoder, *model.decoder)]
    assert shapes == [(400, 200), (200, 200), (200, 32), (32, 200), (200, 200), (200, 400)]


def test_it_is_the_network_of_plain_numpy():
    model = Autoencoder(SMALL, 400, key=jax.random.key(0))
    pixels = np.random.default_rng(0).uniform(size=(3, 400)).astype(np.float32)
    values = pixels
    for i, layer in enumerate((*model.encoder, *model.decoder)):
        values = values @ np.asarray(layer.weight) + np.asarray(layer.bias)
        if i in (0, 1, 3, 4):  # leaky ReLU, but not at the bottleneck and at the output
            values = np.where(values > 0, values, 0.01 * values)
        if i == 2:
            np.testing.assert_allclose(model.encode(jnp.asarray(pixels)), values, rtol=1e-4, atol=1e-5)
    expected = np.mean(np.log1p(np.exp(values)) - pixels * values)
    assert reconstruction_loss(model, jnp.asarray(pixels)) == pytest.approx(expected, rel=1e-5)


def test_training_lowers_the_loss_and_resumes_exactly(drawings, tmp_path):
    losses = []
    path = tmp_path / "whole.safetensors"
    whole = train_autoencoder(SMALL, drawings, path, lambda done, total, loss: losses.append((done, loss)))
    assert [done for done, _ in losses] == [15, 30, 40]
    assert losses[-1][1] < 0.8 * losses[0][1]

    class Stop(Exception):
        pass

    def stop(done, total, loss):
        raise Stop

    with pytest.raises(Stop):
        train_autoencoder(SMALL, drawings, tmp_path / "parts.safetensors", stop)
    parts = train_autoencoder(SMALL, drawings, tmp_path / "parts.safetensors")
    for ours, theirs in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    other = dataclasses.replace(SMALL, batch=8)
    with pytest.raises(MannError, match="another configuration"):
        train_autoencoder(other, drawings, path)
