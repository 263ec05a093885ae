"""Episodes that cannot fit into memory are refused before anything is compiled."""

import os

import pytest

from mann.cli import main
from mann.episodes import Classification, Regression
from mann.errors import MannError
from mann.models import ModelConfig
from mann.room import bytes_available, bytes_needed, check_room


def test_what_is_needed_grows_with_the_square_of_a_functions_length():
    long, twice = (bytes_needed(Regression(length=n), ModelConfig(), 16) for n in (20_000, 40_000))
    assert long == pytest.approx(4 * 16 * (2 * 20_000**2 + 20_000 * (1 + 800 + 200 + 160)))
    assert 3.9 < twice / long < 4
    pictures = bytes_needed(Classification(classes=5), ModelConfig(memory="none"), 16)
    assert pictures == 4 * 16 * 50 * (400 + 800 + 200)


def test_the_memory_of_the_machine_is_that_of_the_operating_system():
    assert bytes_available() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    check_room(Regression(), ModelConfig(), 16)
    with pytest.raises(MannError, match="16 episodes of 10000000 steps need at least"):
        check_room(Regression(length=10_000_000), ModelConfig(), 16)


def test_a_run_that_cannot_fit_says_so_and_leaves_nothing(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "gp-1d", "--task.length", "10000000", "--run", str(folder)]) == 2
    assert "use shorter episodes" in capsys.readouterr().err
    assert not folder.exists()
