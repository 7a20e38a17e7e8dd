"""Profiled ops and assets of each kind, and a job that hangs: see test_dagster.py. It creates the file $HANG when it
hangs."""
import os
import threading
import time

from dagster import (AssetExecutionContext, Definitions, DynamicOut, DynamicOutput, MaterializeResult, MetadataValue, Out,
                     Output, asset, define_asset_job, job, multiprocess_executor, op)

from spyglass.dagster import Spyglass, profiled


def has_sampled():
    """Returns a function that tells whether the profilers that this process started have woken twenty times since. It
    is true if there are none."""
    def wakes():
        found = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/status" % entry) as status, open("/proc/%s/cmdline" % entry) as command:
                    fields = dict(line.split(":", 1) for line in status.read().splitlines())
                    if int(fields["PPid"]) == os.getpid() and "record" in command.read().split("\0"):
                        found[entry] = int(fields["voluntary_ctxt_switches"])
            except (OSError, KeyError):
                pass
        return found

    before = wakes()
    return lambda: all(n >= before.get(pid, 0) + 20 for pid, n in wakes().items())


def known_work(seconds=0.3):
    enough, end = has_sampled(), time.thread_time() + seconds
    while time.thread_time() < end or not enough():
        sum(range(300))


def known_helper():
    known_work()


def known_wait():
    enough = has_sampled()
    time.sleep(0.3)
    while not enough():
        time.sleep(0.1)


@op
def hangs():
    with open(os.environ["HANG"], "w") as file:
        file.write(str(os.getpid()))
    threading.Event().wait()


@op
def looks_on():
    known_work()


@job(executor_def=multiprocess_executor)
def hanging():
    hangs()


@job(executor_def=multiprocess_executor)
def spread():
    looks_on()


@asset
@profiled
def plain():
    known_work()
    known_wait()
    thread = threading.Thread(target=known_helper)
    thread.start()
    thread.join()
    return 1


@asset
@profiled(format="speedscope", rate=200)
def with_context(context: AssetExecutionContext, plain: int) -> MaterializeResult:
    known_work()
    return MaterializeResult(metadata={"mine": MetadataValue.int(plain)})


@asset
@profiled
async def later(context: AssetExecutionContext):
    known_work()
    context.add_output_metadata({"mine": 7})


@op(out={"a": Out(), "b": Out()})
@profiled
def generates():
    known_work()
    yield Output(1, "a", metadata={"mine": 1})
    known_work()
    yield Output(2, "b")


@op
@profiled(whole_process=True)
def takes_all(a, b):
    known_work()
    return Output(a + b, metadata={"mine": 3})


@op
@profiled
def fails(context):
    known_work()
    raise ValueError("as planned")


@op(out=DynamicOut())
@profiled
def many():
    known_work()
    for key in "xy":
        yield DynamicOutput(key, mapping_key=key)


@op
def parts(context, spyglass: Spyglass):
    with spyglass.profile(context, name="first"):
        known_work()
    known_helper()
    with spyglass.profile(context, name="second"):
        known_wait()
    return 1


@job
def events():
    takes_all(*generates())


@job
def failing():
    fails()


@job
def mapped():
    many()


@job(resource_defs={"spyglass": Spyglass()})
def resourceful():
    parts()


defs = Definitions(assets=[plain, with_context, later],
                   jobs=[hanging, spread, events, failing, mapped, resourceful, define_asset_job("assets")],
                   resources={"spyglass": Spyglass()})
