"""The one exception that means "the user can fix this"."""


class MannError(Exception):
    """A mistake in what was asked for: says what was wrong and what to change, in one or two sentences.

    The command line prints the message alone and exits with code 2.
    """


def check_range(name: str, value: int | float, least: int | float, most: int | float) -> None:
    """Refuse a number that cannot mean anything here; NaN is in no range."""
    if not value >= least:
        raise MannError(f"{name} must be at least {least}, not {value}.")
    if value > most:
        raise MannError(f"{name} must be at most {most}, not {value}.")


def check_seed(seed: int) -> None:
    """Seeds are what JAX and NumPy both take."""
    if not 0 <= seed < 2**31:
        raise MannError(f"The seed must lie between 0 and 2³¹ − 1, not {seed}.")
