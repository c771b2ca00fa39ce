"""Figures as PNG, with the letters of any script that a font of this machine has.

Shared by training's reports and the command line's pictures. Matplotlib draws boxes for what its
own font lacks, as Chinese, Japanese and Korean; here installed fonts are looked through for it.
Such fonts are too large to come with a package.
"""

import warnings
from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any
from unicodedata import category

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OWN_FONT = "DejaVu Sans"
# In the names of fonts that are looked at first.
LIKELY = ("CJK", "Noto Sans", "Unicode", "Fallback", "WenQuanYi", "Gothic", "Hei")
UNSEEN = ("Cc", "Cf")  # categories of characters that nothing is drawn for
BOXES = "Last Resort"  # a font that has a box for every character


class MissingFontWarning(UserWarning):
    """A picture has characters that no installed font has."""


def png_of(figure: "Figure", dpi: int) -> bytes:
    """Warns of characters that no font has: the picture has boxes in their place."""
    import matplotlib as mpl
    from matplotlib.text import Text

    texts: list[Any] = figure.findobj(Text)
    fonts, missing = fonts_for(text.get_text() for text in texts)
    for text in texts:
        text.set_fontfamily([*text.get_fontfamily(), *fonts])
    if missing:
        warnings.warn(
            f"the picture shows boxes for {''.join(sorted(missing)[:8])}, as no installed font has "
            "them: install one, such as the package fonts-noto-cjk of Debian and Ubuntu or "
            "google-noto-sans-cjk-fonts of Fedora, and repeat the command",
            MissingFontWarning,
            stacklevel=2,
        )
    content = BytesIO()
    families = [*mpl.rcParams["font.family"], *fonts]  # of texts that drawing makes
    with warnings.catch_warnings(), mpl.rc_context({"font.family": families}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # said better above
        figure.savefig(content, format="png", dpi=dpi)
    return content.getvalue()


def fonts_for(texts: Iterable[str]) -> tuple[list[str], set[str]]:
    """Names of fonts that have what matplotlib's own lacks, and the characters that none has."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    needed = {each for text in texts for each in text if category(each) not in UNSEEN}
    own = font_manager.findfont(OWN_FONT)
    missing = needed - _characters(FT2Font(own))
    names: list[str] = []
    if not missing:
        return names, missing
    known = font_manager.fontManager.ttflist
    for font in sorted(known, key=lambda font: not any(name in font.name for name in LIKELY)):
        if not missing:
            break
        if BOXES not in font.name and missing & (has := _characters(FT2Font(font.fname))):
            names.append(font.name)
            missing -= has
    return names, missing


def _characters(font: object) -> set[str]:
    return set(map(chr, font.get_charmap()))  # type: ignore[attr-defined]
