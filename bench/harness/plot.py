"""Draws results.svg: a bar chart per question, spyglass in colour, readable on light and dark backgrounds."""
import math
from xml.sax.saxutils import escape

from . import goals as goals_module
from . import report, split

ROW, LEFT, WIDTH, GAP, TOP = 22, 170, 440, 44, 64
COLOURS = {"spyglass": "ours", "spyglass-nb": "near"}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .t { font-size: 14px; font-weight: 600 }
.h { font-size: 18px; font-weight: 700 } .s { fill: #57606a; font-size: 11px } .ground { fill: #fff }
.ours { fill: #0969da } .near { fill: #54aeff } .other { fill: #b5bcc4 } .axis { stroke: #d0d7de }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .s { fill: #8d96a0 } .ground { fill: #0d1117 }
.ours { fill: #4493f8 } .near { fill: #1f6feb } .other { fill: #484f58 } .axis { stroke: #3d444d } }"""


def panels(data):
    """(title, what is better, logarithmic, {tool: value})."""
    dig = goals_module.dig

    def each(function):
        values = {key: function(key) for key in (*report.TOOLS, "pystack")}
        return {key: value for key, value in values.items() if value is not None}

    def impossible(key):
        text = report.ppm(dig(data, "chains", key), "plain")
        return None if text == "–" else float(text.replace(",", ""))

    def error(kind):
        def of(key):
            worst = split.worst(dig(data, "split", key, kind) or [])
            return None if worst is None else abs(worst)
        return of

    def memory(key):
        return report.mega(dig(data, "dump", "tools", key, "small", "kb"))
    return [p for p in (
        ("Samples a second, full speed, 20 frames", "more is better", True,
         each(lambda k: dig(data, "deep", k, "20", "rate"))),
        ("CPU µs a sample, 20 frames", "less is better", True, each(lambda k: dig(data, "deep", k, "20", "cpu_us"))),
        ("Impossible stacks in a million, plain calls", "0 is right", True, each(impossible)),
        ("Error of a known split with fast calls, points", "less is better", False, each(error("fast"))),
        ("Target's pace kept at 1 kHz, 1 thread, %", "100 is free", False,
         each(lambda k: dig(data, "pace", k, "1 1 kHz", "kept"))),
        ("Target's pace kept at 100 Hz, 200 threads, %", "100 is free", False,
         each(lambda k: dig(data, "pace", k, "200 100 Hz", "kept"))),
        ("One dump of a small program, ms", "less is better", False,
         each(lambda k: dig(data, "dump", "tools", k, "small", "ms"))),
        ("CPU µs a sample with native frames, 1 kHz, 3.12", "less is better", True,
         each(lambda k: dig(data, "native", "tools", k, "3.12", "cpu_us"))),
        ("One dump of a Ray worker with native frames, ms", "less is better", False,
         each(lambda k: dig(data, "native", "tools", k, "Ray", "look_ms"))),
        ("One dump of a small program, peak MB", "less is better", False, each(memory))) if p[3]]


def length(value, most, least, logarithmic):
    """The length of a bar in pixels. A logarithmic axis starts a decade below its smallest value; zero has no bar."""
    if value <= 0 or most <= 0:
        return 0
    if not logarithmic:
        return WIDTH * 0.62 * min(value, most) / most
    floor = math.floor(math.log10(least)) - 0.3
    return WIDTH * 0.62 * (math.log10(value) - floor) / max(math.log10(most) - floor, 0.1)


def figure(value):
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw_panel(panel, x, y):
    title, better, logarithmic, values = panel
    most = max(values.values())
    least = min((v for v in values.values() if v > 0), default=1)
    scale = " · logarithmic" if logarithmic else ""
    lines = [f'<text class="t" x="{x}" y="{y}">{escape(title)}</text>',
             f'<text class="s" x="{x}" y="{y + 16}">{escape(better + scale)}</text>',
             f'<line class="axis" x1="{x + LEFT}" x2="{x + LEFT}" y1="{y + 24}" y2="{y + 26 + ROW * len(values)}"/>']
    for i, (key, value) in enumerate(values.items()):
        middle = y + 28 + ROW * i
        bar = length(value, most, least, logarithmic)
        lines += [f'<text x="{x + LEFT - 8}" y="{middle + 12}" text-anchor="end">{escape(key)}</text>',
                  f'<rect class="{COLOURS.get(key, "other")}" x="{x + LEFT}" y="{middle}" width="{bar:.1f}" '
                  f'height="16" rx="2"/>',
                  f'<text x="{x + LEFT + bar + 6:.1f}" y="{middle + 12}">{figure(value)}</text>']
    return lines


def draw(data, caption):
    shown = panels(data)
    wide = LEFT + WIDTH
    lines, y = [], TOP
    for at in range(0, len(shown), 2):
        pair = shown[at:at + 2]
        for i, panel in enumerate(pair):
            lines += draw_panel(panel, 24 + i * (wide + 10), y + 20)
        y += max(len(p[3]) for p in pair) * ROW + 48 + GAP
    size = f'width="{2 * wide + 40}" height="{y}" viewBox="0 0 {2 * wide + 40} {y}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                      f"<title>spyglass beside other profilers</title><style>{STYLE}</style>",
                      '<rect class="ground" width="100%" height="100%" rx="6"/>',
                      '<text class="h" x="24" y="36">spyglass beside other profilers</text>',
                      f'<text class="s" x="24" y="54">{escape(caption)}</text>', *lines, "</svg>"]) + "\n"
