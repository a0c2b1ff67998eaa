# timeout: 900
"""What a row gives does not depend on how it came about, for every kind of state: every folder of the pipeline fixtures, on one engine.

prefill   the prompt token by token gives what it gives at once
append    a prompt in two parts gives what it gives in one
rewind    after going on and back, a row gives what a fresh one gives
fork      a copy goes on as the original would have, whatever the original does meanwhile
cancel    a run that another thread ends anywhere, and that is taken up again, gives what it gives undisturbed
batch     rows of unequal length give what each gives alone
equal     so do rows of equal length, one of which ends before the others, and rows with tensors of their own
The expected side of each comparison is the fixture's own golden (ONNX Runtime, NumPy, transformers)."""
import fnmatch
import json
import os
import tarfile

import drive
import testing

# The activation scale is taken over all tokens of a run: the goldens hold for one prefill of the whole prompt only.
WHOLE_RUN_ONLY = ("b18-dynamic-int8",)
REFUSES = ("cannot rewind", "can only be rewound")
N_NEW = 5

work = testing.temp_dir()


def folders():
    root = os.path.join(work.name, "pipelines")
    if not os.path.isdir(root):
        with tarfile.open(testing.shared("data/pipelines.tar.xz")) as archive:
            trust = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
            archive.extractall(work.name, **trust)
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name, "golden.json")
        if os.path.exists(path):
            yield name, os.path.join(root, name), json.load(open(path))


def cases():
    """One case of one prompt per folder: (name, folder, prompt, tensors, options, new tokens)."""
    import numpy as np
    for name, folder, golden in folders():
        for case in golden["cases"]:
            if case["kind"] != "generate" or len(case["prompts"]) != 1 or case.get("allowed"):
                continue
            options = {k: v for k, v in case["options"].items() if k in ("do_sample", "eos", "stop")}
            if "decoder_start" in case["expect"] or "decoder_start" in case:
                options["decoder_start"] = case.get("decoder_start") or case["expect"]["decoder_start"]
            if options.get("stop") or case["expect"]["finish"] != ["length"]:
                continue
            arrays = np.load(os.path.join(folder, "golden.npz")) if case.get("tensors") else {}
            tensors = {}
            for key, ref in case.get("tensors", {}).items():
                tensors[key] = os.path.join(work.name, f"{name}.{key}.npy".replace("/", "_"))
                np.save(tensors[key], arrays[ref["npz"]])
            yield name, folder, case["prompts"][0], tensors, options, case["expect"]["tokens"][0][:N_NEW]
            break


def timeline(d, options, *steps):
    """New tokens of the last generate step; None if the model says that it cannot."""
    try:
        return d.ask(op="timeline", steps=list(steps), options=options)["steps"][-1]["tokens"]
    except drive.Refused as refused:
        assert any(words in str(refused) for words in REFUSES), refused
        return None


def every(check):
    """Runs a check over all folders and names every one that fails."""
    bad, n = [], 0
    for case in cases():
        try:
            n += check(*case) is not False
        except AssertionError as e:
            bad.append(f"{case[0]}: {str(e)[:200]}")
    testing.equal(bad, [])
    assert n > 20, n


def test_prefill():
    def check(name, folder, prompt, tensors, options, want):
        if name in WHOLE_RUN_ONLY:
            return False
        with drive.Drive(folder, "--quiet", "--set", "/generation/prefill_chunk=1") as d:
            testing.equal(timeline(d, options, {"append": prompt, "tensors": tensors}, {"generate": len(want)}), want)
    every(check)


def test_append():
    def check(name, folder, prompt, tensors, options, want):
        # tensors belong to the whole prompt, and an encoder's prompt is one
        if name in WHOLE_RUN_ONLY or tensors or "decoder_start" in options or len(prompt) < 2 or fed_by_source(folder):
            return False
        with drive.Drive(folder, "--quiet") as d:
            half = len(prompt) // 2
            got = timeline(d, options, {"append": prompt[:half]}, {"append": prompt[half:]}, {"generate": len(want)})
            testing.equal(got, want)
            got = timeline(d, options, {"append": prompt}, {"generate": 2}, {"append": want[2:3]}, {"generate": 2})
            testing.equal(got, want[3:5])
    every(check)


def test_rewind():
    def check(name, folder, prompt, tensors, options, want):
        if name in WHOLE_RUN_ONLY:
            return False
        with drive.Drive(folder, "--quiet") as d:
            start = {"append": prompt, "tensors": tensors}
            base = len(options.get("decoder_start", prompt)) if fed_by_source(folder) else len(prompt)
            got = timeline(d, options, start, {"generate": 4}, {"rewind": base + 2}, {"generate": len(want) - 2})
            if got is not None:
                testing.equal(got, want[2:], "into new tokens")
            got = timeline(d, options, start, {"generate": 3}, {"rewind": 0}, start, {"generate": len(want)})
            testing.equal(got, want, "to zero")
    every(check)


def test_fork():
    def check(name, folder, prompt, tensors, options, want):
        with drive.Drive(folder, "--quiet") as d:
            start = {"append": prompt, "tensors": tensors}
            got = timeline(d, options, start, {"generate": 2}, {"fork": True}, {"generate": len(want) - 2})
            testing.equal(got, want[2:])
    every(check)


def test_cancel():
    """Ended a while after its begin, from at once to after its end. When that is, chance says; right is the same at any time."""
    def check(name, folder, prompt, tensors, options, want):
        with drive.Drive(folder, "--quiet") as d:
            start = {"append": prompt, "tensors": tensors}
            for us in (0, 5, 10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 800, 1200, 2000):
                steps = [start, {"generate": len(want), "cancel_after_us": us}]
                got = d.ask(op="timeline", steps=steps, options=options)["steps"][-1]
                testing.equal(got["tokens"], want, f"cancelled after {us} us")
                n_cancelled.append(got.get("cancelled", False))
    n_cancelled = []
    every(check)
    assert sum(n_cancelled) > 20, n_cancelled


def test_batch():
    def check(name, folder, prompt, tensors, options, want):
        if name in WHOLE_RUN_ONLY or tensors:
            return False
        options = dict(options, max_new_tokens=len(want))
        with drive.Drive(folder, "--quiet") as d:
            short = prompt[: max(1, len(prompt) - 2)]
            alone = d.ask(op="generate", prompts=[short], options=options)
            try:
                got = d.ask(op="generate", prompts=[prompt, short, prompt], options=options)
            except drive.Refused as refused:
                assert "expected one row" in str(refused), refused
                return False
            testing.equal(got["tokens"], [want, alone["tokens"][0], want])
    every(check)


def in_rows(name, tensors):
    """The tensors of two rows as one file each, and those of the second row alone: half of what the first one's are."""
    import numpy as np
    both, second = {}, {}
    for key, path in tensors.items():
        x = np.load(path)
        y = (x * 0.5).astype(x.dtype) if x.dtype.kind == "f" else x
        both[key] = path.replace(".npy", ".both.npy")
        second[key] = path.replace(".npy", ".second.npy")
        np.save(both[key], np.concatenate([x, y]))
        np.save(second[key], y)
    return both, second


def test_equal():
    def check(name, folder, prompt, tensors, options, want):
        import numpy as np
        if name in WHOLE_RUN_ONLY or any(np.load(path).shape[:1] != (1,) for path in tensors.values()):
            return False
        options = dict(options, max_new_tokens=len(want))
        both, second = in_rows(name, tensors)
        other = prompt if tensors else prompt[::-1]
        with drive.Drive(folder, "--quiet") as d:
            try:
                alone = d.ask(op="generate", prompts=[other], options=options, tensors=second)["tokens"][0]
                got = d.ask(op="generate", prompts=[prompt, other], options=options, tensors=both)
                testing.equal(got["tokens"], [want, alone])
                if tensors or alone[1] in want:
                    return True
                ends = dict(options, eos=[alone[1]])
                got = d.ask(op="generate", prompts=[prompt, other, prompt], options=ends)
                testing.equal(got["tokens"], [want, alone[: alone.index(alone[1]) + 1], want])
            except drive.Refused as refused:
                assert "expected one row" in str(refused) or "no dimension for rows" in str(refused), refused
                return False
    every(check)


def test_turns():
    """Timelines that the script of the fixtures cannot run: appends with tensors of their own, steps without logits."""
    import numpy as np
    n = 0
    for name, folder, golden in folders():
        for case in golden["cases"]:
            if case["kind"] != "timeline":
                continue
            if not any("tensors" in step for step in case["steps"]) and None not in case["expect"]["logits"]:
                continue
            arrays, steps = np.load(os.path.join(folder, "golden.npz")), []
            for i, step in enumerate(case["steps"]):
                steps.append({k: v for k, v in step.items() if k in ("append", "generate", "rewind")})
                for key, ref in step.get("tensors", {}).items():
                    path = os.path.join(work.name, f"{name}.{i}.{key}.npy")
                    np.save(path, arrays[ref["npz"]])
                    steps[-1].setdefault("tensors", {})[key] = path
            prefix = os.path.join(work.name, f"{name}.{case['name']}")
            with drive.Drive(folder, "--quiet") as d:
                answer = d.ask(op="timeline", steps=steps, logits_to=prefix)
            k = 0
            for step, got in zip(case["steps"], answer["steps"]):
                if "tokens" not in step:
                    continue
                testing.equal(got["tokens"], step["tokens"], f"{name} {case['name']}")
                ref = case["expect"]["logits"][k]
                if ref:
                    testing.near(np.load(f"{prefix}.{k}.npy"), arrays[ref["npz"]], 2e-4, f"{name} logits {k}")
                k += 1
            n += 1
    assert n >= 4, n


def fed_by_source(folder):
    explain = testing.treadle("explain", folder, "--json")
    testing.equal(explain.returncode, 0, explain.stderr)
    plan = json.loads(explain.stdout)["plan"]
    return any(s["when"] == "once" for s in plan["steps"]) and plan.get("source_prompt", False)


testing.main()
