# timeout: 900
"""The official ONNX backend suite, with rewrites and without: what has only known ops passes, the rest is a named error, nothing
crashes. How many cases that are is not written down: whoever adds an op adds its cases."""
import os

import testing

SUITE = "onnx-suite"
N_NODE = 1765
FOLDERS = ("node", "simple", "pytorch-operator", "pytorch-converted")


def ops_of(path):
    """{(domain, op, since version)} of a model, bodies of control flow included and function calls not."""
    import onnx
    model = onnx.load(path, load_external_data=False)
    versions = {o.domain: o.version for o in model.opset_import}
    local = {(f.domain, f.name) for f in model.functions}
    found = set()

    def walk(nodes):
        for node in nodes:
            if (node.domain, node.op_type) not in local:
                found.add((node.domain if node.domain != "ai.onnx" else "", node.op_type, versions.get(node.domain, versions.get(""))))
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs]:
                    walk(graph.node)

    walk(model.graph.node)
    for function in model.functions:
        walk(function.node)
    return found


def conformance(*arguments):
    run = testing.treadle("conformance", *arguments, "--json", timeout=800)
    assert run.returncode in (0, 1), f"exit {run.returncode}\n{run.stderr[-2000:]}"
    import json
    return json.loads(run.stdout), run.returncode


def check(folder, passes):
    """No failures; skips only with a reason that names what is missing."""
    path = testing.model(os.path.join(SUITE, folder))
    answer, code = conformance(path, "--passes", passes)
    failed = [f"{c['name']}: {c['why']}" for c in answer["cases"] if c["result"] == "failed"]
    testing.equal((failed, answer["failed"], code), ([], 0, 0))
    testing.equal(answer["passed"] + answer["skipped"], len(answer["cases"]))
    testing.equal(len(answer["cases"]), len([n for n in os.listdir(path) if os.path.exists(os.path.join(path, n, "model.onnx"))]))
    return answer, path


def test_node_with_passes():
    answer, _ = check("node", "all")
    testing.equal(len(answer["cases"]), N_NODE)


def test_node_without_passes():
    answer, _ = check("node", "none")
    testing.equal(len(answer["cases"]), N_NODE)


def test_both_ways_run_the_same_cases():
    path = testing.model(os.path.join(SUITE, "node"))
    both = [{c["name"]: c["result"] for c in conformance(path, "--passes", p)[0]["cases"]} for p in ("all", "none")]
    testing.equal(both[0], both[1])


def test_plain_kernels_on_one_thread():
    path = testing.model(os.path.join(SUITE, "node"))
    answer, _ = conformance(path, "--threads", 1, "--cpu", "none")
    testing.equal([f"{c['name']}: {c['why']}" for c in answer["cases"] if c["result"] == "failed"], [])


def test_other_folders():
    for folder in FOLDERS[1:]:
        for passes in ("all", "none"):
            check(folder, passes)


def test_cases_are_skipped_only_for_what_is_missing():
    """Every op of a case is known to this build -> the case ran. `treadle ops` has the ops, PyPI onnx their versions."""
    import onnx
    ours = {(o["domain"] if o["domain"] != "ai.onnx" else "", o["op"]) for o in testing.treadle_json("ops", "--json")}
    wrong = []
    for folder in FOLDERS[:2]:
        path = testing.model(os.path.join(SUITE, folder))
        answer, _ = conformance(path)
        for case in answer["cases"]:
            if case["result"] != "skipped":
                continue
            assert case["why"], case
            model = os.path.join(path, case["name"], "model.onnx")
            missing = [op for domain, op, version in ops_of(model) if (domain, op) not in ours]
            if not missing:
                wrong.append(f"{case['name']}: {case['why']}")
    testing.equal(wrong, [])


def test_one_case_and_a_filter():
    path = testing.model(os.path.join(SUITE, "node"))
    one = testing.treadle("conformance", os.path.join(path, "test_add"))
    testing.equal((one.returncode, one.stdout.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))
    two = testing.treadle("conformance", path, "--filter", "test_add*")
    names = [n for n in os.listdir(path) if n.startswith("test_add")]
    testing.equal(sum(map(int, two.stdout.splitlines()[-1].replace(",", "").split()[0::2])), len(names))
    none = testing.treadle("conformance", path, "--filter", "nosuch*")
    testing.equal((none.returncode, none.stdout.splitlines()[-1]), (1, "0 passed, 0 failed, 0 skipped"))


def test_a_wrong_output_fails():
    """The comparison looks: with the expected value changed, the case fails and says where."""
    import shutil
    import numpy as np
    from onnx import numpy_helper, load_tensor, save_tensor
    path = testing.model(os.path.join(SUITE, "node", "test_add"))
    with testing.temp_dir() as temp:
        case = os.path.join(temp, "test_add")

        def changed(change):
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(path, case)
            file = os.path.join(case, "test_data_set_0", "output_0.pb")
            value = numpy_helper.to_array(load_tensor(file)).copy()
            save_tensor(numpy_helper.from_array(change(value)), file)
            run = testing.treadle("conformance", case)
            testing.equal(run.returncode, 1, run.stdout)
            testing.equal(run.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")
            return run.stdout

        def one_element(value):
            value.flat[7] += 0.1
            return value

        assert "element 7" in changed(one_element)
        assert "shape" in changed(lambda v: v.reshape(-1))
        assert "float64" in changed(lambda v: v.astype(np.float64))
        os.unlink(os.path.join(case, "test_data_set_0", "output_0.pb"))
        run = testing.treadle("conformance", case)
        testing.equal(run.returncode, 1)
        assert "output_0.pb" in run.stdout, run.stdout


testing.main()
