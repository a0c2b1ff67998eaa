# timeout: 300
"""The independent tiny GGUF checkpoints, compiled and run through the command by the script that belongs to them: tokens and logits of
transformers on the dequantised weights."""
import os
import subprocess
import sys

import testing


def test_gguf_llama():
    archive = testing.shared("data/tiny-checkpoints.tar.xz")
    script = testing.shared("tools/run-checkpoints")
    unpack = subprocess.run([testing.source("scripts/unpack-shared"), "tiny-checkpoints"], capture_output=True, text=True, check=False)
    testing.equal(unpack.returncode, 0, f"{archive}: {unpack.stderr}")
    run = subprocess.run([sys.executable, script, unpack.stdout.strip(), "--treadle", os.environ["TREADLE"], "--filter", "gguf_llama_*", "--verbose"],
                         capture_output=True, text=True, check=False)
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAIL ")]
    testing.equal((failed, run.returncode), ([], 0), run.stdout[-3000:] + run.stderr)
    assert ", 0 failed, 0 skipped" in run.stdout and run.stdout.count("/greedy-") >= 8, run.stdout


testing.main()
