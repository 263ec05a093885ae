"""Your own images: one folder a class, any size, colour and polarity, brought to what Omniglot looks like."""

import warnings
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageOps
from tqdm import tqdm

from mann.data.images import SIDE, ImageSet
from mann.errors import MannError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")  # the only decoders that ever see a user's file
MAX_PIXELS = 40_000_000  # of one image: larger than any camera's photo, smaller than a decompression bomb
MAX_IMAGES = 200_000  # of a folder, padding included: 2.2 GB

_BORDER = 0.05  # of the shorter side: wide enough that a hairline frame or a scanner's edge is a minority
_LEAST_CONTRAST = 8 / 255  # between ink and paper; below it there is only noise
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601, as PIL's own conversion to grey


def load_folder(path: str | Path) -> ImageSet:
    """Read `path`/<class>/<image>: at least 2 classes, at least 2 images of each, both sorted by name.

    Files that are hidden or have no image suffix (PNG, JPEG, BMP, WebP) and folders inside a class are
    ignored. Ink is 255, paper 0; see `normalise_image`.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise MannError(f"The folder {root} does not exist: give one that has a sub folder for each class.")
    try:
        classes = [folder for folder in _listing(root) if folder.is_dir()]
        files = [[file for file in _listing(folder) if _is_image(file)] for folder in classes]
    except OSError as error:
        raise MannError(f"The folder {root} cannot be read: {error}.") from None
    if len(classes) < 2:
        raise MannError(
            f"The folder {root} has {len(classes)} sub folder(s): give at least 2, one for each class."
        )
    for folder, members in zip(classes, files, strict=True):
        if len(members) < 2:
            raise MannError(
                f"The class folder {folder} has {len(members)} image(s) (PNG, JPEG, BMP or WebP): "
                "put at least 2 into it, or remove it."
            )
    counts = np.array([len(members) for members in files])
    if (padded := len(classes) * int(counts.max())) > MAX_IMAGES:
        raise MannError(
            f"The folder {root} is too large: {len(classes)} classes of up to {counts.max()} images make "
            f"{padded}, and at most {MAX_IMAGES} fit."
        )
    images = np.zeros((len(classes), counts.max(), SIDE, SIDE), np.uint8)
    with tqdm(
        total=int(counts.sum()), desc=f"Reading {root}", delay=2, disable=None, leave=False
    ) as progress:
        for row, members in zip(images, files, strict=True):
            for drawing, file in enumerate(members):
                row[drawing] = normalise_image(file)
                progress.update()
    return ImageSet(root.resolve().name, images, counts, tuple(folder.name for folder in classes), ink=255)


def normalise_image(
    image: Image.Image | np.ndarray | str | Path, name: str = "the image"
) -> UInt8[np.ndarray, "105 105"]:
    """Any one image as 105×105 levels of ink: 0 is paper, 255 full ink.

    Takes a file, a PIL image of any mode, or an array H×W or H×W×1, 2, 3 or 4 (grey, grey and alpha, RGB,
    RGBA) of booleans, integers, or floats in 0 … 1 or 0 … 255. Paper is what the border mostly shows, whether
    light or dark; the shape is kept by padding with paper. A MannError names a file by its path and anything
    else by `name`.
    """
    if isinstance(image, str | Path):
        name = str(image)
    array = image if isinstance(image, np.ndarray) else _pixels(image, name)
    grey, alpha = _grey_and_alpha(array, name)
    border = _border(grey.shape)
    if alpha is not None:
        grey = _composite(grey, alpha, border)
    # The median: strokes may touch the border as long as they cover less than half of it.
    paper = np.percentile(grey[border], 50, method="higher").astype(np.float32)
    fitted = _fit(grey - paper)  # paper is 0 from here on, ink negative or positive

    darkest, lightest = np.percentile(fitted, [0.05, 99.95])  # a few stray pixels are not ink
    ink = -fitted if -darkest >= lightest else fitted
    strongest = max(-darkest, lightest)
    if strongest < _LEAST_CONTRAST:
        raise MannError(f"Cannot use {name}: it is blank, with no ink that differs from the paper.")
    # Thin strokes lose contrast when scaled down, so full ink is what a typical stroke still has; and the
    # paper of a photo is uneven, so levels that are common at the border (if faint) are still paper.
    full = np.median(ink[ink > strongest / 2])
    faint = np.clip(np.percentile(ink[_border(ink.shape)], 75), 0, full / 4)
    levels = np.rint(255 * np.clip((ink - faint) / (full - faint), 0, 1)).astype(np.uint8)

    result = np.zeros((SIDE, SIDE), np.uint8)
    top, left = (SIDE - levels.shape[0]) // 2, (SIDE - levels.shape[1]) // 2
    result[top : top + levels.shape[0], left : left + levels.shape[1]] = levels
    return result


def list_images(folder: Path) -> list[Path]:
    """The pictures in a folder, sorted by name; at least one."""
    if not folder.is_dir():
        raise MannError(f"The folder {folder} does not exist: create it and put pictures into it.")
    try:
        files = [file for file in _listing(folder) if _is_image(file)]
    except OSError as error:
        raise MannError(f"The folder {folder} cannot be read: {error}.") from None
    if not files:
        raise MannError(f"The folder {folder} has no pictures (PNG, JPEG, BMP or WebP): put some into it.")
    return files


def _listing(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and file.is_file()


def _pixels(image: Image.Image | str | Path, name: str) -> np.ndarray:
    """Decode, turned as the camera was held, to what `_grey_and_alpha` takes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PIL's remarks on odd metadata; what matters is raised
            opened = image if isinstance(image, Image.Image) else Image.open(image, formats=FORMATS)
            try:
                if opened.width * opened.height <= MAX_PIXELS:  # known from the header, before decoding
                    return _to_array(ImageOps.exif_transpose(opened))
            finally:
                if opened is not image:
                    opened.close()
    except Image.DecompressionBombError:
        pass  # PIL refuses the largest ones by itself
    except Exception as error:  # a decoder may raise anything at all on a damaged file
        raise MannError(f"Cannot use {name}: it is not a readable image ({error}).") from None
    raise MannError(f"Cannot use {name}: it has more than {MAX_PIXELS // 1_000_000} million pixels.")


def _to_array(image: Image.Image) -> np.ndarray:
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.float32) / 65535
    if image.mode in ("I", "F"):  # more than 8 bits, of unknown range
        return np.asarray(image)
    # By way of RGB, to which PIL converts every mode; 8-bit grey keeps a 40-megapixel photo small.
    if image.has_transparency_data:
        image = image.convert("RGBA").convert("LA")
    elif image.mode != "L":
        image = image.convert("RGB").convert("L")
    return np.asarray(image).astype(np.float32) / 255


def _grey_and_alpha(
    array: np.ndarray, name: str
) -> tuple[Float32[np.ndarray, "height width"], Float32[np.ndarray, "height width"] | None]:
    """Check an array and scale it to 0 … 1."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4)):
        raise MannError(f"Cannot use {name}: its shape is {array.shape}, not H×W or H×W×1, 2, 3 or 4.")
    if array.size == 0:
        raise MannError(f"Cannot use {name}: it is empty, of shape {array.shape}.")
    if array.shape[0] * array.shape[1] > MAX_PIXELS:
        raise MannError(f"Cannot use {name}: it has more than {MAX_PIXELS // 1_000_000} million pixels.")
    if array.dtype.kind not in "buif":
        raise MannError(f"Cannot use {name}: its pixels are {array.dtype}, not booleans, integers or floats.")
    if not np.isfinite(array).all():
        raise MannError(f"Cannot use {name}: it has pixels that are NaN or infinite.")
    low, high = array.min().item(), array.max().item()  # Python numbers: 65535 is infinite as a float16
    if low < 0 or high > 65535:
        raise MannError(
            f"Cannot use {name}: its values go from {low} to {high}; scale them to 0 … 1 or 0 … 255."
        )
    scale = next(scale for scale in (1, 255, 65535) if high <= scale)
    values = np.atleast_3d(array).astype(np.float32) / np.float32(scale)
    channels = values.shape[2]
    grey = values[..., :3] @ _LUMA if channels >= 3 else values[..., 0]
    return grey, values[..., -1] if channels in (2, 4) else None


def _border(shape: tuple[int, ...]) -> Bool[np.ndarray, "height width"]:
    width = max(1, round(_BORDER * min(shape)))
    border = np.ones(shape, bool)
    border[width:-width, width:-width] = False
    return border


def _composite(
    grey: Float32[np.ndarray, "height width"],
    alpha: Float32[np.ndarray, "height width"],
    border: Bool[np.ndarray, "height width"],
) -> Float32[np.ndarray, "height width"]:
    """Lay it on paper: what an opaque border shows, else white for dark ink and black for light ink."""
    if alpha[border].mean() >= 0.5:
        paper = np.median(grey[border & (alpha >= 0.5)])
    else:
        paper = np.float32((alpha * grey).sum() <= 0.5 * alpha.sum())
    return alpha * grey + (1 - alpha) * paper


def _fit(grey: Float32[np.ndarray, "height width"]) -> Float32[np.ndarray, "rows columns"]:
    """Scale with anti-aliasing, so that the longer side becomes 105 and the shape is kept."""
    height, width = grey.shape
    scale = SIDE / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.HAMMING))
