"""What several processes agree on, with the other one played by the test; test_processes.py has real ones."""

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from mann.errors import MannError
from mann.training import distributed


@pytest.fixture
def partner(monkeypatch):
    """One more process; what it says whenever all are asked is in `flag`."""

    class Partner:
        flag = False

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        multihost_utils, "process_allgather", lambda flag: np.array([bool(flag), Partner.flag])
    )
    return Partner


@pytest.mark.parametrize(("batch", "devices"), [(16, 2), (2, 2), (3, 1), (1, 1)])
def test_one_process_takes_as_many_devices_as_share_the_batch_evenly(batch, devices):
    mesh = distributed.make_mesh(batch)
    assert mesh.devices.tolist() == jax.devices()[:devices]
    assert distributed.local_mesh(mesh) == mesh


def test_several_processes_refuse_a_batch_that_cannot_be_shared_evenly(partner):
    with pytest.raises(MannError, match=r"batch of 5 shares cannot be split evenly over 2 devices.*multiple"):
        distributed.make_mesh(5)
    assert distributed.make_mesh(6).size == 2


def test_a_flag_of_any_process_counts_for_all(partner):
    assert not distributed.anywhere(False)
    assert distributed.anywhere(True)
    partner.flag = True
    assert distributed.anywhere(False)


@pytest.mark.parametrize("alone", [True, False])
def test_a_failure_here_is_raised_as_it_is(alone, request):
    if not alone:
        request.getfixturevalue("partner")
    with pytest.raises(MannError, match="The folder is full"), distributed.together():
        raise MannError("The folder is full.")


def test_a_failure_there_stops_this_process_too(partner):
    done = []
    with distributed.together():
        done.append(1)
    partner.flag = True
    with (
        pytest.raises(MannError, match="Another process of this run stopped: see its message"),
        distributed.together(),
    ):
        done.append(2)
    assert done == [1, 2]


def test_a_bug_is_not_waited_for(partner):
    """Only a mistake of the user is shared; all else ends this process, which its partners notice."""
    with pytest.raises(ZeroDivisionError), distributed.together():
        1 / 0  # noqa: B018
