"""Prompts of equal length share their runs, where the graph takes rows: each row gives what it gives alone, in as many runs as one row
takes. What is expected comes from ONNX Runtime, over the whole timeline of each row. Rows of other lengths run their prompts one by one."""
import functools

import drive
import numpy as np
import testing

N_NEW = 5


def folder(kind):
    return testing.source(f"tests/data/pipelines/{kind}")


@functools.cache
def session(kind):
    import onnxruntime as ort
    return ort.InferenceSession(folder(kind) + "/model.onnx", providers=["CPUExecutionProvider"])


def greedy(kind, ids, n=N_NEW):
    """New tokens, and the logits that each was the largest of."""
    ids, first, logits = list(ids), len(ids), []
    for _ in range(n):
        s, m = session(kind), len(ids)
        known = {"input_ids": np.int64([ids]), "position_ids": np.arange(m)[None], "attention_mask": np.ones((1, m), np.int64),
                 "lengths": np.int32([m - 1]), "longest": np.array(m, np.int32)}
        feed = {i.name: known[i.name] if i.name in known else
                np.zeros([d if isinstance(d, int) else {"batch": 1, "past": 0}[d] for d in i.shape], np.float32) for i in s.get_inputs()}
        logits.append(s.run(["logits"], feed)[0][0, -1])
        ids.append(int(logits[-1].argmax()))
    return ids[first:], np.stack(logits)


def prompts(n_rows, length):
    return [[int(t) for t in np.random.default_rng(100 * length + r).integers(0, 20, length)] for r in range(n_rows)]


def test_equal_lengths():
    with testing.temp_dir() as temp:
        for kind in ("concat", "gqa", "combined", "last", "nomask"):
            for engine in testing.engines():
                with drive.Drive(folder(kind), "--quiet", "--engine", engine) as d:
                    for n_rows, length in ((2, 1), (3, 4), (4, 16), (2, 40)):
                        rows = prompts(n_rows, length)
                        want = [greedy(kind, p) for p in rows]
                        got = d.ask(op="generate", prompts=rows, options={"max_new_tokens": N_NEW}, logits_to=f"{temp}/x")
                        what = f"{kind} on {engine}, {n_rows} of {length}"
                        testing.equal(got["tokens"], [w[0] for w in want], what)
                        testing.equal(list(got["runs"].values()), [N_NEW], what)
                        for r in range(n_rows):
                            testing.near(np.load(f"{temp}/x.{r}.npy"), want[r][1], 2e-4, f"{what}, row {r}")


def test_other_lengths():
    """Together where a prompt goes in token by token anyway; else one by one, and together afterwards."""
    for kind in ("concat", "gqa", "nomask"):
        for more, rows, n_runs in ((["--set", "/generation/prefill_chunk=1"], prompts(3, 6), 6 + N_NEW - 1),
                                   ([], prompts(2, 6) + prompts(1, 3), 3 + N_NEW - 1)):
            with drive.Drive(folder(kind), "--quiet", *more) as d:
                got = d.ask(op="generate", prompts=rows, options={"max_new_tokens": N_NEW})
                testing.equal(got["tokens"], [greedy(kind, p)[0] for p in rows], kind)
                if kind != "nomask" or not n_runs < 8:  # rows of unequal length never share a run of a graph without a mask
                    testing.equal(list(got["runs"].values()), [n_runs], kind)


def test_prompt_logits():
    with testing.temp_dir() as temp:
        with drive.Drive(folder("concat"), "--quiet") as d:
            rows = prompts(3, 5)
            d.ask(op="generate", prompts=rows, options={"max_new_tokens": 1}, prompt_logits_to=f"{temp}/p")
            for r, p in enumerate(rows):
                testing.near(np.load(f"{temp}/p.{r}.npy")[-1], greedy("concat", p, 1)[1][0], 2e-4, f"row {r}")
                testing.equal(np.load(f"{temp}/p.{r}.npy").shape[0], 5)


testing.main()
