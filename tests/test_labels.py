"""Label codes on the device and on the host, against words counted by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.errors import MannError
from mann.labels import ALPHABET, STRINGS, LabelCode, one_hot

CODES = [STRINGS, one_hot(1), one_hot(7), LabelCode(letters=2, alphabet=3), LabelCode(letters=4, alphabet=2)]


def words(code):
    """Every label as a tuple of letters, in the order of the dictionary: that is the order of the codes."""
    return list(itertools.product(range(code.alphabet), repeat=code.letters))


def by_hand(code, numbers):
    encoded = np.zeros((len(numbers), code.letters * code.alphabet), np.float32)
    for row, number in enumerate(numbers):
        for place, letter in enumerate(words(code)[number]):
            encoded[row, place * code.alphabet + letter] = 1
    return encoded


@pytest.mark.parametrize("code", CODES, ids=str)
def test_labels_are_the_same_on_the_device_on_the_host_and_by_hand(code):
    numbers = list(range(code.capacity))
    expected = by_hand(code, numbers)
    np.testing.assert_array_equal(code.encode(jnp.asarray(numbers, jnp.int32)), expected)
    np.testing.assert_array_equal(jax.jit(code.encode)(jnp.asarray(numbers, jnp.int32)), expected)
    on_host = code.encode_on_host(numbers)
    assert on_host.dtype == np.float32
    np.testing.assert_array_equal(on_host, expected)


@pytest.mark.parametrize("code", CODES, ids=str)
def test_decoding_is_the_inverse_for_every_label_and_any_axes_before(code):
    numbers = np.arange(code.capacity)
    encoded = by_hand(code, numbers)
    np.testing.assert_array_equal(code.decode(encoded), numbers)
    np.testing.assert_array_equal(code.decode(jnp.asarray(encoded)), numbers)
    np.testing.assert_array_equal(code.decode(encoded[None, :, None]), numbers[None, :, None])
    assert int(code.decode(encoded[-1])) == code.capacity - 1


@pytest.mark.parametrize("code", CODES, ids=str)
def test_scores_are_decoded_letter_by_letter(code):
    scores = np.random.default_rng(0).normal(size=(20, code.size)).astype(np.float32)
    for row, number in zip(scores, code.decode(scores), strict=True):
        letters = [int(np.argmax(part)) for part in np.split(row, code.letters)]
        assert words(code)[int(number)] == tuple(letters)


def test_splitting_gives_a_row_for_each_letter():
    values = np.arange(2 * 3 * 25, dtype=np.float32).reshape(2, 3, 25)
    np.testing.assert_array_equal(STRINGS.split(jnp.asarray(values)), values.reshape(2, 3, 5, 5))


def test_no_labels_at_all_are_an_empty_array():
    assert STRINGS.encode_on_host([]).shape == (0, 25)
    assert STRINGS.encode(jnp.zeros(0, jnp.int32)).shape == (0, 25)


@pytest.mark.parametrize(("code", "size", "capacity"), [(STRINGS, 25, 5**5), (one_hot(15), 15, 15)])
def test_size_and_capacity_are_those_of_the_paper(code, size, capacity):
    assert (code.size, code.capacity) == (size, capacity)


def test_words_are_named_by_their_letters_and_one_hot_labels_from_1():
    names = [STRINGS.name(number) for number in range(3125)]
    assert names == ["".join(word) for word in itertools.product("abcde", repeat=5)]
    assert [one_hot(30).name(number) for number in range(30)] == [str(number + 1) for number in range(30)]
    assert LabelCode(letters=2, alphabet=26).name(26 * 26 - 1) == "zz"
    assert len(ALPHABET) == 26


@pytest.mark.parametrize("code", CODES, ids=str)
def test_every_label_has_a_name_of_its_own(code):
    assert len({code.name(number) for number in range(code.capacity)}) == code.capacity


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (-1, 5)])
def test_code_without_letters_or_alphabet_is_refused(sizes):
    with pytest.raises(MannError, match="at least 1 letter and an alphabet of at least 1 symbol"):
        LabelCode(*sizes)
