"""Packages from PyPI for the interpreters of the tests, installed once."""
import shutil

from native_build import CACHE, Locked, call


def installed(python, name, *packages):
    """The directory with the packages, as the interpreter sees it. For a chroot, which has no pip, the pip of the host gets them."""
    cache = python.root / "var" / "cache" / "spyglass-native" if python.kind == "chroot" else CACHE
    place = cache / name / python.label
    versions = place / "versions.txt"
    with Locked(CACHE / (name + ".lock")):
        if not versions.exists() or versions.read_text().split() != list(packages):
            shutil.rmtree(place, ignore_errors=True)
            command = [*python.command, "-m", "pip", "install", "--quiet", "--target", place]
            if python.kind == "chroot":
                command = ["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--target", place, "--only-binary", ":all:",
                           "--python-version", "%d.%d" % python.version]
            call([*command, *packages])
            versions.write_text("\n".join(packages))
    return "/" + str(place.relative_to(python.root))
