#!/usr/bin/env python3
"""Checks the documents against the tree: links and anchors, the files, functions, tests and make targets that they name, and the
messages that docs/troubleshooting.md quotes."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md")),
             *sorted((ROOT / "tests").glob("**/*.md")), *sorted((ROOT / "bench").glob("*.md"))]
TOPS = "bench|deploy|docs|examples|python|share|src|tests|tools"
LAYERS = "base|elf|target|pause|snapshot|python|unwind|tree|sample|profile|out|ui|cmd|assets"
# Named as examples of what a reader would add.
NOT_THERE = {"src/out/list.c", "out/list.c", "src/out/NAME.c"}


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    for head in re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.M):
        head = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower()
        yield re.sub(r"[^\w\- ]", "", head).replace(" ", "-")


def bad_links(path, text):
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", prose):
        if re.match(r"[a-z]+:", link):
            continue
        file = path.parent / link if link else path
        if not file.exists():
            yield "no file %s" % link
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield "no heading #%s in %s" % (anchor, file.name)


def bad_paths(path, text):
    """Names of files of this tree, with or without src/ in front."""
    for name in re.findall(r"(?<![\w./$~-])((?:%s|%s)/[\w./*-]*\w)(?![\w…])" % (TOPS, LAYERS), text):
        places = [base / name for base in (ROOT, ROOT / "src", ROOT / "tests" / "fuzz" / "corpus")]
        if name in NOT_THERE or not re.search(r"`[^`\n]*%s|^\$.*%s" % (2 * (re.escape(name),)), text, re.M):
            continue
        if not any(place.exists() or any(place.parent.glob(place.name)) for place in places):
            yield "no file %s" % name


def bad_targets(path, text):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    suites = set(re.findall(r'^    "([a-z-]+)": (?:Suite|\[)', (ROOT / "tests" / "run").read_text(), re.M)) | {"all", "test", "check"}
    for command in re.findall(r"(?:`|^\$ )make ([a-z-]+)", text, re.M):
        if command not in targets:
            yield "no target %s in the Makefile" % command
    for command in re.findall(r"(?:`|^\$ )tests/run ([a-z-]+)", text, re.M):
        if command not in suites:
            yield "no suite %s in tests/run" % command


def bad_functions(path, text):
    """Functions and types of this tree; add-a-python.md names CPython's, too."""
    if path.name not in ("architecture.md", "add-a-format.md"):
        return
    tree = "\n".join(file.read_text(encoding="utf-8") for top in ("src", "tests/live", "tests/unit")
                     for file in sorted((ROOT / top).glob("**/*.[chp]*")))
    for name in re.findall(r"`(?:struct |enum )?([a-z]\w*_\w+)(?:\(\)|\[\])?`", text):
        if not re.search(r"\b%s\b" % name, tree):
            yield "nothing is called %s" % name


def literals():
    """The texts of the program, each with "\\0" for what it fills in."""
    for file in sorted((ROOT / "src").glob("**/*.[ch]")):
        text = re.sub(r'"\s*(?:PRI\w+\s*)?"', "", file.read_text(encoding="utf-8"))
        for one in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
            one = one.replace('\\"', '"').replace("\\n", "").replace("{spyglass}", "spyglass")
            yield re.sub(r"%[-+0-9.*#]*(?:ll|[lz])?[a-zA-Z]|\{\w+\}", "\0", one).replace("%%", "%")


def bad_messages(path, text):
    """A message is correct if all its parts between variable ones are in the source."""
    if path.name != "troubleshooting.md":
        return
    texts = list(literals())
    everything = "\n".join(texts) + "\nNo space left on device\nPermission denied\n"
    patterns = [".*?".join(map(re.escape, one.split("\0"))) + ("$" if one.endswith("\0") else "") for one in texts
                if "\0" in one and len(re.findall(r"\w\w+", one)) > 1]
    rows = re.findall(r"^\| (`[^|]*)\|[^|]*\|[^|]*\|$", text, re.M) + re.findall(r"^\*\*(`[^`]+`)", text, re.M)
    for message in re.findall(r"`([^`]+)`", "\n".join(rows)):
        whole = " ".join(found.group() for found in (re.search(pattern, message) for pattern in patterns) if found)
        for part in re.split(r"…|\b0x[0-9a-f]+\b|\b\d+(?:\.\d+)*\b|'[^']*'|\w+\.txt|[:;] |\(s\)|[()/\[\]]", message):
            part = part.strip(" ,.;:%")
            if len(part.split()) > 1 and part not in everything and part not in whole:
                yield "no message of spyglass contains %r" % part


def main():
    lines = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for check in (bad_links, bad_paths, bad_targets, bad_functions, bad_messages):
            lines += ["%s: %s" % (path.relative_to(ROOT), fault) for fault in check(path, text)]
    print("\n".join(lines) if lines else "documents: what they name is there")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
