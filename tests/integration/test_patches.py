"""The patch of docs/ray.md fits the installed Ray."""
import importlib.util
import pathlib
import py_compile
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

pytestmark = [pytest.mark.smoke, pytest.mark.skipif(not shutil.which("patch"), reason="needs patch")]
CHANGED = "ray/dashboard/modules/reporter/profile_manager.py"


def test_ray(tmp_path):
    installed = pathlib.Path(importlib.util.find_spec("ray").origin).parents[1]
    (tmp_path / CHANGED).parent.mkdir(parents=True)
    shutil.copy(str(installed / CHANGED), str(tmp_path / CHANGED))
    command, = re.findall(r'^\$ (patch -p2 -d )"\$\(.*\)"( < docs/patches/ray.patch)$', (ROOT / "docs" / "ray.md").read_text(), re.M)
    subprocess.run("%s'%s'%s" % (command[0], tmp_path, command[1]), shell=True, cwd=ROOT, check=True)
    py_compile.compile(str(tmp_path / CHANGED), doraise=True)
    assert '"spyglass", "py-spy"' in (tmp_path / CHANGED).read_text()
