#!/usr/bin/env python3
"""Checks that the Python package knows the formats and extensions of the program, in the same order: src/out/format.c."""
import importlib.util
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = "python/spyglass/_formats.py"


def program_tables():
    """The names of the formats, and the extensions with their formats."""
    names = {}
    for file in sorted((ROOT / "src" / "out").glob("*.c")):
        names.update(re.findall(r"^const struct format (format_\w+) = \{\s*\.name = \"(\w+)\"", file.read_text(), re.M))
    text = (ROOT / "src" / "out" / "format.c").read_text()
    table = re.search(r"format_table\[\] = \{(.*?)\};", text, re.S).group(1)
    endings = re.search(r"format_endings\[\] = \{(.*?)\};", text, re.S).group(1)
    return (tuple(names[symbol] for symbol in re.findall(r"&(format_\w+)", table)),
            tuple((ending, names[symbol]) for ending, symbol in re.findall(r"\{\"([^\"]+)\", &(format_\w+)\}", endings)))


def package_tables():
    spec = importlib.util.spec_from_file_location("formats_of_package", str(ROOT / MODULE))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FORMATS, module.ENDINGS


def main():
    sys.dont_write_bytecode = True
    lines = ["%s: %s differ from src/out/format.c: %s, not %s" % (MODULE, what, here, there)
             for what, here, there in zip(("Format", "ENDINGS"), package_tables(), program_tables()) if here != there]
    print("\n".join(lines) if lines else "formats: the package has the formats of the program")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
