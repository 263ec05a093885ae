"""The one exception that means "the user can fix this"."""


class MannError(ValueError):
    """A mistake in what was asked for: says what was wrong and what to change, in one or two sentences.

    The command line prints the message alone and exits with code 2; anything else that is raised is a bug of
    ours and keeps its traceback.
    """
