"""Exact versions from what `pip install --dry-run --report` would install; `make constraints` runs this."""

import json
import re
import sys
from pathlib import Path
from typing import Any

HEADER = """\
# Exact versions of everything that `make install` installs; `make constraints` writes this file.
# For a package of your own use the ranges in pyproject.toml.
"""


def constraints(report: dict[str, Any], own: str = "mann-oneshot") -> str:
    """One line per distribution, without ours, without local versions such as +cpu, and without addresses."""
    lines = []
    for item in report["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        if name != own:
            lines.append(f"{name}=={item['metadata']['version'].partition('+')[0]}\n")
    return HEADER + "".join(sorted(lines))


if __name__ == "__main__":
    print(constraints(json.loads(Path(sys.argv[1]).read_text())), end="")
