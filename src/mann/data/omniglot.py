"""Omniglot (Lake et al. 2015): 1623 handwritten characters, 20 drawings of each, 105×105 pixels, one bit."""

import contextlib
import hashlib
import io
import json
import os
import re
import struct
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pooch
from jaxtyping import UInt8
from PIL import Image
from tqdm import tqdm

from mann.data.cache import digest, load_bitmaps, store_bitmaps
from mann.data.images import SIDE, ImageSet
from mann.errors import MannError
from mann.files import cache_dir, write_atomically

CLASSES, DRAWINGS = 1623, 20
TRAIN_CLASSES = 1200  # class ids 1–1200 train, 1201–1623 test, as in the paper
BACKGROUND_CLASSES = 964  # of Lake's 30 background alphabets; the ids after them are of his 20 for evaluation
ROAMING_WATCHED = ("Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)")
ROAMING_TESTED = (
    "Gurmukhi",
    "Kannada",
    "Keble",
    "Malayalam",
    "Manipuri",
    "Mongolian",
    "Old_Church_Slavonic_(Cyrillic)",
    "Oriya",
    "Sylheti",
    "Syriac_(Serto)",
    "Tengwar",
    "Tibetan",
    "ULOG",
)  # alphabets of the published split of RoamingOmniglot (Ren et al. 2021); the other 32 train
ROAMING_CLASSES = (987, 172)  # of those that train and that watch the training
SHA256 = "b3a28d0e34c4daf19fe5d04f6f68f58a2de755709c5a8715faf93a512b0a81e7"  # of the whole uint8 array

URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
MD5 = {  # of the two official archives; those a user provides may have been zipped again
    "images_background": "68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation": "6b91aef0f799c5bb55b94e3f2daec811",
}
CONTENT = (
    "images_background.zip and images_evaluation.zip, or the unpacked folders images_background and "
    "images_evaluation"
)

_DRAWING = re.compile(r"(\d{4})_(\d{2})\.png")  # class id and drawing, both counted from 1
_MEMBER_BYTES = 1_000_000  # the largest real drawing has about 500 bytes
_PNG_105 = struct.pack(">II", SIDE, SIDE)  # width and height, at bytes 16–23 of a PNG file

# What zipfile and PIL raise on files that are damaged, encrypted, or not what their names say.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    SyntaxError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


def load_omniglot(path: str | Path | None = None) -> ImageSet:
    """All 1623 classes in the order of their ids: images (1623, 20, 105, 105), ink = 1.

    Read from `path`, else from `$MANN_DATA`, else from the user's cache folder, else downloaded. A folder
    holds the two official archives or the two folders unpacked from them, itself or in a sub folder named
    "omniglot". The pixels are verified by SHA-256 at every load; a packed copy of them is kept in the cache
    folder, so that only the first load decodes the drawings one by one.
    """
    source = path if path is not None else os.environ.get("MANN_DATA") or None
    if source is None:
        cached = _recall(fingerprint=None)
        return _read(_locate(cache_dir()) or _download(_cache())) if cached is None else cached
    folder = Path(source).expanduser()
    try:
        sources = _locate(folder)
        problem = "holds no Omniglot" if folder.exists() else "does not exist"
    except OSError as error:
        sources, problem = None, f"cannot be read ({error.strerror})"
    if sources is None:
        origin = "" if path is not None else " (from the environment variable MANN_DATA)"
        raise MannError(
            f"The folder {folder}{origin} {problem}: it should contain {CONTENT}, itself or in a sub folder "
            "named omniglot."
        )
    # A damaged cache does not matter here: the source can be read again, which also repairs the cache.
    with contextlib.suppress(MannError):
        if (cached := _recall(_fingerprint(sources))) is not None:
            return cached
    return _read(sources)


def in_roaming_order(images: ImageSet) -> ImageSet:
    """The classes of Ren's training alphabets first, then those that watch the training, then those that test."""
    group = [(name in ROAMING_WATCHED) + 2 * (name in ROAMING_TESTED) for name in images.alphabets]
    return images.reordered(np.argsort(group, kind="stable"))


def is_at_hand() -> bool:
    """Whether `load_omniglot` will not have to download: `$MANN_DATA` is set, or the cache holds the data set."""
    if os.environ.get("MANN_DATA") or (_cache() / "packed.bits").is_file():
        return True
    return _locate(cache_dir()) is not None


def _locate(folder: Path) -> list[Path] | None:
    """The background and the evaluation set, each a zip or a folder; None unless both are there."""
    for place in (folder, folder / "omniglot"):
        sources = []
        for name in MD5:
            if (archive := place / f"{name}.zip").is_file():
                sources.append(archive)
            elif (place / name).is_dir():
                sources.append(place / name)
        if len(sources) == len(MD5):
            return sources
    return None


def _download(folder: Path) -> list[Path]:
    files = []
    try:
        for name, md5 in MD5.items():
            url, bar = f"{URL}{name}.zip", sys.stderr.isatty()
            files.append(pooch.retrieve(url, f"md5:{md5}", f"{name}.zip", folder, progressbar=bar))
    except (OSError, ValueError) as error:
        reason = textwrap.shorten(str(error), 160) or type(error).__name__
        raise MannError(
            f"Omniglot is not on this machine and could not be downloaded from {URL} ({reason}). Pass the "
            f"path of a folder that contains {CONTENT}, set MANN_DATA to it, put the two zips into {folder}, "
            "or allow the download."
        ) from None
    return [Path(file) for file in files]


def _files(source: Path) -> Iterator[Path]:
    """The archive itself, or the drawings in a folder, in a fixed order."""
    if source.is_file():
        yield source
    else:
        yield from sorted(file for file in source.rglob("*.png") if _DRAWING.fullmatch(file.name))


def _fingerprint(sources: list[Path]) -> str:
    """Names, sizes and times of all files: cheap to take, and any ordinary change of a file changes it."""
    sha = hashlib.sha256()
    try:
        for source in sources:
            for file in _files(source.resolve()):
                status = file.stat()
                sha.update(
                    f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape")
                )
    except OSError as error:
        raise MannError(f"{source} cannot be read: {error}.") from None
    return sha.hexdigest()


def _members(source: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every drawing, never more than `_MEMBER_BYTES` of it and never unpacked to disk."""
    if source.is_dir():
        for file in _files(source):
            with file.open("rb") as stream:
                yield file.relative_to(source).as_posix(), stream.read(_MEMBER_BYTES + 1)
        return
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            if _DRAWING.fullmatch(member.filename.rpartition("/")[2]):
                # Bounded by read(), as the size in the header may lie.
                with archive.open(member) as stream:
                    yield member.filename, stream.read(_MEMBER_BYTES + 1)


def _decode(content: bytes) -> UInt8[np.ndarray, "105 105"]:
    if len(content) > _MEMBER_BYTES:
        raise ValueError(f"larger than {_MEMBER_BYTES} bytes")
    if content[16:24] != _PNG_105:  # before PIL allocates anything
        raise ValueError(f"not a PNG of {SIDE}×{SIDE} pixels")
    with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
        # By way of grey levels: three times as fast as numpy's conversion of PIL's bitmaps.
        return (np.asarray(image.convert("L")) < 128).view(np.uint8)


def _read(sources: list[Path]) -> ImageSet:
    """Decode all drawings, verify them, and keep a packed copy in the cache."""
    images = np.zeros((CLASSES, DRAWINGS, SIDE, SIDE), np.uint8)
    seen = np.zeros((CLASSES, DRAWINGS), bool)
    labels = [""] * CLASSES
    with tqdm(total=seen.size, desc="Reading Omniglot", delay=2, disable=None, leave=False) as progress:
        for source in sources:
            name = ""
            try:
                for name, content in _members(source):
                    parts = name.split("/")
                    character, drawing = (int(digits) - 1 for digits in parts[-1][:-4].split("_"))
                    if not (0 <= character < CLASSES and 0 <= drawing < DRAWINGS):
                        raise ValueError("no such drawing in Omniglot")
                    if seen[character, drawing]:
                        raise ValueError("the same drawing twice")
                    images[character, drawing] = _decode(content)
                    seen[character, drawing] = True
                    labels[character] = "/".join(parts[-3:-1])
                    progress.update()
            except _DAMAGE as error:
                where = f"{source} (at {name})" if name else str(source)
                raise MannError(
                    f"{where} is not a sound copy of Omniglot: {error}. Get it from {URL}."
                ) from None
    both = " and ".join(map(str, sources))
    if not seen.all():
        raise MannError(f"{both} hold {seen.sum()} of Omniglot's {seen.size} drawings: get them from {URL}.")
    if digest(images) != SHA256:
        raise MannError(f"{both} differ from Omniglot (wrong SHA-256 of the pixels): get them from {URL}.")
    store_bitmaps(_cache() / "packed.bits", images)
    index = {"source": _fingerprint(sources), "labels": labels}
    with contextlib.suppress(OSError):  # as in store_bitmaps: without a cache, loading is only slower
        write_atomically(_cache() / "packed.json", json.dumps(index).encode())
    return _image_set(images, labels)


def _recall(fingerprint: str | None) -> ImageSet | None:
    """The packed copy; None if there is none, or if one is asked for by fingerprint and it has another."""
    bits, index = _cache() / "packed.bits", _cache() / "packed.json"
    if not (bits.is_file() and index.is_file()):
        return None
    try:
        about = json.loads(index.read_bytes())
        source, labels = about["source"], [str(label) for label in about["labels"]]
    except (OSError, ValueError, KeyError, TypeError):
        source, labels = None, []
    if len(labels) != CLASSES:
        raise MannError(f"The cached file {index} is damaged: delete it and run again.")
    if fingerprint is not None and fingerprint != source:
        return None
    try:
        return _image_set(load_bitmaps(bits, CLASSES, DRAWINGS, SHA256), labels)
    except OSError as error:
        raise MannError(f"The cached file {bits} cannot be read: {error}.") from None


def _cache() -> Path:
    return cache_dir() / "omniglot"


def _image_set(images: UInt8[np.ndarray, "classes drawings 105 105"], labels: list[str]) -> ImageSet:
    alphabets = tuple(label.partition("/")[0] for label in labels)
    return ImageSet("omniglot", images, np.full(CLASSES, DRAWINGS), tuple(labels), alphabets=alphabets)
