# timeout: 300
"""`treadle tokenize`, `detokenize` and `template`, against tokenizers and jinja2. (How texts are tokenized in depth: tests/text.)"""
import json
import os
import subprocess

import testing
import tiny

model = tiny.Model()
TEXTS = ["", "hello", "hello the in a", " lead and trail ", "na\u00efve \u65e5\u672c\u8a9e \U0001f600", "line\nfeeds\n\ttabs", "<|im_start|>user\nhello<|im_end|>\n", "a\u0301"]


def test_tokenize():
    tokenizer = model.tokenizer()
    for text in TEXTS:
        want = tokenizer.encode(text, add_special_tokens=False)
        for source in (model.folder, model.file):
            got = testing.treadle_json("tokenize", source, "--quiet", "-p", text, "--json")
            testing.equal(got, {"ids": want.ids, "tokens": want.tokens}, text)
        run = testing.treadle("tokenize", model.folder, "-p", text)
        testing.equal((run.returncode, run.stdout), (0, ",".join(map(str, want.ids)) + "\n"), text)
        special = testing.treadle_json("tokenize", model.folder, "-p", text, "--add-special", "--json")["ids"]
        testing.equal(special, tokenizer.encode(text).ids, text)


def test_detokenize():
    tokenizer = model.tokenizer()
    for text in TEXTS[1:]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for skip in (False, True):
            arguments = ["detokenize", model.folder] + ["--skip-special"] * skip
            want = tokenizer.decode(ids, skip_special_tokens=skip) + "\n"
            listed = ",".join(map(str, ids))
            run = testing.treadle(*arguments, "--ids", listed)
            testing.equal((run.returncode, run.stdout), (0, want), text)
            testing.equal(testing.treadle(*arguments, stdin=listed + "\n").stdout, want, text)


def test_wrong_ids():
    for ids, code in (("99999", 3), ("-1", 3), ("x", 2), ("", 2), ("1,,2", 2)):
        run = testing.treadle("detokenize", model.folder, "--ids", ids)
        assert run.returncode in ((0, code) if code == 3 else (code,)), (ids, run)


def rendered(messages, generation=True, **more):
    from jinja2 import Template
    return Template(tiny.TEMPLATE).render(messages=messages, add_generation_prompt=generation, **more)


def test_template():
    user = [{"role": "user", "content": "hello \u00e9\n"}]
    system = [{"role": "system", "content": "be brief"}]
    for arguments, messages in ((["-p", "hello \u00e9\n"], user), (["-p", "hello \u00e9\n", "--system", "be brief"], system + user)):
        for plain in (False, True):
            run = testing.treadle("template", model.folder, *arguments, *["--no-generation-prompt"] * plain)
            testing.equal((run.returncode, run.stdout), (0, rendered(messages, not plain)))
    conversation = system + user + [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "and?"}]
    path = os.path.join(model.work.name, "messages.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(conversation, f)
    testing.equal(testing.treadle("template", model.folder, "--messages", path).stdout, rendered(conversation))
    testing.equal(testing.treadle("template", model.folder, "--messages", "-", stdin=json.dumps(conversation)).stdout, rendered(conversation))
    testing.equal(testing.treadle("template", model.file, "--quiet", "-f", "-", stdin="x\n").stdout, rendered([{"role": "user", "content": "x\n"}]))


def test_wrong_messages():
    for text, word in (("{", "1:2"), ("[", "1:2"), ("[1]", "message 0"), ("{}", "messages"), ('[{"role": 1, "role": 2}]', "role"), ("", "messages"), ("\xff", "messages")):
        run = testing.treadle("template", model.folder, "--messages", "-", stdin=text)
        assert run.returncode in (2, 3) and run.stdout == "" and word in run.stderr, (text, run)
    run = testing.treadle("template", model.folder, "--messages", "/nosuch.json")
    assert run.returncode == 1 and "/nosuch.json" in run.stderr, run
    run = testing.treadle("template", model.folder, "--messages", "-", "-p", "x")
    testing.equal(run.returncode, 2)


def test_a_template_that_is_wrong():
    """The model opens and runs by ids; text gets an error with line and column."""
    for bad, words in (("{% for %}", ("1",)), ("line one\n{{ nosuch.x.y }}", ("2",)), ("{{ raise_exception('no such role') }}", ("no such role",)),
                       ("{% for i in range(10000000000) %}x{% endfor %}", ())):
        other = tiny.Model(template=bad)
        run = testing.treadle("template", other.folder, "-p", "x", timeout=60)
        assert run.returncode in (1, 3) and run.stdout == "", (bad, run)
        for word in words:
            assert word in run.stderr, (bad, run.stderr)
        testing.equal(testing.treadle("run", other.folder, "--ids", "5", "-n", 2).returncode, 0)
        testing.equal(testing.treadle("run", other.folder, "-p", "x", "--no-template", "-n", 2).returncode, 0)
        assert testing.treadle("run", other.folder, "-p", "x", "-n", 2).returncode in (1, 3), bad


def test_a_tokenizer_that_is_not_understood():
    path = os.path.join(model.work.name, "odd")
    subprocess.run(["cp", "-r", model.folder, path], check=True)
    file = os.path.join(path, "tokenizer.json")
    with open(file, encoding="utf-8") as f:
        tokenizer = json.load(f)
    tokenizer["pre_tokenizer"] = {"type": "FromTheFuture"}
    with open(file, "w", encoding="utf-8") as f:
        json.dump(tokenizer, f)
    run = testing.treadle("tokenize", path, "-p", "x")
    testing.equal((run.returncode, run.stdout), (3, ""))
    assert "FromTheFuture" in run.stderr and "tokenizer.json" in run.stderr, run.stderr
    testing.equal(testing.treadle("run", path, "--ids", "5,6", "-n", 2).returncode, 0)


testing.main()
