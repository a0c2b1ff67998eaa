# timeout: 900
# labels: slow
"""tests/api/test_parity.py once more, with every graph on the engine ort: there, caches are given by the engine instead of being written in
place, and what is cut back, forked or shared by rows takes other ways."""
import os
import runpy

import testing

os.environ["TREADLE_ENGINE"] = "ort"


def test_parity_on_ort():
    os.environ["TREADLE_ORT_LIB"] = testing.ort_library()
    testing.shared("data/pipelines.tar.xz")
    try:
        runpy.run_path(testing.source("tests/api/test_parity.py"), run_name="__main__")
    except SystemExit as end:
        testing.equal(end.code, 0)


testing.main()
