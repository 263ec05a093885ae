"""What the site has from outside docs/: figures, pages, and the comments behind fields as their descriptions."""

import re
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the figures of the experiments, and the pages at the root of the repository."""
    for figure in sorted(ROOT.glob("results/*/figures/*.png")):
        uri = figure.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(figure)))
    for uri, name in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text().replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links that lead out of docs/ to the figures stay in the site, which has them one folder further down."""
    return re.sub(r"\]\(\.\./((?:\.\./)*results/)", r"](\1", markdown)


class FieldComments(griffe.Extension):
    """The comment behind a field of a class describes it, unless a docstring below it does."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        if attr.docstring is None and attr.lineno and isinstance(attr.parent, griffe.Class):
            comment = re.search(r"  # (?!type:|noqa)(.+)$", attr.lines[-1])
            if comment:
                attr.docstring = griffe.Docstring(comment[1], lineno=attr.lineno, parent=attr)
