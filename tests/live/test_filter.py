"""--include, --exclude, --thread, --only-mine and --min-percent in dump, record and merge."""
import json
import re

import pytest

from processes import at_rest
from profiles import FORMATS, STACKS, raw_stacks, record_enough
from program import run
from pythons import DEBIAN

HANDLE, WORK, BEAT = "MainThread", "worker-1", "beat"
MINE = {HANDLE: ["handle_order", "main", "<module>"], WORK: ["work"]}


def dump(pid, *flags, **options):
    """{thread name: function names, innermost first}"""
    result = run("dump", "--json", "--pid", pid, *flags).check(**options)
    return {thread["thread_name"]: [frame["name"].rpartition(".")[2] for frame in thread["frames"]]
            for thread in json.loads(result.out)}


def test_dump(spawn, python):
    pid = at_rest(spawn(python, "own_and_library.py").pid)
    everything = dump(pid)
    assert set(everything) == {HANDLE, WORK, BEAT} and everything[HANDLE] == ["hold", "handle_order", "serve", "main", "<module>"]
    some = lambda *names: {name: everything[name] for name in names}
    assert dump(pid, "--thread", "w*") == some(WORK)
    assert dump(pid, "--thread", pid, "--thread", "beat") == some(HANDLE, BEAT)
    assert dump(pid, "--include", "handle_order") == some(HANDLE)
    assert dump(pid, "--include", "webframe") == dump(pid, "--include", "webframe.*") == some(HANDLE, BEAT)
    assert dump(pid, "--exclude", "*/site-packages/*") == some(WORK)
    assert dump(pid, "--include", "threading", "--exclude", "webframe.beat") == some(WORK)
    assert dump(pid, "--only-mine") == dict(MINE, beat=["beat"])
    assert dump(pid, "--only-mine", "--include", "webframe") == {
        HANDLE: everything[HANDLE], BEAT: ["hold", "beat"]}


def test_dump_text(spawn):
    pid = at_rest(spawn(DEBIAN, "own_and_library.py").pid)
    result = run("dump", "--pid", pid, "--no-waits", "--only-mine", "--thread", HANDLE, "--exclude", "nix").check()
    assert re.search(r'"MainThread"\n    handle_order \(.*\)\n    main \(.*\)\n    <module> \(.*\)\n$', result.out), result
    assert result.err == "Note: no function, module or file matches --exclude 'nix'.\n"
    for flags in ([], ["--json"]):
        result = run("dump", "--pid", pid, "--thread", "nix*", *flags).check(1)
        assert result.out == ""
        assert result.err == ("Error: Nothing is left to show: 0 of 3 threads pass the filter --thread 'nix*'\n"
                              "The threads are: MainThread, worker-1, beat. Without a filter, dump shows all of their stacks.\n")


def stacks_of(text):
    return set(raw_stacks(text))


def test_record_equals_merge(spawn, tmp_path):
    """A filter of record shows what the same filter of merge shows."""
    target = spawn(DEBIAN, "own_and_library.py", "busy")
    record = ["--pid", target.pid, "--threads", "--full-filenames"]
    is_complete = lambda text: len(stacks_of(text)) == 3 and all(  # and nothing from before the threads' loops
        any(stack[-1] == name for stack in stacks_of(text)) for name in ("work", "hold"))
    text, _ = record_enough(is_complete, *record, out=tmp_path / "all.txt")
    for flags in (["--include", "webframe"], ["--exclude", "*/site-packages/*"], ["--thread", "w*"], ["--only-mine"],
                  ["--only-mine", "--include", "webframe", "--thread", "beat"], ["--min-percent", "2"]):
        merged = run("merge", "-f", "raw", "-o", "-", *flags, "all.txt", cwd=tmp_path).check().out
        assert stacks_of(merged)
        record_enough(lambda text: stacks_of(text) == stacks_of(merged), *record, *flags, out=tmp_path / "some.txt")
    mine = {tuple(name for name in stack if not name.startswith("thread (")) for stack in stacks_of(
        run("merge", "-f", "raw", "-o", "-", "--only-mine", "all.txt", cwd=tmp_path).check().out)}
    assert mine == {tuple(reversed(names)) for names in MINE.values()} | {("beat",)}


@pytest.mark.parametrize("format", FORMATS)
def test_record_formats(format, spawn, tmp_path):
    """Each format has the stacks that are left, and says how much that is. Without --threads there are no roots for them."""
    target = spawn(DEBIAN, "own_and_library.py", "busy")
    wanted = {tuple(reversed(MINE[HANDLE])), ("work",)}

    def is_complete(text):  # and nothing from before the threads' loops
        found = {stack for stack, n in STACKS[format](text).items() if n > 0.001}
        return {stack for stack in found if stack and "[unattributed CPU time]" not in stack} == wanted

    text, result = record_enough(is_complete, "--pid", target.pid, "-f", format, "--only-mine", "--exclude", "beat",
                                 out=tmp_path / "out")
    kept, total, percent = map(float, re.search(r"The filter kept ([\d.]+) s of ([\d.]+) s of CPU time \(([\d.]+)%\)\.",
                                                result.err).groups())
    assert kept <= total and abs(percent - 100 * kept / total) < 2 + 2 / total  # equal if beat has not run
    remark = "%.1f%% of %.2f s of CPU time, filtered by --exclude 'beat' --only-mine" % (percent, total)
    assert (remark in text.replace("&#39;", "'")) == (format != "chrometrace")


def test_record_nothing_left(spawn, tmp_path):
    """The file says why it is empty, and what there is."""
    target = spawn(DEBIAN, "own_and_library.py", "busy")
    text, result = record_enough(lambda text: "handle_order" in text, "--pid", target.pid, "-f", "raw", "--include",
                                 "handle_ordr", out=tmp_path / "out")
    assert re.search(r"No stack counts found: none of the [\d.]+ s of CPU time passes the filter --include 'handle_ordr'\n"
                     r"spyglass> Did you mean 'handle_order'\? The hottest functions are .*hold \(webframe/__init__.py\)",
                     result.err), result
    assert re.fullmatch(r"\[No stack counts found: none of .* Did you mean 'handle_order'\?.*\] 0\n", text)
    _, result = record_enough(lambda text: "worker-1" in text, "--pid", target.pid, "-f", "raw", "--thread", "worker", out=tmp_path / "out")
    assert "No stack counts found: no thread matches --thread 'worker'\n" in result.err
    assert re.search(r"The threads are: .*worker-1.*\.\n", result.err)


# ---- merge: text in, text out ----

LINES = """\
<module> (/srv/shop.py:9);handle (/srv/shop.py:4) 3
<module> (/srv/shop.py:9);dumps (/usr/lib/python3.11/json/__init__.py:231);encode (/usr/lib/python3.11/json/encoder.py:199) 1
"""
SHORT = LINES.replace("/srv/", "").replace("/usr/lib/python3.11/", "")


def merge(tmp_path, text, *flags, status=0):
    (tmp_path / "in.txt").write_text(text)
    result = run("merge", "-f", "raw", "-o", "out.txt", *flags, "in.txt", cwd=tmp_path).check(status)
    return (tmp_path / "out.txt").read_text() if status == 0 else None, result.messages


def test_merge(tmp_path):
    text, messages = merge(tmp_path, SHORT, "--include", "json", "--exclude", "nix", "--include=json.*")
    assert text == SHORT.splitlines(True)[1] + "[25.0% of 4 samples, filtered by --include 'json' --include 'json.*' --exclude 'nix'] 0\n"
    assert messages.startswith("spyglass> The filter kept 1 of 4 samples (25.0%).\n"
                               "spyglass> No function, module or file matches --exclude 'nix'.\n"
                               "spyglass> Wrote raw flamegraph data to 'out.txt'. Samples: 1\n")
    text, messages = merge(tmp_path, LINES, "--only-mine")
    assert text == ("<module> (/srv/shop.py:9) 1\n<module> (/srv/shop.py:9);handle (/srv/shop.py:4) 3\n"
                    "[filtered by --only-mine] 0\n")
    assert "Samples: 4" in messages
    assert merge(tmp_path, text)[0] == "".join(text.splitlines(True)[:2])  # the remark is no stack
    text, messages = merge(tmp_path, LINES, "--exclude", "<module>")
    assert text.startswith("[No stack counts found: none of the 4 samples passes the filter --exclude '<module>'. --exclude drops ")
    assert "Samples: 0" in messages and "use --only-mine" in messages


def test_merge_lacks_what_a_filter_needs(tmp_path):
    assert merge(tmp_path, SHORT, "--only-mine", status=2)[1] == (
        "error: Bad arguments: --only-mine requires profiles with full paths: short ones do not tell which files belong to "
        "libraries\nRecord them with --full-filenames, or use --only-mine in record.\n")
    assert merge(tmp_path, LINES, "--thread", "w*", status=2)[1] == (
        "error: Bad arguments: --thread requires profiles with threads\nRecord them with --threads.\n")
    assert merge(tmp_path, "", "--thread", "w*")[0] == ""  # nothing to filter


def test_program_is_a_library(tmp_path):
    """A console script: nothing is the program's but the script itself. Not silently."""
    text = "<module> (/usr/bin/tool:3);main (/usr/lib/python3/dist-packages/tool/cli.py:5) 7\n"
    out, messages = merge(tmp_path, text, "--only-mine")
    assert out == "<module> (/usr/bin/tool:3) 7\n[filtered by --only-mine] 0\n"
    assert "one function outside of the standard library and installed packages. If the program itself is an installed " \
        "package, add --include PACKAGE.\n" in messages
    out, messages = merge(tmp_path, text, "--only-mine", "--include", "tool")
    assert out.startswith(text) and "add --include" not in messages
    out, messages = merge(tmp_path, "_run_code (<frozen runpy>:88);<module> (/usr/lib/python3.11/timeit.py:9) 7\n", "--only-mine")
    assert out.startswith("<module> (/usr/lib/python3.11/timeit.py:9) 7\n")
    assert "7 samples in stacks without a function of the program" in messages and "no function outside" in messages


def test_hostile_patterns(tmp_path):
    """Bytes that are not UTF-8, escapes, and many stars."""
    name = "a" * 4000
    text = "%s (/srv/\udcff.py:1) 1\n" % name
    (tmp_path / "in.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    go = lambda *flags, status=0: run("merge", "-f", "raw", "-o", "-", *flags, "in.txt", cwd=tmp_path).check(status)
    assert go("--include", "*a" * 2000).out.startswith(name)
    assert "Samples: 0" in go("--include", "*a" * 2000 + "b").err
    assert go("--include", "*/\udcff.py").out.startswith(name)
    assert "--include '\\x1b[31m'" in go("--include", "\x1b[31m").err
    assert go("--include", "*" * 4097, status=2).err == "error: Bad arguments: a pattern is too long: the limit is 4096 bytes\n" \
        "For more information try --help\n"
    assert "each flag may be given 32 times" in go(*["--include=x"] * 33, status=2).err
