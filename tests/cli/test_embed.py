"""`treadle embed`: the vectors of a fixture, printed and as a file, and what is refused."""
import json
import os
import shutil
import tarfile

import drive
import testing
import tiny

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


def test_texts():
    """Texts by -p, by the lines of a file and of standard input are the same texts; empty lines are none."""
    folder = shutil.copytree(fixture(), os.path.join(work.name, "with-tokenizer"))
    model = tiny.Model()
    shutil.copy(os.path.join(model.folder, "tokenizer.json"), folder)
    ids = [testing.treadle_json("tokenize", folder, "-p", text, "--add-special", "--json")["ids"] for text in ("AB", "C")]
    want = testing.treadle("embed", folder, *(x for i in ids for x in ("--ids", ",".join(map(str, i)))))
    testing.equal((want.returncode, len(want.stdout.splitlines())), (0, 2), want.stderr)
    lines = os.path.join(work.name, "lines.txt")
    with open(lines, "w", encoding="utf-8") as f:
        f.write("AB\r\n\nC")
    for more, stdin in ((("-p", "AB", "-p", "C"), ""), ((), "AB\nC\n"), (("-f", "-"), "AB\nC"), (("-f", lines), ""),
                        (("-p", "AB", "-f", "-"), "C\n")):
        got = testing.treadle("embed", folder, *more, stdin=stdin)
        testing.equal((got.returncode, got.stdout), (0, want.stdout), f"{more} {got.stderr}")
    empty = testing.treadle("embed", folder, stdin="\n\n")
    assert empty.returncode == 2 and "there is no text" in empty.stderr, empty


def test_what_is_appended_is_seen_with_what_was_there():
    """The graph keeps no state: the pass after a second append is that of the whole text."""
    import numpy as np
    folder = fixture()
    case = json.load(open(os.path.join(folder, "golden.json")))["cases"][0]
    want = np.load(os.path.join(folder, "golden.npz"))[case["expect"]["embeddings"]["npz"]]
    to = os.path.join(work.name, "hidden.npy")
    with drive.Drive(folder) as d:
        for prompt, vector in zip(case["prompts"], want):
            for part in (prompt[:1], prompt[1:]):
                if part:
                    d.ask(op="encode", prompts=[part], to={"last_hidden_state": to}, **({} if part == prompt[:1] else {"continue": True}))
            mean = np.load(to)[0].mean(0)
            testing.near(mean / np.linalg.norm(mean), vector / np.linalg.norm(vector), case["expect"]["tolerance"])


def test_refused():
    plain = testing.source("tests/data/pipelines/concat")
    none = testing.treadle("embed", plain)
    testing.equal(none.returncode, 2)
    decoder = testing.treadle("embed", plain, "--ids", "1,2")
    assert decoder.returncode != 0 and "gives no vectors" in decoder.stderr, decoder
    wrong = testing.treadle("embed", plain, "--ids", "1,x")
    testing.equal(wrong.returncode, 2)


testing.main()
