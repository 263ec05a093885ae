"""Episodes that cannot fit into memory are refused before anything is compiled."""

import os

import pytest

from mann.cli import main
from mann.data.images import PictureFormat
from mann.errors import MannError
from mann.tasks import Classification, Regression
from mann.training.budget import bytes_available, bytes_needed, check_memory
from tests.networks import network

GREY = PictureFormat()


def test_what_is_needed_grows_with_the_square_of_a_functions_length():
    config = network()
    long, twice = (bytes_needed(Regression(length=n), config, GREY, 16, False) for n in (20_000, 40_000))
    steps = 20_000 * (1 + 800 + 200 + 160)
    state = 200 + 200 + 160 + 128 * 40 + 2 * 4 * 128 + 128
    controller = 800 * (1 + 1 + 200 + 160) + 800
    heads, readout = 200 * (2 * 160 + 2 * 4) + 2 * 160 + 2 * 4, (200 + 160) * 2 + 2
    assert long == 4 * (16 * (2 * 20_000**2 + steps + state) + controller + heads + readout)
    assert 3.9 < twice / long < 4
    pictures = bytes_needed(Classification(classes=5), network(memory="none"), GREY, 16, False)
    weights = 800 * (400 + 5 + 200) + 800 + 200 * 5 + 5
    assert pictures == 4 * (16 * (50 * (400 + 800 + 200) + 400) + weights)


def test_training_holds_what_the_recurrence_keeps_of_every_step(monkeypatch):
    """65 536 slots: the scan keeps the whole memory of each step, the kernel only the weights of the heads."""
    task, config = Classification(classes=5), network(slots=65_536)
    kernel = bytes_needed(task, config, GREY, 16, True)
    monkeypatch.setenv("MANN_NATIVE", "0")
    scan = bytes_needed(task, config, GREY, 16, True)
    memory = 4 * 16 * 50 * 65_536 * 40
    assert memory < scan < 1.4 * memory
    weights = 4 * 16 * 50 * 65_536 * 4
    assert weights < kernel <= scan


@pytest.mark.parametrize("field", ["slots", "hidden", "width", "heads"])
def test_a_model_that_cannot_fit_is_refused(field):
    with pytest.raises(MannError, match="smaller"):
        check_memory(Classification(), network(**{"slots": 2**24, field: 2**24}), GREY, 16)


def test_the_memory_of_the_machine_is_that_of_the_operating_system():
    assert bytes_available() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    check_memory(Regression(), network(), GREY, 16)
    with pytest.raises(MannError, match="16 episodes of 10000000 steps need at least"):
        check_memory(Regression(length=10_000_000), network(), GREY, 16)


def test_a_run_that_cannot_fit_says_so_and_leaves_nothing(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "gp-1d", "--task.length", "10000000", "--run", str(folder)]) == 2
    assert "use shorter episodes" in capsys.readouterr().err
    assert not folder.exists()
