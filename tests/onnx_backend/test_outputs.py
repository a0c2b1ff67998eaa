# timeout: 300
"""Official node cases with some of their outputs not asked for: named but read by nobody, or without a name. The others keep their values,
whichever they are; an op must not count on its first output being wanted."""
import itertools
import os
import shutil

import testing


def subsets(n):
    return itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(1, n))


def write_case(source, target, kept, unnamed):
    """The case with only the graph outputs `kept`."""
    import onnx
    model = onnx.load(os.path.join(source, "model.onnx"))
    graph, node = model.graph, model.graph.node[0]
    names = [o.name for o in graph.output]
    for i in reversed(range(len(names))):
        if i in kept:
            continue
        del graph.output[i]
        if unnamed:
            for k, name in enumerate(node.output):
                if name == names[i]:
                    node.output[k] = ""
    for folder in (f for f in os.listdir(source) if f.startswith("test_data_set_")):
        os.makedirs(os.path.join(target, folder))
        for file in os.listdir(os.path.join(source, folder)):
            if file.startswith("input_"):
                shutil.copy(os.path.join(source, folder, file), os.path.join(target, folder))
        for i, k in enumerate(kept):
            shutil.copy(os.path.join(source, folder, f"output_{k}.pb"), os.path.join(target, folder, f"output_{i}.pb"))
    onnx.save(model, os.path.join(target, "model.onnx"))


def test_any_outputs():
    import onnx
    suite = testing.model("onnx-suite/node")
    with testing.temp_dir() as here:
        n = 0
        for name in sorted(os.listdir(suite)):
            source = os.path.join(suite, name)
            if not os.path.exists(os.path.join(source, "model.onnx")):
                continue
            model = onnx.load(os.path.join(source, "model.onnx"))
            if len(model.graph.output) < 2 or len(model.graph.node) != 1:
                continue
            for kept in subsets(len(model.graph.output)):
                for unnamed in (False, True):
                    case = f"{name}_{'_'.join(map(str, kept))}{'_unnamed' if unnamed else ''}"
                    write_case(source, os.path.join(here, case), kept, unnamed)
                    n += 1
        assert n > 300, n
        for passes in ("all", "none"):
            run = testing.treadle("conformance", here, "--passes", passes)
            failed = [line for line in run.stdout.splitlines() if line.startswith("FAIL ")]
            testing.equal((failed, run.returncode), ([], 0), passes + run.stderr[-2000:])
            assert " 0 failed" in run.stdout.splitlines()[-1], run.stdout[-300:]


testing.main()
