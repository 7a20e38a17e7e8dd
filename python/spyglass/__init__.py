"""spyglass from Python: stacks of running Python processes, and profiles of them.

    import spyglass

    for thread in spyglass.dump(pid):              # where is it right now?
        print(thread)

    with spyglass.record() as recording:           # where does the time of this process go?
        work()
    recording.profile.save("profile.svg")

A thin layer: the program `spyglass` does the work, as a child process. Nothing is imported from outside the standard
library, and nothing runs on import.
"""
from ._binary import binary
from ._dump import Frame, Local, Process, Thread, dump
from ._errors import SpyglassError
from ._profile import Profile, merge
from ._record import Recording, record

__version__ = "0.1.0"

__all__ = [
    "Frame",
    "Local",
    "Process",
    "Profile",
    "Recording",
    "SpyglassError",
    "Thread",
    "binary",
    "dump",
    "merge",
    "record",
]
