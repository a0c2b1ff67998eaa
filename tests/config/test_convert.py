# timeout: 300
"""`treadle convert-config`: the version 2 file plans as the folder did, for folders of others, whatever their version."""
import glob
import json
import os
import shutil
import tarfile

import testing


def plan(folder):
    """What explain says of the plan; for a folder with errors the errors without their places."""
    run = testing.treadle("explain", folder, "--json")
    if run.returncode == 0:
        return json.loads(run.stdout)["plan"]
    report = json.loads(testing.treadle("check", folder, "--json").stdout)
    return sorted(m["message"] for m in report["messages"] if m["level"] == "error")


def check(folder, temp):
    copy = os.path.join(temp, "copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    out = os.path.join(copy, "genai_config.json")
    before = plan(copy)
    run = testing.treadle("convert-config", folder, "-o", out)
    testing.equal(run.returncode, 0, f"{folder}: {run.stderr}")
    with open(out, encoding="utf-8") as f:
        testing.equal(json.load(f)["version"], 2, folder)
    after = plan(copy)
    if isinstance(before, list):  # a fault in the graphs is one in both; its words may name the place to mend it
        testing.equal(isinstance(after, list), True, folder)
        testing.equal(len(after) > 0, True, folder)
    else:
        testing.equal(after, before, folder)
    again = testing.treadle("convert-config", copy)  # what is converted stays as it is
    with open(out, encoding="utf-8") as f:
        testing.equal(again.stdout, f.read(), folder)


def folders_of(archive, temp):
    with tarfile.open(testing.shared(archive)) as tar:
        tar.extractall(temp, filter="tar")
    for folder, _, files in sorted(os.walk(temp)):
        graphs = [f for f in files if f.endswith(".onnx")] or glob.glob(os.path.join(glob.escape(folder), "*", "model.onnx"))
        if "b15-errors" not in folder and (graphs and os.path.basename(os.path.dirname(folder)) != "b15-errors" and "golden.json" in files
                                           or "genai_config.json" in files):
            yield folder


def test_pipelines():
    with testing.temp_dir() as temp:
        found = list(folders_of("data/pipelines.tar.xz", os.path.join(temp, "all")))
        testing.equal(len(found) > 50, True)
        for folder in found:
            if "b19-single-file" not in folder:  # its config is not a file of the folder
                check(folder, temp)


def test_upstream():
    with testing.temp_dir() as temp:
        found = list(folders_of("data/ort-genai-test-models.tar.xz", os.path.join(temp, "all")))
        testing.equal(len(found), 13)
        for folder in found:
            check(folder, temp)


testing.main()
