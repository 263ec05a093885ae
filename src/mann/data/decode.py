"""Any one image, from a file, from PIL or as an array, as levels of grey or in colours."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from mann.errors import MannError
from mann.installation import install_command

MAX_PIXELS = 40_000_000  # of one image: larger than any camera's photo, smaller than a decompression bomb
KINDS = "PNG, JPEG, BMP, WebP, GIF, TIFF or HEIC"
WORKING_SIDE = 1000  # pixels that the longer side of a picture has at most once it is decoded

_FORMATS = {  # the only decoders that ever see a user's file, and the suffixes of their files
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg"),
    "BMP": (".bmp",),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
}
_HEIF_SUFFIXES = (".heic", ".heif")  # what telephones write; read if pillow-heif is installed
_HARMLESS = {"aspect", "chromaticity", "dpi", "gamma", "icc_profile", "interlace", "srgb"}
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601, as PIL's own conversion to grey
_BORDER = 0.05  # of the shorter side: wide enough that a hairline frame or a scanner's edge is a minority

Grey = Float32[np.ndarray, "height width"]


def readable_suffixes() -> tuple[str, ...]:
    """The endings of file names that can be read here, in lower case."""
    suffixes = tuple(suffix for group in _FORMATS.values() for suffix in group)
    return suffixes + _HEIF_SUFFIXES if _register_heif() else suffixes


def why_unreadable(file: Path) -> str:
    """One phrase on a file that is no readable picture by its name."""
    if file.suffix.lower() in readable_suffixes():
        return "it is not a regular file"
    if file.suffix.lower() in _HEIF_SUFFIXES:
        return f"HEIC needs an extra: {install_command('photos')}"
    return f"its name does not say that it is a picture ({KINDS})"


def read_grey(
    image: Image.Image | np.ndarray | str | Path, name: str = "the image"
) -> Float32[np.ndarray, "rows columns"]:
    """Decode to 0 (black) … 1 (white), turned as the camera was held, transparent parts laid on paper.

    Takes what `mann.data.ink.normalise_image` takes. More than `WORKING_SIDE` pixels per side are averaged. A
    MannError names a file by its path and anything else by `name`.
    """
    if isinstance(image, str | Path):
        name = str(image)
    array = np.asarray(image) if isinstance(image, np.ndarray) else _decode(image, name, _to_array)
    grey, alpha = _grey_and_alpha(array, name)
    if alpha is not None:
        grey = _composite(grey, alpha)
    return _shrink(grey)


def read_colours(
    image: Image.Image | np.ndarray | str | Path, name: str = "the image"
) -> UInt8[np.ndarray, "rows columns 3"]:
    """Decode to red, green and blue, turned as the camera was held, transparent parts laid on white.

    Takes what `read_grey` takes, and shrinks and refuses what it does; grey levels are three times the same.
    """
    if isinstance(image, str | Path):
        name = str(image)
    if isinstance(image, np.ndarray):
        array = image / np.float32(255) if image.dtype == np.uint8 else image  # bytes are bytes, however dark
    else:
        array = _decode(image, name, _to_colours)
    values = _unit_values(array, name)
    colours, channels = values, values.shape[2]
    if channels in (2, 4):
        alpha = values[..., -1:]
        colours = alpha * values[..., :-1] + (1 - alpha)
    if channels < 3:
        colours = np.repeat(colours, 3, axis=2)
    whole = Image.fromarray(np.rint(255 * colours).astype(np.uint8))
    return np.asarray(whole.reduce(_reduction(whole.size)))


def as_bytes(array: np.ndarray, name: str = "the image") -> UInt8[np.ndarray, "rows columns *channels"]:
    """An array that `read_grey` takes as one of levels from 0 to 255, to be written to a file by PIL."""
    values = _unit_values(array, name)
    levels = np.rint(255 * values).astype(np.uint8)
    return levels[..., 0] if levels.shape[2] == 1 else levels


def plain_grey(
    image: Image.Image | np.ndarray | str | Path, side: int, name: str = "the image"
) -> Image.Image | None:
    """A small opaque picture in levels of grey, as it is, as a canvas gives it; None of any other.

    What `read_grey` makes of it is this, divided by 255.
    """
    if isinstance(image, np.ndarray):
        return _plain_array(image, side)
    if isinstance(image, Image.Image):
        return _plain_image(image, side, name)
    try:
        with warnings.catch_warnings(), _open(image) as opened:
            warnings.simplefilter("ignore")
            return _plain_image(opened, side, name)
    except Exception:  # `read_grey` says what is wrong
        return None


def _plain_array(array: np.ndarray, side: int) -> Image.Image | None:
    if array.shape != (side, side) or array.dtype not in (np.uint8, np.bool_):
        return None
    levels = array.view(np.uint8) if array.flags.c_contiguous else array.astype(np.uint8)
    return Image.fromarray(levels if levels.max() > 1 else np.uint8(255) * levels)


def _plain_image(image: Image.Image, side: int, name: str) -> Image.Image | None:
    if image.size != (side, side) or image.mode not in ("L", "RGB", "RGBA"):
        return None
    try:
        image.load()
    except Exception as error:  # a decoder may raise anything at all on a damaged file
        raise MannError(f"Cannot use {name}: it is not a readable image ({error}).") from None
    if not image.info.keys() <= _HARMLESS:  # it may say how the camera was held, or what is transparent
        return None
    if image.mode == "RGBA" and image.getchannel("A").getextrema() != (255, 255):
        return None
    return image.copy() if image.mode == "L" else image.convert("L")


def read_thumbnail(file: Path, side: int) -> Image.Image | None:
    """A picture for people to look at, `side` pixels at most; None if it cannot be read."""
    try:
        with warnings.catch_warnings(), _open(file) as opened:
            warnings.simplefilter("ignore")
            if opened.width * opened.height > MAX_PIXELS:
                return None
            opened.draft("RGB", (4 * side, 4 * side))
            picture = ImageOps.exif_transpose(opened).convert("RGBA")
            picture.thumbnail((side, side))
            paper = Image.new("RGBA", picture.size, "white")
            return Image.alpha_composite(paper, picture).convert("RGB")
    except Exception:  # a decoder may raise anything at all on a damaged file
        return None


def border_of(shape: tuple[int, ...]) -> Bool[np.ndarray, "height width"]:
    """Where the border of a picture is: what it mostly shows is paper."""
    width = max(1, round(_BORDER * min(shape)))
    border = np.ones(shape, bool)
    border[width:-width, width:-width] = False
    return border


def _register_heif() -> bool:
    """Teach PIL to read HEIC, where pillow-heif is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


def _decode(
    image: Image.Image | str | Path, name: str, to_array: Callable[[Image.Image], np.ndarray]
) -> np.ndarray:
    """Decode the first frame to what `_unit_values` takes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PIL's remarks on odd metadata; what matters is raised
            opened = image if isinstance(image, Image.Image) else _open(image)
            try:
                if opened.width * opened.height <= MAX_PIXELS:  # known from the header, before decoding
                    if opened is not image:  # a large JPEG is decoded at 1/2, 1/4 or 1/8 of its size
                        opened.draft("RGB", (WORKING_SIDE, WORKING_SIDE))
                    return to_array(ImageOps.exif_transpose(opened))
            finally:
                if opened is not image:
                    opened.close()
    except Image.DecompressionBombError:
        pass  # PIL refuses the largest ones by itself
    except UnidentifiedImageError:
        raise MannError(f"Cannot use {name}: it is not a readable image ({KINDS}).") from None
    except Exception as error:  # a decoder may raise anything at all on a damaged file
        reason = getattr(error, "strerror", None) or error  # of a file that is not there, without a number
        raise MannError(f"Cannot use {name}: it is not a readable image ({reason}).") from None
    raise _too_large(name)


def _open(path: str | Path) -> Image.Image:
    formats = [*_FORMATS, "HEIF"] if _register_heif() else list(_FORMATS)
    return Image.open(path, formats=formats)


def _deep_levels(image: Image.Image) -> np.ndarray | None:
    """The levels of a picture with more than 8 bits; None of any other."""
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.float32) / 65535
    return np.asarray(image) if image.mode in ("I", "F") else None  # the last two of unknown range


def _to_colours(image: Image.Image) -> np.ndarray:
    if (deep := _deep_levels(image)) is not None:
        return deep
    factor = _reduction(image.size)
    if image.has_transparency_data:
        image = image.convert("RGBA").convert("RGBa").reduce(factor).convert("RGBA")
    else:
        image = image.convert("RGB").reduce(factor)
    return np.asarray(image).astype(np.float32) / 255


def _to_array(image: Image.Image) -> np.ndarray:
    if (deep := _deep_levels(image)) is not None:
        return deep
    # By way of RGB, to which PIL converts every mode. Eight bits until it is small: 40 megapixels stay quick.
    factor = _reduction(image.size)
    if image.has_transparency_data:
        image = image.convert("RGBA").convert("RGBa").reduce(factor).convert("RGBA").convert("LA")
    elif image.mode == "L":
        image = image.reduce(factor)
    else:
        image = image.convert("RGB").reduce(factor).convert("L")
    return np.asarray(image).astype(np.float32) / 255


def _reduction(size: tuple[int, ...]) -> tuple[int, int]:
    """How many pixels to average across and down, so that `WORKING_SIDE` are left of the longer side at most."""
    factor = -(-max(size) // WORKING_SIDE)
    return min(factor, size[0]), min(factor, size[1])


def _shrink(grey: Grey) -> Float32[np.ndarray, "rows columns"]:
    return np.asarray(Image.fromarray(grey).reduce(_reduction(grey.shape[::-1])))


def _unit_values(array: np.ndarray, name: str) -> Float32[np.ndarray, "height width channels"]:
    """Check an array and scale it to 0 … 1."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4)):
        raise MannError(f"Cannot use {name}: its shape is {array.shape}, not H×W or H×W×1, 2, 3 or 4.")
    if array.size == 0:
        raise MannError(f"Cannot use {name}: it is empty, of shape {array.shape}.")
    if array.shape[0] * array.shape[1] > MAX_PIXELS:
        raise _too_large(name)
    if array.dtype.kind not in "buif":
        raise MannError(f"Cannot use {name}: its pixels are {array.dtype}, not booleans, integers or floats.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise MannError(f"Cannot use {name}: it has pixels that are NaN or infinite.")
    low, high = array.min().item(), array.max().item()  # Python numbers: 65535 is infinite as a float16
    if low < 0 or high > 65535:
        raise MannError(
            f"Cannot use {name}: its values go from {low} to {high}; scale them to 0 … 1 or 0 … 255."
        )
    scale = next(scale for scale in (1, 255, 65535) if high <= scale)
    return np.atleast_3d(array).astype(np.float32) / np.float32(scale)


def _grey_and_alpha(array: np.ndarray, name: str) -> tuple[Grey, Grey | None]:
    """Levels of grey and, where there is any, what is opaque."""
    values = _unit_values(array, name)
    channels = values.shape[2]
    grey = values[..., :3] @ _LUMA if channels >= 3 else values[..., 0]
    return grey, values[..., -1] if channels in (2, 4) else None


def _composite(grey: Grey, alpha: Grey) -> Grey:
    """Lay it on paper: what an opaque border shows, else white for dark ink and black for light ink."""
    border = border_of(grey.shape)
    if alpha[border].mean() >= 0.5:
        paper = np.median(grey[border & (alpha >= 0.5)])
    else:
        paper = np.float32((alpha * grey).sum() <= 0.5 * alpha.sum())
    return alpha * grey + (1 - alpha) * paper


def _too_large(name: str) -> MannError:
    return MannError(f"Cannot use {name}: it has more than {MAX_PIXELS // 1_000_000} million pixels.")
