# timeout: 300
"""`treadle run`: what it prints, where, and how it ends. Expected tokens and logits are NumPy's."""
import json
import os
import pty
import signal
import subprocess
import time

import numpy as np

import testing
import tiny

model = tiny.Model()
IDS = [5, 6, 7]


def run(*arguments, **more):
    return testing.treadle("run", model.folder, *arguments, **more)


def results(*arguments, **more):
    done = run(*arguments, "--json", **more)
    testing.equal((done.returncode, done.stderr), (0, ""), arguments)
    return json.loads(done.stdout)


def ids(*rows):
    return [word for row in rows for word in ("--ids", ",".join(map(str, row)))]


def test_greedy_tokens_and_logits():
    want, logits = model.greedy(IDS, 10)
    path = os.path.join(model.work.name, "steps.npy")
    for more in ([], ["--activations", "int8"], ["--cpu", "none"], ["--no-passes"], ["--threads", "1"], ["--threads", "3"], ["--no-cache"]):
        row = results(*ids(IDS), "-n", 10, "--logits", path, *more)["results"][0]
        testing.equal((row["prompt_ids"], row["token_ids"], row["finish_reason"]), (IDS, want, "length"), more)
        got = np.load(path)
        testing.equal((got.dtype.str, got.shape), ("<f4", (1, 10, tiny.VOCAB)))
        testing.near(got[0], logits, 1e-3, str(more))
        testing.equal(row["text"], model.tokenizer().decode(want), more)


def test_json_shape():
    answer = results(*ids(IDS), "-n", 4)
    testing.equal(list(answer), ["results", "timings", "peak_rss_mb"])
    testing.equal(list(answer["results"][0]), ["prompt_ids", "token_ids", "text", "finish_reason"])
    testing.equal(list(answer["timings"]), ["load_ms", "first_token_ms", "prefill_tokens_per_s", "decode_tokens_per_s"])
    numbers = [*answer["timings"].values(), answer["peak_rss_mb"]]
    assert all(isinstance(n, (int, float)) and n > 0 for n in numbers), numbers
    done = run(*ids(IDS), "-n", 4, "--json")
    testing.equal(done.stdout.count("\n"), 1, "one line")


def test_batch():
    """Rows of different lengths: each gives what it gives alone; logits of rows that ended early are NaN."""
    rows = [[5, 6, 7], [9], [40, 41, 42, 43, 44]]
    path = os.path.join(model.work.name, "batch.npy")
    answer = results(*ids(*rows), "-n", 6, "--logits", path)["results"]
    testing.equal([r["prompt_ids"] for r in answer], rows)
    logits = np.load(path)
    testing.equal(logits.shape, (3, 6, tiny.VOCAB))
    for i, row in enumerate(rows):
        tokens, want = model.greedy(row, 6)
        testing.equal(answer[i]["token_ids"], tokens, f"row {i}")
        testing.near(logits[i], want, 1e-3, f"row {i}")
    eos = answer[0]["token_ids"][2]
    first = answer[0]["token_ids"].index(eos) + 1
    config = ["--set", f"/tokens/eos=[{eos}]"]
    ended = results(*ids(rows[0], rows[2]), "-n", 6, "--logits", path, *config)["results"]
    testing.equal((ended[0]["token_ids"], ended[0]["finish_reason"]), (answer[0]["token_ids"][:first], "eos"))
    assert np.isnan(np.load(path)[0, first:]).all() and not np.isnan(np.load(path)[0, :first]).any()
    ignored = results(*ids(rows[0]), "-n", 6, "--ignore-eos", *config)["results"]
    testing.equal((ignored[0]["token_ids"], ignored[0]["finish_reason"]), (answer[0]["token_ids"], "length"))


def test_nothing_but_the_answer_on_standard_output():
    text = results("-p", "hello", "-n", 8)["results"][0]["text"]
    for more in ([], ["--verbose"], ["--quiet"], ["--threads", "2"]):
        done = run("-p", "hello", "-n", 8, *more)
        testing.equal((done.returncode, done.stdout), (0, text + "\n"), more)
        testing.equal("tokens/s" in done.stderr, "--verbose" in more, more)


def test_the_prompt_comes_from_any_place():
    from jinja2 import Template
    tokenizer = model.tokenizer()

    def want(text, system=None):
        messages = [{"role": "system", "content": system}] * (system is not None) + [{"role": "user", "content": text}]
        rendered = Template(tiny.TEMPLATE).render(messages=messages, add_generation_prompt=True)
        return tokenizer.encode(rendered, add_special_tokens=False).ids

    def got(*arguments, **more):
        return results(*arguments, "-n", 1, **more)["results"][0]["prompt_ids"]

    text = "hello the\n na\u00efve \u65e5\u672c <|im_end|>"
    path = os.path.join(model.work.name, "a prompt \u00e9.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text + "\n")
    testing.equal(got("-p", text), want(text))
    testing.equal(got("-f", path), want(text + "\n"), "a file is taken as it is")
    testing.equal(got("-f", "-", stdin=text + "\n"), want(text + "\n"))
    testing.equal(got(stdin=text + "\n"), want(text), "the line feed of an echo goes")
    testing.equal(got("-p", text, "--system", "be brief"), want(text, "be brief"))
    testing.equal(got("-p", text, "--no-template"), tokenizer.encode(text).ids)
    testing.equal(got("-p", ""), want(""), "an empty message is a message")


def test_an_empty_prompt():
    done = run("-p", "", "--no-template")
    testing.equal((done.returncode, done.stdout), (2, ""))
    assert "the prompt is empty" in done.stderr, done.stderr


def test_a_prompt_that_is_too_long_names_both_numbers():
    for more in ([], ["-n", "1"]):
        done = run(*ids([5] * 130), *more)
        testing.equal((done.returncode, done.stdout), (1, ""), done.stderr)
        assert "130" in done.stderr and "128" in done.stderr, done.stderr
    full = results(*ids([5] * 120))["results"][0]
    testing.equal((len(full["token_ids"]), full["finish_reason"]), (8, "length"), "the context ends the answer")


def test_bytes_that_are_no_utf8():
    done = subprocess.run([os.environ["TREADLE"].encode(), b"run", os.fsencode(model.folder), b"-p", b"a\xff\xfe\xc3(", b"-n", b"2", b"--json"],
                          capture_output=True, check=False)
    testing.equal(done.returncode, 0, done.stderr)
    assert json.loads(done.stdout.decode())["results"][0]["prompt_ids"]
    done = subprocess.run([os.environ["TREADLE"].encode(), b"run", b"no\xffsuch", b"-p", b"x"], capture_output=True, check=False)
    testing.equal(done.returncode, 3)
    done = subprocess.run([os.environ["TREADLE"].encode(), b"run", os.fsencode(model.folder), b"--\xff\xfe"], capture_output=True, check=False)
    testing.equal(done.returncode, 2)


def test_names_with_spaces():
    with testing.temp_dir() as temp:
        folder = os.path.join(temp, " my model (1) \u00e9'")
        out = testing.treadle("build", model.file, "-o", folder)
        testing.equal(out.returncode, 0, out.stderr)
        path = os.path.join(temp, "lo gits.npy")
        done = testing.treadle("run", folder, *ids(IDS), "-n", 2, "--logits", path)
        testing.equal((done.returncode, done.stderr), (0, ""))
        testing.equal(np.load(path).shape, (1, 2, tiny.VOCAB))
        for name in ("two words.gguf", "-dash.gguf"):
            os.link(model.file, os.path.join(temp, name))
            done = testing.treadle("run", *ids(IDS), "-n", 2, "--quiet", "--", name, cwd=temp)
            testing.equal((done.returncode, done.stderr), (0, ""), name)


def test_a_misspelt_key_is_not_lost_silently():
    done = run(*ids(IDS), "-n", 1, "--set", "/generation/max_lenght=5")
    testing.equal(done.returncode, 0, done.stderr)
    assert "max_lenght" in done.stderr and 'Did you mean "max_length"?' in done.stderr, done.stderr
    testing.equal(run(*ids(IDS), "-n", 1, "--set", "/generation/max_lenght=5", "-q").stderr, "")


def test_seeds():
    def draw(*more):
        return results(*ids(IDS), "-n", 16, "--temperature", "1.2", *more)["results"][0]["token_ids"]

    testing.equal(draw("--seed", "7"), draw("--seed", "7", "--threads", "1"))
    assert len({tuple(draw("--seed", str(s))) for s in range(4)}) > 1, "seeds change nothing"
    testing.equal(draw("--seed", "7", "--greedy"), model.greedy(IDS, 16)[0])
    testing.equal(results(*ids(IDS), "-n", 16, "--seed", "7", "--temperature", "0")["results"][0]["token_ids"], model.greedy(IDS, 16)[0])
    testing.equal(draw("--seed", "7", "--top-k", "1"), model.greedy(IDS, 16)[0])
    testing.equal(draw("--seed", "7", "--min-p", "1"), model.greedy(IDS, 16)[0])
    assert len({tuple(draw()) for _ in range(6)}) > 1, "without a seed, runs differ"


def test_beams():
    def tokens(*more):
        return results(*ids(IDS), "-n", 8, *more)["results"][0]["token_ids"]
    testing.equal(tokens("--beams", 1), tokens())
    testing.equal(tokens("--beams", 3), tokens("--set", "/generation/beam/num_beams=3"))
    wrong = ((0, (), "--beams: expected"), (2, ("--stop", "a"), "beam search takes neither"), (2, ("--logits", "no.npy"), "keeps no logits"),
             (2000, (), "num_beams from 1 to 1024"))
    for beams, more, words in wrong:
        done = run(*ids(IDS), "--beams", beams, *more)
        assert done.returncode == 2 and words in done.stderr, done


def test_stop_strings():
    """The answer ends before the stop string, and nothing of it is streamed."""
    text = results(*ids(IDS), "-n", 24)["results"][0]["text"]
    cut = next(i for i in range(3, len(text) - 2) if text[i].isprintable() and text[i].isascii() and text.index(text[i]) == i)
    stop = text[cut:cut + 2]
    answer = results(*ids(IDS), "-n", 24, "--stop", "never seen", "--stop", stop)["results"][0]
    testing.equal((answer["text"], answer["finish_reason"]), (text[:text.index(stop)], "stop"))
    done = run(*ids(IDS), "-n", 24, "--stop", stop)
    testing.equal(done.stdout, text[:text.index(stop)] + "\n")


def test_logits_that_cannot_be_written():
    done = run(*ids(IDS), "-n", 2, "--logits", "/nosuch/folder/x.npy")
    assert done.returncode == 1 and "/nosuch/folder/x.npy" in done.stderr, done


def test_one_end_of_file_ends_a_prompt_from_a_terminal():
    master, slave = pty.openpty()
    p = subprocess.Popen([os.environ["TREADLE"], "run", model.folder, "-n", "3", "--json"], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(slave)
    os.write(master, b"hello\n\x04")
    out, error = p.communicate(timeout=60)
    os.close(master)
    testing.equal((p.returncode, error), (0, b""))
    testing.equal(json.loads(out)["results"], results("-p", "hello", "-n", 3)["results"])


def test_a_model_without_text_answers_in_ids():
    plain = tiny.Model(text=False)
    want = plain.greedy(IDS, 5)[0]
    done = testing.treadle("run", plain.folder, *ids(IDS), "-n", 5)
    testing.equal((done.returncode, done.stdout), (0, ",".join(map(str, want)) + "\n"))
    done = testing.treadle("run", plain.folder, *ids(IDS, [9]), "-n", 5)
    testing.equal(done.stdout, ",".join(map(str, want)) + "\n" + ",".join(map(str, plain.greedy([9], 5)[0])) + "\n")
    testing.equal(testing.treadle_json("run", plain.folder, *ids(IDS), "-n", 5, "--json")["results"][0]["text"], None)
    done = testing.treadle("run", plain.folder, "-p", "hello")
    testing.equal((done.returncode, done.stdout), (3, ""))
    assert "tokenizer" in done.stderr, done.stderr


def test_a_reader_that_goes_away():
    """The answer is not computed to its end for nobody."""
    with testing.temp_dir() as temp:
        long = os.path.join(temp, "long.gguf")
        tiny.write(long, context=60000)
        testing.treadle("build", long, "-o", temp + "/m")
        started = time.monotonic()
        p = subprocess.Popen([os.environ["TREADLE"], "run", temp + "/m", *ids(IDS), "--ignore-eos"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.read(3)
        p.stdout.close()
        code = p.wait(60)
        said = p.stderr.read().decode()
        p.stderr.close()
        testing.equal(code, 1, said)
        assert time.monotonic() - started < 60


def start(folder, *arguments):
    return subprocess.Popen([os.environ["TREADLE"], "run", folder, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_interrupts():
    with testing.temp_dir() as temp:
        long = os.path.join(temp, "long.gguf")
        tiny.write(long, context=60000)
        testing.equal(testing.treadle("build", long, "-o", temp + "/m").returncode, 0)
        p = start(temp + "/m", *ids(IDS), "--ignore-eos")
        first = p.stdout.read(3)
        p.send_signal(signal.SIGINT)
        rest, said = p.communicate(timeout=60)
        testing.equal((p.returncode, said), (130, b""))
        assert (first + rest).endswith(b"\n"), "what was answered ends in a line feed"
        p = start(temp + "/m", *ids(IDS), "--ignore-eos", "--json")
        time.sleep(0.5)
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=60)
        testing.equal(p.returncode, 130)
        if out:
            testing.equal(json.loads(out)["results"][0]["finish_reason"], "cancelled")
        p = start(temp + "/m")  # waits for a prompt
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        testing.equal(p.wait(20), 130)
        p.communicate()


testing.main()
