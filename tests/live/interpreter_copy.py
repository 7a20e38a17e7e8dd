"""A copy of an interpreter, and of its libpython if it has one, that runs instead of the original."""
import os
import pathlib
import shutil


class Copy:
    def __init__(self, python, places):
        self.dir = pathlib.Path(os.path.dirname(places(python.root))) / ("copy-%d-%d" % (os.getpid(), id(self)))
        self.dir.mkdir()
        program = python.root / "usr/bin" / python.command[-1] if python.kind == "chroot" else python.command[0]
        program = pathlib.Path(program).resolve()
        self.files = [self.dir / program.name]
        shutil.copy(program, self.files[0])
        self.env = {"PYTHONHOME": "/usr" if python.kind == "chroot" else str(program.parent.parent)}
        if python.library_dir:
            for library in python.library_dir.glob("libpython%d.%d*.so.1.0" % python.version):
                self.files.append(self.dir / library.name)
                shutil.copy(library, self.files[-1])
            self.env["LD_LIBRARY_PATH"] = str(self.dir)
        inside = "/" + str(self.files[0].relative_to(python.root))
        self.command = [*python.command[:-1], inside]
        for file in self.files:
            file.chmod(0o755)

    def uses_copies(self, pid):
        maps = pathlib.Path("/proc/%d/maps" % pid).read_text()
        return all(file.name in maps and str(self.dir.name) in maps for file in self.files)
