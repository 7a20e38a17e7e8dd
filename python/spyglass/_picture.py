"""A flame graph as a still picture, for pages that show SVG inside their own document: notebooks, Dagster.

The script cannot run there, and the style must not apply to the rest of the page.
"""
from __future__ import annotations

import re
from typing import List, Set, Tuple

WIDTH = 1000  # pixels; the pages cut off or shrink anything wider
MAX_PICTURE = 600_000  # bytes: notebooks and event logs store each picture
SCOPE = ".spyglass-flamegraph"
SCRIPT = re.compile(r"<script>.*</script>\n?", re.S)
STYLE = re.compile(r"(?<=<style><!\[CDATA\[).*?(?=\]\]></style>)", re.S)
RULE = re.compile(r"^([ ]*)([^@{}\n/]+)\{", re.M)  # the selectors of a rule
HEIGHTS = re.compile(r'(<svg [^>]*height=")([0-9]+)"')  # of the picture, and of the frames in it
SIZE = re.compile(r'<svg ([^>]*?) width="([0-9]+)" height="([0-9]+)"(?: viewBox="[^"]*")?')
SUBTITLE = re.compile(r'(<text class="sub"[^>]*>[^<]*)')
FRAME = re.compile(r'<g class="f"[^>]*>.*</g>\n')
PLACE = re.compile(r'<rect x="[^"]*" y="([0-9]+)" width="([0-9.]+)%"')


def _scoped(rule: "re.Match[str]") -> str:
    """Limits a rule of the style to the picture."""
    selectors = [selector.strip() for selector in rule.group(2).split(",")]
    limited = [SCOPE if selector == "svg" else "%s %s" % (SCOPE, selector) for selector in selectors]
    return "%s%s {" % (rule.group(1), ", ".join(limited))


def _place(frame: str) -> Tuple[float, int]:
    """Sorts the widest frames first, then the outermost."""
    found = PLACE.search(frame)
    return (-float(found.group(2)), int(found.group(1))) if found else (0.0, 0)


def _reduced(svg: str, limit: int) -> str:
    """Omits the narrowest and the deepest frames of a picture that is too large. Callers are at least as wide as what they
    call, so those of the remaining frames remain."""
    frames: List[str] = FRAME.findall(svg)
    room = limit - len(svg.encode("utf-8")) + sum(len(frame.encode("utf-8")) for frame in frames)
    kept: Set[str] = set()
    deepest = 0
    for frame in sorted(frames, key=_place):
        room -= len(frame.encode("utf-8"))
        if room < 0:
            break
        kept.add(frame)
        deepest = max(deepest, _place(frame)[1])
    height = max([0] + [_place(frame)[1] for frame in frames]) - deepest
    svg = FRAME.sub(lambda found: found.group() if found.group() in kept else "", svg)
    svg = SUBTITLE.sub(r"\g<1> · %d smallest or deepest frames not shown here" % (len(frames) - len(kept)), svg, count=1)
    return HEIGHTS.sub(lambda found: '%s%d"' % (found.group(1), int(found.group(2)) - height), svg)


def still_picture(data: bytes, limit: int = MAX_PICTURE) -> str:
    """Returns a flame graph of the program without script, scaled to WIDTH. Of at most about `limit` bytes: says how many
    frames it omits."""
    def scale(found: "re.Match[str]") -> str:
        wide, high = int(found.group(2)), int(found.group(3))
        return '<svg %s class="%s" style="max-width: 100%%; height: auto" width="%d" height="%d" viewBox="0 0 %d %d"' % (
            found.group(1), SCOPE[1:], WIDTH, high * WIDTH // (wide or 1), wide, high)

    svg = SCRIPT.sub("", data.decode("utf-8", "replace"), count=1)
    svg = STYLE.sub(lambda found: RULE.sub(_scoped, found.group()), svg, count=1)
    if len(svg.encode("utf-8")) > limit:
        svg = _reduced(svg, limit)
    return SIZE.sub(scale, svg, count=1)
