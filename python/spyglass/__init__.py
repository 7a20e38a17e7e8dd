"""Dump the stacks of running Python processes, and profile them.

    import spyglass

    for thread in spyglass.dump(pid):              # what is it doing right now?
        print(thread)

    with spyglass.record() as recording:           # where does this process spend its time?
        work()
    recording.profile.save("profile.svg")

This package is a thin layer: it runs the program `spyglass` as a child process. It imports only the standard library,
and importing it has no side effects.
"""
from ._binary import binary
from ._dump import Frame, Local, Process, Thread, dump
from ._errors import SpyglassError
from ._formats import Format
from ._profile import Profile, merge
from ._record import Recording, record
from ._wait import Verdict, Wait, WaitFile, WaitObject, WaitOwner, WaitProcess

__version__ = "0.1.0"

__all__ = [
    "Format",
    "Frame",
    "Local",
    "Process",
    "Profile",
    "Recording",
    "SpyglassError",
    "Thread",
    "Verdict",
    "Wait",
    "WaitFile",
    "WaitObject",
    "WaitOwner",
    "WaitProcess",
    "binary",
    "dump",
    "merge",
    "record",
]
