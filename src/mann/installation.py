"""What is installed, and how to install what is missing."""

from importlib import metadata

DISTRIBUTION = "mann-oneshot"  # on the package index, where `mann` is somebody else's


def version(library: str = "mann") -> str:
    """The version of a library as installed, `mann` among them; "unknown" for a source tree that is not."""
    try:
        return metadata.version(DISTRIBUTION if library == "mann" else library)
    except metadata.PackageNotFoundError:
        return "unknown"


def install_command(extra: str) -> str:
    """How to add an extra, for people: after publishing, and from a clone."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a clone: pip install '.[{extra}]')"
