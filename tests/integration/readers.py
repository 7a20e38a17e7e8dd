"""Parsers of the formats: text -> names of its functions, and the total number of samples."""
import json
import re
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"


def read_raw(text):
    names, total = set(), 0
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        total += int(count)
        names |= {part.partition(" (")[0] for part in stack.split(";")}
    return names, total


def read_flamegraph(text):
    assert "<!DOCTYPE svg" in text
    names, total = set(), 0
    for title in xml.fromstring(text[text.index("<?xml"):].encode()).iter(SVG + "title"):
        match = re.match(r"^(.*) \(([\d,.]+) (?:samples?|s), ([\d.]+)%\)$", title.text or "")
        if match:
            names.add(match.group(1).partition(" (")[0])
            total = max(total, float(match.group(2).replace(",", "")))
    return names, total


def read_speedscope(text):
    data = json.loads(text)
    used = {i for profile in data["profiles"] for sample in profile["samples"] for i in sample}
    for profile in data["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
    return {data["shared"]["frames"][i]["name"] for i in used}, sum(len(p["samples"]) for p in data["profiles"])


READ = {"raw": read_raw, "flamegraph": read_flamegraph, "speedscope": read_speedscope}


def ends_with(names, name):
    """Names are qualified from 3.11 on: Busy.spin."""
    return any(found == name or found.endswith("." + name) for found in names)
