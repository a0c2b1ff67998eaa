"""`treadle embed`: the vectors of a fixture, printed and as a file, and what is refused."""
import json
import os
import tarfile

import testing

work = testing.temp_dir()


def fixture():
    target = os.path.join(work.name, "pipelines", "b20-embed-mean")
    if not os.path.isdir(target):
        with tarfile.open(testing.shared("data/pipelines.tar.xz")) as archive:
            archive.extractall(work.name, [m for m in archive.getmembers() if m.name.startswith("pipelines/b20-embed-mean/")])
    return target


def test_vectors():
    import numpy as np
    folder = fixture()
    case = json.load(open(os.path.join(folder, "golden.json")))["cases"][0]
    want = np.load(os.path.join(folder, "golden.npz"))[case["expect"]["embeddings"]["npz"]]
    ids = [x for p in case["prompts"] for x in ("--ids", ",".join(map(str, p)))]
    printed = testing.treadle("embed", folder, *ids)
    testing.equal(printed.returncode, 0, printed.stderr)
    testing.near([json.loads(line) for line in printed.stdout.splitlines()], want, case["expect"]["tolerance"])
    to = os.path.join(work.name, "vectors.npy")
    testing.equal(testing.treadle("embed", folder, *ids, "-o", to).returncode, 0)
    testing.near(np.load(to), want, case["expect"]["tolerance"])


def test_refused():
    tiny = testing.source("tests/data/pipelines/concat")
    none = testing.treadle("embed", tiny)
    testing.equal(none.returncode, 2)
    decoder = testing.treadle("embed", tiny, "--ids", "1,2")
    assert decoder.returncode != 0 and "gives no vectors" in decoder.stderr, decoder
    wrong = testing.treadle("embed", tiny, "--ids", "1,x")
    testing.equal(wrong.returncode, 2)


testing.main()
