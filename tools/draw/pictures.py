"""Sets up matplotlib for the tools: no window, no formulas in texts, fonts for any script."""

import io
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

from absl import logging

from bert_tf.errors import given, needs_package
from bert_tf.files.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# DejaVu Sans comes with matplotlib. The other fonts, if installed, have the scripts it lacks.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
)


def import_matplotlib() -> ModuleType:
    """Returns matplotlib, set up so that it never reads a text as a formula."""
    with needs_package("A picture", "matplotlib", "pictures"):
        import matplotlib
        import matplotlib.figure
        import matplotlib.font_manager
    installed = set(matplotlib.font_manager.get_font_names())
    matplotlib.rcParams["font.family"] = [name for name in _FONTS if name in installed]
    matplotlib.rcParams["text.parse_math"] = False
    return matplotlib


def write_png(figure: "Figure", path: str, flag: str | None = None) -> None:
    """Writes a figure as a PNG file; warns of characters that no font has, drawn as boxes."""
    data = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(data, format="png", dpi=150)
    if any("missing from font" in str(warning.message) for warning in caught):
        logging.warning(
            "%s: characters that no installed font has are drawn as boxes; install a font that has"
            " them, such as Noto Sans CJK (Debian's fonts-noto-cjk)",
            path,
        )
    write_whole(path, data.getvalue(), given(path, flag))
    logging.info("Wrote %s", path)
