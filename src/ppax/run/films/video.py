"""Video files from frames: GIF with Pillow, MP4 with imageio-ffmpeg."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ppax.core.types import ConfigError
from ppax.storage import safe_files

FORMATS = (".gif", ".mp4")


def require_video(path: Path) -> None:
    """Raise ConfigError for a format other than .gif and .mp4, ImportError where its encoder is not installed."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: write a video as .gif or .mp4; nearest valid value: {path.with_suffix('.gif')}")
    try:
        if path.suffix == ".gif":
            import PIL.Image  # noqa: F401
        else:
            import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{path.suffix} needs {error.name}: pip install "ppax[video]"') from error


def write_video(path: Path, frames: Iterable[np.ndarray], frames_per_second: float) -> int:
    """Write frames, uint8 [H, W, 3] and all of one size, as a video; returns their number.

    The suffix of `path` chooses the format: .gif or .mp4. Raises as `require_video` does.
    """
    require_video(path)
    pictures = list(frames)
    with safe_files.replacing(path) as partial:
        write = _write_gif if path.suffix == ".gif" else _write_mp4
        write(partial, pictures, frames_per_second)
    return len(pictures)


def _write_gif(path: Path, pictures: list[np.ndarray], frames_per_second: float) -> None:
    from PIL import Image

    # one palette for all frames: a palette for each would flicker
    palette = Image.fromarray(np.concatenate(pictures[:: max(1, len(pictures) // 8)])).quantize(128)
    images = [Image.fromarray(x).quantize(palette=palette, dither=Image.Dither.NONE) for x in pictures]
    duration = round(1000 / frames_per_second)
    images[0].save(path, save_all=True, append_images=images[1:], duration=duration, loop=0)


def _write_mp4(path: Path, pictures: list[np.ndarray], frames_per_second: float) -> None:
    import imageio_ffmpeg

    height, width = (side + side % 2 for side in pictures[0].shape[:2])  # the codec requires even sizes
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=frames_per_second, macro_block_size=2)
    with warnings.catch_warnings():  # JAX warns of every fork; the child runs ffmpeg and no JAX
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        writer.send(None)
    for x in pictures:
        writer.send(np.pad(x, ((0, height - x.shape[0]), (0, width - x.shape[1]), (0, 0)), mode="edge").tobytes())
    writer.close()
