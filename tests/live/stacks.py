"""Parses the output of `dump` into stacks and compares them with what the target reports about itself."""
import json
import pathlib
import re

from processes import at_rest
from program import run

THREAD = re.compile(r'^Thread (\d+) \((idle|active|active\+gil|waiting for the GIL)\)(?:: "(.*)")?$')
FRAME = re.compile(r"^    (\S.*|) \((.*?)(?::(\d+))?\)$")
VERDICT = re.compile(r"(Deadlock|Likely deadlock|No cycle found): |.*, which no longer exists\. |(All \d+ other threads|The other thread|\d+ threads?) waits? for the GIL")
RULE = re.compile(r"^-{3,}$")


def event_loops(out):
    """Those of all threads in the output of `dump --json`."""
    return [loop for thread in json.loads(out) for loop in thread.get("event_loops", [])]


def parse_text(text):
    """The processes of a text dump, as dicts: pid, command, version, program, parent, threads."""
    processes = []
    in_tasks = False
    for line in text.split("\n"):
        in_tasks = bool(re.match(r"(Event loop|Greenlets) of ", line)) or (in_tasks and not line.startswith("Process "))
        if in_tasks:
            continue
        if line.startswith("Process "):
            pid, _, command = line[len("Process "):].partition(": ")
            processes.append({"pid": int(pid), "command": command, "parent": None, "threads": []})
        elif line.startswith("Python v"):
            version, _, program = line[len("Python v"):].partition(" ")
            processes[-1].update(version=version, program=program.strip("()"))
        elif line.startswith("Parent Process "):
            processes[-1]["parent"] = int(line[len("Parent Process "):].partition(":")[0])
        elif line.startswith("Container: "):
            processes[-1]["container"] = line[len("Container: "):]
        elif line.startswith("Core file: "):
            processes[-1]["core"] = line[len("Core file: "):]
        elif line.startswith("Signal: "):
            processes[-1]["signal"] = line[len("Signal: "):]
        elif line.startswith("Thread "):
            os_id, status, name = THREAD.match(line).groups()
            processes[-1]["threads"].append({"os_id": int(os_id), "status": status, "name": name, "frames": []})
        elif VERDICT.match(line):
            processes[-1]["verdict"] = line
        elif re.match("  [a-z]", line):
            processes[-1]["threads"][-1]["wait"] = line[2:]
        elif line.startswith("    "):
            processes[-1]["threads"][-1]["frames"].append(parse_frame(line[4:]))
        else:
            assert line == "" or RULE.match(line), "a line of no known kind: %r" % line
    return processes


def parse_frame(text):
    """Splits `name (file:line)`. The file begins at the last parenthesis that follows a blank."""
    assert text.endswith(")"), text
    name, _, place = text[:-1].rpartition(" (")
    filename, colon, line = place.rpartition(":")
    if not colon or not line.isdigit():
        return {"name": name, "filename": place, "line": 0}
    return {"name": name, "filename": filename, "line": int(line)}


def parse_json(text):
    """Parses a JSON dump into the same dicts as parse_text; checks the keys that callers rely on."""
    threads = json.loads(text)
    for thread in threads:
        assert set(thread) - {"hostname", "rank", "rank_from", "parent_pid", "container", "waits_for", "event_loops", "greenlets", "verdict"} == {
            "pid", "thread_id", "thread_name", "os_thread_id", "active", "owns_gil", "state", "process_info", "frames"}, thread.keys()
        for frame in thread["frames"]:
            assert set(frame) == {"name", "filename", "module", "short_filename", "line", "locals", "is_entry",
                                  "is_shim_entry"}, frame.keys()
            assert frame["locals"] is None or isinstance(frame["locals"], list)
    return threads


def rows(frames):
    return [(f["name"], f["filename"], f["line"] or 0) for f in frames]


def explain(found, wanted):
    for i, (left, right) in enumerate(zip(found, wanted)):
        if left != right:
            return "frame %d of %d: found %r, true is %r" % (i, len(wanted), left, right)
    return "found %d frames, true are %d; then %r" % (
        len(found), len(wanted), (found[len(wanted):] or wanted[len(found):])[:3])


def same(found, wanted, where):
    assert found == wanted, "%s: %s" % (where, explain(found, wanted))


def check_json(text, truth):
    threads = parse_json(text)
    by_ident = {t["thread_id"]: t for t in threads}
    assert len(by_ident) == len(threads), "a thread twice"
    assert by_ident.pop(truth["helper"], None), "the helper thread is missing"
    assert set(by_ident) == {t["ident"] for t in truth["threads"]}
    for true in truth["threads"]:
        found = by_ident[true["ident"]]
        same(rows(found["frames"]), rows(true["frames"]), "json, thread %s" % true["name"])
        assert found["pid"] == truth["pid"] or truth.get("other_namespace")
        same_names({"name": found["thread_name"], "os_id": found["os_thread_id"]}, true)
        if true["os_id"]:
            assert found["os_thread_id"] == true["os_id"]
        assert found["active"] is False and found["owns_gil"] is False
        for frame in found["frames"]:
            assert frame["module"] is None and frame["filename"].endswith(frame["short_filename"] or "")
    if any(t["main"] for t in truth["threads"]):
        assert next(t for t in truth["threads"] if t["main"])["ident"] == threads[0]["thread_id"], "main is not first"


def check_text(text, truth, full):
    """With --full-filenames the frames are equal; without it, each file is a suffix of the full path."""
    process, = parse_text(text)
    assert process["pid"] == truth["pid"]
    assert process["version"].startswith(".".join(map(str, truth["version"])))
    main = next(t for t in truth["threads"] if t["main"])
    assert process["threads"][0]["os_id"] == truth["pid"], "main is not first"
    same_names(process["threads"][0], main)
    true_by_id = {t["os_id"]: t for t in truth["threads"] if t["os_id"]}
    for found in process["threads"]:
        true = true_by_id.get(found["os_id"])
        if true:
            compare_text_thread(found, true, full)
    assert len(process["threads"]) == len(truth["threads"]) + 1


def same_names(found, true):
    """A thread without a name in Python has the kernel's name, if there is one: not in a core file, nor as py-spy."""
    wanted = [true["name"]]
    kernel = pathlib.Path("/proc/%s/comm" % found["os_id"])
    if true["name"] is None and not true["main"] and kernel.exists():
        wanted.append(kernel.read_text().rstrip("\n"))
    assert found["name"] in wanted, (found["name"], wanted)


def compare_text_thread(found, true, full):
    assert found["status"] == "idle", found
    same_names(found, true)
    got, want = rows(found["frames"]), rows(true["frames"])
    if not full:
        for i, (left, right) in enumerate(zip(got, want)):
            if right[1].endswith(left[1]):
                got[i] = (left[0], right[1], left[2])
    same(got, want, "text, thread %s" % true["name"])


# The ways to dump a blocked process: flags, and the check of the output.
VIEWS = {
    "json": (["--json"], check_json),
    "nonblocking": (["--json", "--nonblocking"], check_json),
    "text-full": (["--full-filenames"], lambda text, truth: check_text(text, truth, full=True)),
    "text": ([], lambda text, truth: check_text(text, truth, full=False)),
}


def compare(target, views=VIEWS):
    """Compares every stack of a blocked target with what the target reported."""
    assert target.truth["pid"] == target.pid
    for view in views:
        flags, check = VIEWS[view]
        check(run("dump", "--pid", at_rest(target.pid), *flags).check().out, target.truth)
