"""Text that is safe to print. Names come from the profiled programs and may contain anything."""
from __future__ import annotations

import re

# As in src/base/text.c, and surrogates: control characters, invisible ones, and what changes the direction of text.
HIDDEN = re.compile("[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
                    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3"
                    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _escape(match: "re.Match[str]") -> str:
    char = match.group()
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8: os.fsdecode()
        return "\\x%02x" % (code & 0xFF)
    return NAMED.get(char) or ("\\x%02x" if code < 0x80 else "\\u%04x" if code < 0x10000 else "\\U%08x") % code


def safe(text: object) -> str:
    """Returns the text with escapes such as \\x1b instead of hidden characters, as `spyglass dump` shows names."""
    return HIDDEN.sub(_escape, str(text))


def safe_lines(text: object) -> str:
    """The same for a text of several lines."""
    return "\n".join(safe(line) for line in str(text).split("\n"))
