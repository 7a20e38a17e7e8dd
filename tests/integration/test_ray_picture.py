"""Ray's own pages in a real browser: the "CPU Flame Graph" dialog, and what its button opens.

With SPYGLASS_PICTURE=docs/images/ray-dashboard.png it takes the screenshot of the documentation.
"""
import os
import pathlib

import pytest
from conftest import ROOT, run
from test_ray_dashboard import ROOT_USER, Head

pytestmark = pytest.mark.timeout(600)
NODE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spyglass" / "node"


def test_dialog_in_a_browser(tmp_path):
    place = os.environ.get("SPYGLASS_PICTURE") or tmp_path / "dialog.png"
    head = Head("root" if ROOT_USER else "user")
    try:
        head.run_driver("Busy,Resting")
        out, _ = run("node", ROOT / "docs" / "images" / "ray-dashboard.mjs", "http://127.0.0.1:%d" % head.dashboard, place, NODE)
        assert out == "wrote %s\n" % place
        assert 20_000 < pathlib.Path(place).stat().st_size < 400_000
    finally:
        head.close()
