# timeout: 300
"""Help, exit codes, unknown words, environment variables: what every command has in common.

The help texts are golden files in golden/; `test_usage.py --update` (through scripts/run-python, with TREADLE set) writes them anew, for a
person to read."""
import os
import subprocess
import sys

import testing
import tiny

COMMANDS = "run chat build check inspect explain convert-config bench verify infer drive conformance cache tokenize detokenize template transcribe embed features ops devices".split()
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
model = tiny.Model()


def helps():
    yield "help.txt", ("--help",)
    for command in COMMANDS:
        yield f"help-{command}.txt", (command, "--help")


def golden(name):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as f:
        return f.read()


def version_free(text):
    return text.replace(testing.treadle("--version").stdout.split()[1], "VERSION")


def test_help_texts():
    for name, arguments in helps():
        run = testing.treadle(*arguments)
        testing.equal((run.returncode, run.stderr), (0, ""), name)
        testing.equal(version_free(run.stdout), golden(name), name)
        wide = [line for line in run.stdout.splitlines() if len(line) > 140]
        testing.equal(wide, [], name)


def test_every_way_to_ask_for_help():
    for command in COMMANDS:
        want = testing.treadle(command, "--help").stdout
        for arguments in ((command, "-h"), ("help", command), ("--help", command), (command, "nosuch", "--help")):
            run = testing.treadle(*arguments)
            testing.equal((run.returncode, run.stdout), (0, want), arguments)
    testing.equal(testing.treadle("help").stdout, testing.treadle("--help").stdout)
    for word in ("--version", "version"):
        run = testing.treadle(word)
        assert run.returncode == 0 and run.stdout.startswith("treadle ") and run.stderr == "", run


def test_the_list_has_every_command():
    listed = [line.split()[0] for line in golden("help.txt").splitlines() if line.startswith("  ") and "treadle" not in line.split()[0]]
    testing.equal(listed, COMMANDS)


def usage_error(*arguments, **more):
    run = testing.treadle(*arguments, **more)
    testing.equal((run.returncode, run.stdout), (2, ""), f"{arguments} {run.stderr}")
    return run.stderr


def has(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in {text!r}"


def test_wrong_command_lines():
    has(usage_error(), "usage: treadle COMMAND")
    has(usage_error("rnu"), '"rnu"', "Did you mean run?")
    has(usage_error("zzzzzz"), '"zzzzzz"', "treadle --help")
    has(usage_error("help", "biuld"), "Did you mean build?")
    has(usage_error("run"), "an argument is missing", "usage: treadle run", "treadle run --help")
    has(usage_error("run", "a", "b"), 'unexpected argument "b"')
    has(usage_error("run", "a", "--temprature", "1"), "--temprature", "Did you mean --temperature?")
    has(usage_error("run", "a", "--temprature=1"), "Did you mean --temperature?")
    has(usage_error("run", "a", "--temp", "1"), "Did you mean --temperature?")
    has(usage_error("run", "a", "--xyzzy"), "unknown option --xyzzy")
    has(usage_error("run", "a", "-Z"), "unknown option -Z")
    has(usage_error("run", "a", "-jx"), "unknown option -jx")
    has(usage_error("run", "a", "-p"), "--prompt needs a value")
    has(usage_error("run", "a", "--json=1"), "--json takes no value")
    has(usage_error("run", "a", "--top-k", "many"), "--top-k", "whole number", '"many"')
    has(usage_error("run", "a", "--top-k", "99999999999999999999"), "--top-k")
    has(usage_error("run", "a", "--temperature", "nan"), "--temperature", '"nan"')
    has(usage_error("run", "a", "--ids", "1,x"), "--ids", '"1,x"')
    has(usage_error("run", "a", "--ids", "1", "-p", "x"), "--ids")
    has(usage_error("run", "a", "--ids", "1", "--system", "x"), "--ids", "--system")
    has(usage_error("build", "a"), "-o DIR is missing")
    has(usage_error("build", "a", "-o", "b", "--accuracy-level", "3"), "--accuracy-level", "0 or 4", "3")
    has(usage_error("build", "a", "-o", "b", "--quantize", "q4"), "--quantize", "none", '"q4"')
    has(usage_error("cache", "purge"), "list or clear", '"purge"')
    has(usage_error("conformance", "a", "--passes", "some"), "--passes", "all or none", '"some"')
    has(usage_error("detokenize", "a", "--ids", "1;2"), '"1;2"')


def test_values_out_of_range():
    for option, value in [("--threads", "-1"), ("--threads", "99999"), ("--activations", "int4"), ("--cpu", "sse9"), ("--set", "x"),
                          ("--top-p", "1.5"), ("--min-p", "-0.5"), ("--min-p", "2"), ("--temperature", "-1"), ("--top-k", "-2"),
                          ("--repetition-penalty", "0"), ("--repetition-penalty", "-1"), ("--seed", "-1"), ("--max-new-tokens", "-5"),
                          ("--max-length", "99999"), ("--min-length", "-1"), ("--no-repeat-ngram-size", "-1"), ("--ids", "1,99999"),
                          ("--ids", "-1"), ("--ids", "")]:
        more = [] if option == "--ids" else ["--ids", "5,6"]
        said = usage_error("run", model.folder, *more, option, value)
        word = option[2:] if option != "--cpu" else "instruction sets"
        assert word in said.replace("_", "-") or option == "--ids", f"{option} {value}: {said}"
        assert value.split(",")[-1] in said, f"{option} {value}: {said}"


def test_options_after_two_dashes_are_arguments():
    run = testing.treadle("run", "--ids", "5", "--", "--nosuch")
    testing.equal(run.returncode, 3, run.stderr)
    has(run.stderr, "--nosuch")


def test_both_spellings_of_a_value():
    want = testing.treadle("run", model.folder, "--ids", "5,6,7", "--max-new-tokens", "6", "--json")
    for spelling in (("--ids=5,6,7", "--max-new-tokens=6"), ("--ids", "5,6,7", "-n", "6"), ("-n6", "--ids=5,6,7"), ("--ids", "5, 6, 7", "-n", "6")):
        run = testing.treadle("run", *spelling, model.folder, "--json")
        testing.equal(run.stdout.split('"timings"')[0], want.stdout.split('"timings"')[0], spelling)


def with_environment(*arguments, **variables):
    return testing.treadle(*arguments, env={**os.environ, **variables})


def options_of(command):
    """{name: takes a value} from the help."""
    out = {}
    for line in golden(f"help-{command}.txt").splitlines():
        words = line.split()
        if words and words[0].startswith("-") and "--help" not in words:
            at = next(i for i, w in enumerate(words) if w.startswith("--"))
            out[words[at][2:]] = line[34:35] != " " or bool(line[:34].split("--")[1].split()[1:])
    return out


def test_each_option_is_an_environment_variable():
    """A value that is no value is refused, by the variable's name, for all options that take numbers; texts are taken."""
    numbers = {"max-new-tokens", "max-length", "min-length", "temperature", "top-k", "top-p", "min-p", "repetition-penalty",
               "no-repeat-ngram-size", "seed", "threads", "prompt-tokens", "new-tokens", "context-length", "accuracy-level"}
    for command in COMMANDS:
        for name in options_of(command):
            if name in numbers:
                variable = "TREADLE_" + name.upper().replace("-", "_")
                run = with_environment(command, model.folder, **{variable: "oops"})
                testing.equal(run.returncode, 2, f"{command} {variable}")
                has(run.stderr, variable, '"oops"')


def test_environment_and_command_line():
    ids = {"TREADLE_IDS": "5,6,7"}
    tokens, _ = model.greedy([5, 6, 7], 8)

    def result(run):
        import json
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)["results"]

    first = result(with_environment("run", model.folder, TREADLE_MAX_NEW_TOKENS="5", TREADLE_JSON="1", TREADLE_GREEDY="yes",
                                    TREADLE_IGNORE_EOS="1", **ids))
    testing.equal([r["token_ids"] for r in first], [tokens[:5]])
    second = result(with_environment("run", model.folder, "-n", "8", "--json", TREADLE_MAX_NEW_TOKENS="5", **ids))
    testing.equal(len(second[0]["token_ids"]), 8, "the command line wins")
    third = result(with_environment("run", model.folder, "--ids", "9", "-n", "1", "--json", **ids))
    testing.equal([r["prompt_ids"] for r in third], [[9]], "a list on the command line replaces the variable's")
    by_letter = with_environment("run", model.folder, "-i", "b=two.npy", TREADLE_INPUT="a=one.npy", **ids)
    assert "two.npy" in by_letter.stderr and "one.npy" not in by_letter.stderr, by_letter
    value = result(with_environment("run", model.folder, "--stop", "--ids", "-n", "1", "--json", **ids))
    testing.equal([r["prompt_ids"] for r in value], [[5, 6, 7]], "an option's value names no option")
    for off in ("0", "no", "false", ""):
        plain = with_environment("run", model.folder, "-n", "1", TREADLE_JSON=off, **ids)
        assert plain.returncode == 0 and not plain.stdout.startswith("{"), (off, plain)
    has(with_environment("run", model.folder, TREADLE_ACTIVATIONS="int4", **ids).stderr, '"int4"')
    testing.equal(with_environment("run", model.folder, "-n", "1", TREADLE_CPU="none", **ids).returncode, 0)


def test_what_is_not_there_is_the_models_fault():
    for arguments in (("run", "nosuch", "-p", "x"), ("run", "/", "-p", "x"), ("chat", "nosuch"), ("check", "nosuch"), ("inspect", "nosuch"),
                      ("explain", "nosuch"), ("bench", "nosuch"), ("tokenize", "nosuch", "-p", "x"), ("template", "nosuch", "-p", "x"),
                      ("detokenize", "nosuch", "--ids", "1"), ("build", "nosuch", "-o", os.path.join(model.work.name, "never"))):
        run = testing.treadle(*arguments)
        testing.equal((run.returncode, run.stdout), (3, ""), f"{arguments} {run.stderr}")
        assert run.stderr.startswith("treadle") and arguments[1] in run.stderr, run.stderr
    assert not os.path.exists(os.path.join(model.work.name, "never"))


def test_a_full_disk_is_reported():
    if not os.path.exists("/dev/full"):
        testing.skip("there is no /dev/full")
    for arguments in (("--help",), ("run", "--help"), ("ops",), ("ops", "--json"), ("cache", "list"), ("explain", model.folder), ("inspect", model.folder),
                      ("check", model.folder), ("tokenize", model.folder, "-p", "x"), ("template", model.folder, "-p", "x"),
                      ("run", model.folder, "--ids", "5", "-n", "3"), ("run", model.folder, "--ids", "5", "-n", "3", "--json"),
                      ("run", model.folder, "--ids", "5", "--ids", "6", "-n", "3"), ("bench", model.folder, "--prompt-tokens", "4", "--new-tokens", "4", "--json")):
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([os.environ["TREADLE"], *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        testing.equal(run.returncode, 1, f"{arguments} {run.stderr}")
        has(run.stderr, "standard output")


if sys.argv[1:] == ["--update"]:
    os.makedirs(GOLDEN, exist_ok=True)
    for file_name, words in helps():
        with open(os.path.join(GOLDEN, file_name), "w", encoding="utf-8") as out:
            out.write(version_free(testing.treadle(*words).stdout))
else:
    testing.main()
