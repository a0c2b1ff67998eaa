# src/onnx/schema.inc is what the script makes of the pinned onnx package.
import subprocess
import sys

import testing


def test_up_to_date():
    made = subprocess.run([sys.executable, testing.source("tools/dev/make_schema.py")], capture_output=True, text=True, check=True).stdout
    with open(testing.source("src/onnx/schema.inc"), encoding="utf-8") as f:
        assert f.read() == made, "run tools/dev/make_schema.py > src/onnx/schema.inc"


testing.main()
