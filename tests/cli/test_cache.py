# timeout: 300
"""GGUF files given to `treadle run` are compiled into the cache once; `treadle cache`; what happens when the cache is of no use."""
import hashlib
import json
import os
import shutil
import subprocess

import testing
import tiny

model = tiny.Model()
WANT = model.greedy([5, 6, 7], 6)[0]


def environment(cache, **more):
    return {**{k: v for k, v in os.environ.items() if k not in ("TREADLE_CACHE", "HOME")}, "XDG_CACHE_HOME": cache, **more}


def answer(path, env, *more):
    return testing.treadle("run", path, "--ids", "5,6,7", "-n", 6, "--json", *more, env=env)


def tokens(done):
    testing.equal(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)["results"][0]["token_ids"]


def listing(env):
    return testing.treadle_json("cache", "--json", env=env)


def tree(folder):
    out = {}
    for top, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(top, name), "rb") as f:
                out[os.path.relpath(os.path.join(top, name), folder)] = hashlib.sha256(f.read()).hexdigest()
    return out


def test_compiled_once_and_said_so():
    with testing.temp_dir() as temp:
        env = environment(temp)
        first = answer(model.file, env)
        testing.equal(tokens(first), WANT)
        assert "compiling" in first.stderr and model.file in first.stderr and temp in first.stderr, first.stderr
        second = answer(model.file, env)
        testing.equal((tokens(second), second.stderr), (WANT, ""))
        copy = os.path.join(temp, "another name")
        shutil.copy(model.file, copy)
        testing.equal(answer(copy, env).stderr, "", "the key is the content")
        other = os.path.join(temp, "other.gguf")
        tiny.write(other, seed=8)
        assert "compiling" in answer(other, env).stderr
        testing.equal(len([e for e in listing(env)["entries"] if e["kind"] == "models"]), 2)
        quiet = os.path.join(temp, "quiet.gguf")
        tiny.write(quiet, seed=9)
        testing.equal(answer(quiet, env, "--quiet").stderr, "")


def test_list_and_clear():
    with testing.temp_dir() as temp:
        env = environment(temp)
        root = os.path.join(temp, "treadle")
        testing.equal(listing(env), {"folder": root, "entries": [], "bytes": 0})
        testing.equal(testing.treadle("cache", "clear", env=env).returncode, 0)
        answer(model.file, env)
        got = listing(env)
        testing.equal(list(got), ["folder", "entries", "bytes"])
        assert all(list(e) == ["kind", "path", "bytes"] and e["path"].startswith(root) for e in got["entries"]), got
        sizes = sum(os.path.getsize(os.path.join(top, n)) for top, _, names in os.walk(root) for n in names)
        testing.equal((sum(e["bytes"] for e in got["entries"]), got["bytes"]), (sizes, sizes))
        text = testing.treadle("cache", "list", env=env)
        testing.equal(text.stdout, testing.treadle("cache", env=env).stdout)
        assert got["entries"][0]["path"] in text.stdout and "in all" in text.stdout, text.stdout
        foreign = os.path.join(root, "mine.txt")
        with open(foreign, "w", encoding="utf-8") as f:
            f.write("not treadle's")
        run = testing.treadle("cache", "clear", env=env)
        assert run.returncode == 0 and run.stdout.startswith("removed "), run
        testing.equal(listing(env)["entries"], [])
        assert os.path.exists(foreign), "what treadle did not write stays"


def test_links_in_the_cache_are_not_followed():
    with testing.temp_dir() as temp:
        env = environment(os.path.join(temp, "cache"))
        answer(model.file, env)
        precious = os.path.join(temp, "precious")
        os.makedirs(precious)
        with open(os.path.join(precious, "file"), "w", encoding="utf-8") as f:
            f.write("x")
        os.symlink(precious, os.path.join(temp, "cache", "treadle", "models", "link"))
        testing.equal(testing.treadle("cache", "clear", env=env).returncode, 0)
        assert os.path.exists(os.path.join(precious, "file"))


def test_the_variables_in_their_order():
    with testing.temp_dir() as temp:
        a, b = os.path.join(temp, "a"), os.path.join(temp, "b")
        testing.equal(listing(environment(b, TREADLE_CACHE=a))["folder"], a)
        bare = {k: v for k, v in environment("", HOME=temp).items() if k != "XDG_CACHE_HOME"}
        testing.equal(listing(bare)["folder"], os.path.join(temp, ".cache", "treadle"))
        del bare["HOME"]
        run = testing.treadle("cache", env=bare)
        if run.returncode:  # no home in the password file either
            assert "XDG_CACHE_HOME" in run.stderr, run.stderr
        run = answer(model.folder, bare)
        testing.equal(tokens(run), WANT, "folders need no cache")


def test_two_processes_may_race():
    with testing.temp_dir() as temp:
        env = environment(temp)
        argv = [os.environ["TREADLE"], "run", model.file, "--ids", "5,6,7", "-n", "6", "--json"]
        running = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(6)]
        for p in running:
            out, said = p.communicate(timeout=120)
            testing.equal(p.returncode, 0, said)
            testing.equal(json.loads(out)["results"][0]["token_ids"], WANT)
        models = os.listdir(os.path.join(temp, "treadle", "models"))
        testing.equal(len(models), 1, f"nothing else is left: {models}")
        testing.equal(sorted(os.listdir(os.path.join(temp, "treadle", "models", models[0]))), sorted(os.listdir(model.folder)))


def test_builds_of_one_folder_may_race():
    """Also through a link, which stays one."""
    with testing.temp_dir() as temp:
        os.mkdir(os.path.join(temp, "real"))
        os.symlink("real", os.path.join(temp, "link"))
        for out in ("new", "link"):
            argv = [os.environ["TREADLE"], "build", model.file, "-o", os.path.join(temp, out), "-q"]
            running = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
            for p in running:
                said = p.communicate(timeout=120)[1]
                testing.equal(p.returncode, 0, said)
            testing.equal(sorted(os.listdir(os.path.join(temp, out))), sorted(os.listdir(model.folder)), out)
        testing.equal(sorted(os.listdir(temp)), ["link", "new", "real"], "nothing else is left")
        assert os.path.islink(os.path.join(temp, "link"))


def test_a_folder_that_cannot_be_written():
    """Even root cannot make folders below a file."""
    with testing.temp_dir() as temp:
        blocked = os.path.join(temp, "file")
        with open(blocked, "w", encoding="utf-8") as f:
            f.write("x")
        env = environment(blocked)
        testing.equal(tokens(answer(model.folder, env)), WANT, "packed weights are then kept in memory")
        run = answer(model.file, env)
        assert run.returncode in (1, 3) and run.stdout == "" and blocked in run.stderr, run
        for words in (("cache",), ("cache", "clear")):
            testing.equal(testing.treadle(*words, env=env).returncode, 0)


def test_a_read_only_folder_that_is_filled():
    with testing.temp_dir() as temp:
        env = environment(temp)
        answer(model.file, env)
        before = tree(temp)
        for top, _, _ in os.walk(temp, topdown=False):
            os.chmod(top, 0o555)
        try:
            testing.equal(tokens(answer(model.file, env)), WANT)
            testing.equal(tree(temp), before)
        finally:
            for top, _, _ in os.walk(temp):
                os.chmod(top, 0o755)


def test_damage_is_noticed_and_mended_by_clearing():
    """An interrupted build leaves nothing that looks whole; a damaged packed file is made anew."""
    with testing.temp_dir() as temp:
        env = environment(temp)
        answer(model.file, env)
        packed = os.path.join(temp, "treadle", "packed")
        for top, _, names in os.walk(packed):
            for name in names:
                with open(os.path.join(top, name), "r+b") as f:
                    f.truncate(os.path.getsize(os.path.join(top, name)) // 2)
        testing.equal(tokens(answer(model.file, env)), WANT)
        models = os.path.join(temp, "treadle", "models")
        for folder in os.listdir(models):
            os.unlink(os.path.join(models, folder, "model.onnx"))
        run = answer(model.file, env)
        testing.equal(run.returncode, 3)
        testing.equal(testing.treadle("cache", "clear", env=env).returncode, 0)
        testing.equal(tokens(answer(model.file, env)), WANT)


def test_a_build_that_fails_leaves_nothing():
    with testing.temp_dir() as temp:
        env = environment(os.path.join(temp, "cache"))
        bad = os.path.join(temp, "bad.gguf")
        with open(model.file, "rb") as f:
            data = f.read()
        with open(bad, "wb") as f:
            f.write(data[:len(data) // 2])
        run = answer(bad, env)
        testing.equal((run.returncode, run.stdout), (3, ""))
        assert "bad.gguf" in run.stderr, run.stderr
        testing.equal(tree(os.path.join(temp, "cache")), {})


testing.main()
