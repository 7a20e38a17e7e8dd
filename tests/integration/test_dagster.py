"""A real Dagster: each command of its profiling guide, a run that hangs, and reports that open from a run's page."""
import base64
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from conftest import PROGRAMS, ROOT, SPYGLASS, WAIT, end_tree, functions, run, wait_until
from readers import ends_with, read_flamegraph, read_speedscope

import spyglass

pytestmark = pytest.mark.timeout(1200)
PY_SPY = SPYGLASS.parent / "py-spy"
NODE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spyglass" / "node"
JOBS = PROGRAMS / "dagster_jobs.py"
SLOW = PROGRAMS / "dagster_slow.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("home")
    os.environ["DAGSTER_HOME"] = str(place)
    os.environ["HANG"] = str(place / "hang")
    yield place


# ---- slow definitions: the guide's first command ----

@pytest.mark.parametrize("sudo", [False, True], ids=["plain", "sudo"])
def test_guide_command(sudo, home, tmp_path):
    """The command as in the guide, in a project's directory."""
    if sudo and not shutil.which("sudo"):
        pytest.skip("no sudo on this machine")
    shutil.copy(SLOW, tmp_path / "my_project.py")
    (tmp_path / "pyproject.toml").write_text('[tool.dagster]\nmodule_name = "my_project"\n')
    kept = ["sudo", "-n", "env", *("%s=%s" % (k, os.environ[k]) for k in ("PATH", "DAGSTER_HOME"))] if sudo else []
    run(*kept, "py-spy", "record", "-f", "speedscope", "--idle", "--", "dagster", "definitions", "validate", cwd=tmp_path)
    (file,) = set(tmp_path.glob("*.json"))
    assert "known_slow_import" in read_speedscope(file.read_text())[0]


def test_with_the_grpc_server(home, tmp_path):
    """The user's code runs in a child process: --subprocesses includes it."""
    run("spyglass", "record", "-s", "-o", "profile.txt", "--", "dagster", "definitions", "validate", "--load-with-grpc",
        "-f", SLOW, cwd=tmp_path)
    profile = spyglass.Profile.load(tmp_path / "profile.txt")
    assert functions(profile)["known_slow_import"] > 10
    holders = {frames[0] for frames, _ in profile.stacks if any(f.startswith("known_slow_import ") for f in frames)}
    assert len(holders) == 1 and holders.pop().startswith("process ")


def test_in_process_as_one_tree(home, tmp_path):
    run("spyglass", "record", "-s", "-o", "profile.svg", "--", "dagster", "definitions", "validate", "-f", SLOW, cwd=tmp_path)
    assert "known_slow_import" in read_flamegraph((tmp_path / "profile.svg").read_text())[0]


def test_broken_definitions(home, tmp_path):
    """Dagster's own status and messages come through, and so does the profile."""
    (tmp_path / "broken.py").write_text("import dagster_slow\nraise ValueError('as planned')\n")
    out, err = run("spyglass", "record", "-f", "speedscope", "--idle", "-o", "x.json", "--", "dagster", "definitions", "validate",
                   "-f", "broken.py", cwd=tmp_path, status=1)
    assert "as planned" in out + err
    assert "known_slow_import" in read_speedscope((tmp_path / "x.json").read_text())[0]


# ---- a run that hangs ----

def check_hang(text):
    """The dump of the run's process tree has the op, in the process that runs it."""
    step = int(pathlib.Path(os.environ["HANG"]).read_text())
    blocks = re.split(r"^(?=Process \d+: )", text, flags=re.M)
    assert len(blocks) > 2, text
    (found,) = [block for block in blocks if re.search(r"^    hangs \(dagster_jobs.py:\d+\)$", block, re.M)]
    return step, int(re.match(r"Process (\d+): ", found).group(1))


@pytest.mark.parametrize("namespace", [False, True], ids=["plain", "as pid 1"])
def test_hanging_run(namespace, home, started):
    """`dump --subprocesses` of the run shows the op, with status 0, although some of its processes are not Python."""
    if namespace and os.geteuid() != 0:
        pytest.skip("only root makes a namespace of processes")
    hang = pathlib.Path(os.environ["HANG"])
    hang.unlink(missing_ok=True)
    prefix = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"] if namespace else []
    process = started(*prefix, "dagster", "job", "execute", "-f", JOBS, "-j", "hanging",
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: hang.exists() and hang.read_text(), "the op")
    if namespace:
        (first,) = pathlib.Path("/proc/%d/task/%d/children" % (process.pid, process.pid)).read_text().split()
        text, _ = run("nsenter", "--target", first, "--pid", "--mount", PY_SPY, "dump", "--pid", "1", "--subprocesses")
        process.kill()  # `unshare` does not forward SIGTERM
    else:
        text, _ = run("py-spy", "dump", "--pid", process.pid, "--subprocesses")
    step, shown = check_hang(text)
    assert step == shown
    if not namespace:
        text, _ = run("py-spy", "dump", "--pid", step)
        assert "hangs (dagster_jobs.py:" in text and ("Event.wait" in text or "wait (threading.py" in text), text
        assert ends_with({f.name for t in spyglass.dump(process.pid, subprocesses=True) for f in t.frames}, "hangs")


# ---- reports ----

def metadata_of(instance, run_id, step):
    """{label: value} of the step's outputs and materializations."""
    found = {}
    for record in instance.all_logs(run_id):
        event = record.dagster_event
        if event and event.step_key == step and event.event_type_value == "STEP_OUTPUT":
            found.update({k: v.value for k, v in event.event_specific_data.metadata.items()})
    return found


def picture_of(markdown):
    found = re.fullmatch(r"!\[flame graph\]\(data:image/svg\+xml;base64,(.*)\)", markdown)
    return base64.b64decode(found.group(1)).decode()


@pytest.fixture(scope="module")
def executed(home):
    """executed(job) -> (instance, run ID, success), in this process."""
    import dagster_jobs
    from dagster import DagsterInstance

    instance = DagsterInstance.get()

    def go(name, **options):
        result = dagster_jobs.defs.get_job_def(name).execute_in_process(instance=instance, raise_on_error=False, **options)
        return instance, result.run_id, result.success

    return go


@pytest.mark.smoke
def test_ops_and_assets(executed):
    instance, run_id, success = executed("assets")
    assert success
    plain = metadata_of(instance, run_id, "plain")
    names, total = read_flamegraph(picture_of(plain["spyglass"]))
    assert names >= {"plain", "known_work", "known_wait", "known_helper"} and plain["spyglass samples"] == total > 20
    assert not any("execute_step" in name or "spyglass" in name for name in names), names  # no frames of Dagster or spyglass
    assert read_flamegraph(pathlib.Path(plain["spyglass file"]).read_text())[0] == names
    assert pathlib.Path(plain["spyglass file"]).parent.parent.name == run_id
    other = metadata_of(instance, run_id, "with_context")
    assert other["mine"] == 1 and "known_work" in read_speedscope(pathlib.Path(other["spyglass file"]).read_text())[0]
    later = metadata_of(instance, run_id, "later")
    assert later["mine"] == 7 and ends_with(read_flamegraph(picture_of(later["spyglass"]))[0], "known_work")


def test_generators_and_events(executed):
    instance, run_id, success = executed("events")
    assert success
    made = metadata_of(instance, run_id, "generates")
    assert made["mine"] == 1 and "known_work" in read_flamegraph(picture_of(made["spyglass"]))[0]
    took = metadata_of(instance, run_id, "takes_all")
    names = read_flamegraph(picture_of(took["spyglass"]))[0]
    assert took["mine"] == 3 and {"takes_all", "known_work"} <= names and len(names) > 10  # including Dagster's own
    instance, run_id, success = executed("mapped")
    assert success and "known_work" in read_flamegraph(picture_of(metadata_of(instance, run_id, "many")["spyglass"]))[0]


def test_resource(executed):
    instance, run_id, success = executed("resourceful")
    assert success
    parts = metadata_of(instance, run_id, "parts")
    first = read_flamegraph(picture_of(parts["spyglass first"]))[0]
    second = read_flamegraph(picture_of(parts["spyglass second"]))[0]
    assert "known_work" in first and not first & {"known_wait", "known_helper"}
    assert "known_wait" in second and not second & {"known_work", "known_helper"}


def test_switched_off(executed):
    instance, run_id, success = executed("resourceful", run_config={"resources": {"spyglass": {"config": {"enabled": False}}}})
    assert success and not [k for k in metadata_of(instance, run_id, "parts") if k.startswith("spyglass")]


def test_failure(executed):
    """The op's own exception propagates; the log says where the profile is."""
    instance, run_id, success = executed("failing")
    assert not success
    logs = [record.user_message for record in instance.all_logs(run_id)]
    (path,) = [m.rpartition(": ")[2] for m in logs if m.startswith("The profile of fails: ")]
    assert "known_work" in read_flamegraph(pathlib.Path(path).read_text())[0]
    assert any("as planned" in str(record.dagster_event) for record in instance.all_logs(run_id))


def test_program_missing(executed, monkeypatch):
    """If profiling fails, there is a warning, and the op continues."""
    monkeypatch.setenv("SPYGLASS_BINARY", "/nowhere/spyglass")
    instance, run_id, success = executed("events")
    assert success and "spyglass" not in metadata_of(instance, run_id, "generates")
    assert any("spyglass could not profile this" in record.user_message for record in instance.all_logs(run_id))


def test_outside_of_dagster(home):
    from spyglass.dagster import profiled
    assert profiled(lambda: 5)() == 5
    with pytest.raises(ValueError, match="format must be one of"):
        profiled(format="pdf")


# ---- from the run's page ----

def ask(port, query):
    request = urllib.request.Request("http://127.0.0.1:%d/graphql" % port, json.dumps({"query": query}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT) as answer:
        return json.load(answer)["data"]


QUERY = """{ runsOrError(limit: 1) { ... on Runs { results { runId status eventConnection(limit: 1000) { events {
    ... on MaterializationEvent { stepKey metadataEntries { label ... on MarkdownMetadataEntry { mdStr } } } } } } } } }"""


@pytest.fixture
def page(tmp_path):
    """A run of the multiprocess executor, started by the command, and a web server on the same home: (port, run)."""
    place = tmp_path / "web"
    place.mkdir()
    env = dict(os.environ, DAGSTER_HOME=str(place), HANG=str(place / "hang"))
    run("dagster", "job", "execute", "-f", JOBS, "-j", "assets", env=env)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = open(place / "web.log", "w")
    server = subprocess.Popen(["dagster-webserver", "-h", "127.0.0.1", "-p", str(port), "-f", str(JOBS)], env=env, stdout=log,
                              stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        def answers():
            assert server.poll() is None, (place / "web.log").read_text()
            try:
                return ask(port, QUERY)["runsOrError"]["results"]
            except urllib.error.HTTPError:
                raise
            except OSError:
                return None  # it does not listen yet
        yield port, wait_until(answers, "the web server")[0]
    finally:
        end_tree(server)
        log.close()


def test_from_dagster_page(page, tmp_path):
    """The page's data contain the whole flame graph; in Chromium a click shows it, as wide as the dialog."""
    port, found = page
    assert found["status"] == "SUCCESS"
    shown = {e["stepKey"]: m["mdStr"] for e in found["eventConnection"]["events"] if e.get("metadataEntries")
             for m in e["metadataEntries"] if m["label"] == "spyglass"}
    assert set(shown) == {"plain", "with_context", "later"}
    for name, markdown in shown.items():
        assert {name, "known_work"} <= read_flamegraph(picture_of(markdown))[0]
    out, _ = run("node", ROOT / "tests" / "integration" / "dagster_page.mjs",
                 "http://127.0.0.1:%d/runs/%s" % (port, found["runId"]), NODE, os.environ.get("PICTURE", tmp_path / "page.png"))
    natural_width, natural_height, width, room = json.loads(out)
    assert natural_width > 0 and natural_height > 0 and 300 < width <= room + 1


def test_documentation(executed, tmp_path):
    """The first code block of docs/dagster.md, as written."""
    lines = (ROOT / "docs" / "dagster.md").read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "doc_defs.py").write_text(lines.replace("...", "sum(range(20_000_000)); return 1") +
                                          "from dagster import Definitions\ndefs = Definitions(assets=[report])\n")
    run("dagster", "asset", "materialize", "-f", "doc_defs.py", "--select", "*", cwd=tmp_path)
    (file,) = pathlib.Path(os.environ["DAGSTER_HOME"]).glob("storage/*/spyglass/report.svg")
    assert "report" in read_flamegraph(file.read_text())[0]
