"""A pipeline plugin, built out of tree with nothing but the installed header, runs a fixture whose config wires nothing; and what happens to
plugins that are not allowed, broken or too new. Expected tokens are the fixture's (ONNX Runtime)."""
import json
import os
import shutil
import subprocess
import tarfile

import drive
import testing

work = testing.temp_dir()
CC = os.environ.get("CC", "cc")


def fixture(name="b01-concat-f32"):
    target = os.path.join(work.name, "pipelines", name)
    if not os.path.isdir(target):
        with tarfile.open(testing.shared("data/pipelines.tar.xz")) as archive:
            members = [m for m in archive.getmembers() if m.name.startswith(f"pipelines/{name}/")]
            archive.extractall(work.name, members)
    return target


def build(name, source):
    folder = os.path.join(work.name, "plugins")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"lib{name}.so")
    code = os.path.join(work.name, name + ".c")
    if os.path.exists(source):
        code = source
    else:
        with open(code, "w") as f:
            f.write(source)
    subprocess.run([CC, "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-I", testing.source("include"), "-o", path, code],
                   check=True)
    return path


def folder_with(library, entry="my_new_model"):
    """The fixture with a plugin in its config instead of everything else about the pipeline."""
    folder = os.path.join(work.name, "with-" + os.path.basename(library))
    shutil.copytree(fixture(), folder, dirs_exist_ok=True)
    config = {"version": 2,
              "pipeline": {"plugin": {"library": library, "entry_point": entry},
                           "sessions": {"decoder": {"file": "model.onnx"}}},
              "tokens": {"eos": 2, "pad": 0, "bos": 1}, "generation": {"max_length": 64}}
    with open(os.path.join(folder, "genai_config.json"), "w") as f:
        json.dump(config, f)
    return folder


def test_runs():
    library = build("my_new_model", testing.source("tests/plugin/my_new_model.c"))
    folder = folder_with(library)
    golden = json.load(open(os.path.join(fixture(), "golden.json")))
    with drive.Drive(folder, "--allow-plugins", os.path.dirname(library)) as d:
        for case in golden["cases"]:
            if case["kind"] == "generate":
                got = d.ask(op="generate", prompts=case["prompts"], options=case["options"])
                testing.equal(got["tokens"], case["expect"]["tokens"], case["name"])
            elif case["kind"] == "timeline":
                steps = [{k: v for k, v in s.items() if k in ("append", "generate", "rewind")} for s in case["steps"]]
                got = d.ask(op="timeline", steps=steps)
                for step, answer in zip(case["steps"], got["steps"]):
                    if "tokens" in step:
                        testing.equal(answer["tokens"], step["tokens"], case["name"])


def test_not_allowed():
    library = build("my_new_model", testing.source("tests/plugin/my_new_model.c"))
    folder = folder_with(library)
    for more in ([], ["--allow-plugins", testing.temp_dir().name]):
        check = testing.treadle("check", folder, *more)
        testing.equal(check.returncode, 3)
        assert "is not allowed" in check.stdout + check.stderr, check
    link = os.path.join(work.name, "allowed")
    os.makedirs(link, exist_ok=True)
    os.symlink(library, os.path.join(link, "libmine.so"))
    outside = folder_with(os.path.join(link, "libmine.so"))
    check = testing.treadle("check", outside, "--allow-plugins", link)
    testing.equal(check.returncode, 3, "a link that leads out of the allowed folder")


def refused(name, source, words, entry="my_new_model"):
    library = build(name, source)
    folder = folder_with(library, entry)
    run = testing.treadle("run", folder, "-p", "x", "--allow-plugins", os.path.dirname(library))
    assert run.returncode == 3 and words in run.stderr, (name, run)


HEAD = '#include "treadle/plugin.h"\ntreadle_status my_new_model(const treadle_plugin_host *h, treadle_plugin *p, treadle_error *e);\n' \
       'treadle_status my_new_model(const treadle_plugin_host *h, treadle_plugin *p, treadle_error *e) {\n'


ROW = """#include <stdlib.h>
static float logits[128];
static int calls;
static treadle_status begin(void *m, treadle_plugin_run *r, void **out, treadle_error *e) {
    (void)m, (void)r, (void)e;
    *out = malloc(4);
    BEGIN
    return TREADLE_OK;
}
static void end(void *row) { free(row); }
static treadle_status forward(void *row, treadle_plugin_run *run, const int32_t *ids, size_t n, size_t done,
                              const float **out, size_t *out_n, treadle_error *e) {
    (void)run, (void)ids, (void)n, (void)done, (void)e;
    *(char *)row = 1;
    calls++;
    *out = logits;
    *out_n = 128;
    FORWARD
    return TREADLE_OK;
}
"""


def test_rows_that_misbehave():
    """What a plugin gives is checked, and what it freed is not kept: the second request begins its row anew."""
    cases = [("nothing", "", "*out = NULL;", "gave no logits"), ("zero", "", "*out_n = 0;", "expected the plugin to give 1 to"),
             ("many", "", "*out_n = (size_t)-1;", "found 18446744073709551615"),
             ("changing", "", "*out_n = (size_t)(128 - calls);", "expected the plugin to give 127 logits as before, found 126"),
             ("nan", "", "for (int i = 0; i < 128; i++) logits[i] = 0.0f / (float)(calls - calls);", "every logit is NaN"),
             ("freed", "free(*out); return TREADLE_RUN;", "", "failed without a reason"),
             ("odd", "free(*out); return (treadle_status)77;", "", "failed without a reason"), ("none", "free(*out); *out = NULL;", "", "begin gave no row")]
    for name, begin, forward, words in cases:
        source = HEAD.replace("\n", "\n" + ROW.replace("BEGIN", begin).replace("FORWARD", forward), 1)
        library = build("row_" + name, source + "(void)h, (void)e; p->size = sizeof *p; p->version = 1; p->begin = begin; p->end = end; "
                        "p->forward = forward; return TREADLE_OK; }\n")
        with drive.Drive(folder_with(library), "--allow-plugins", os.path.dirname(library)) as d:
            request = dict(op="timeline", steps=[{"append": [1, 2]}, {"generate": 3}])
            for _ in range(2):
                try:
                    got = d.ask(**request)
                except drive.Refused as error:
                    got = str(error)
                assert words in str(got), (name, got)
                words = words if name != "changing" else "as before"


def test_broken():
    refused("empty", "int nothing;\n", 'no function "my_new_model"')
    refused("newer", HEAD + "p->size = sizeof *p; p->version = 99; return TREADLE_OK; }\n", "version 99")
    refused("lacking", HEAD + "p->size = sizeof *p; p->version = 1; return TREADLE_OK; }\n", "lacks begin, end or forward")
    refused("small", HEAD + "p->size = 8; p->version = 1; return TREADLE_OK; }\n", "too small")
    refused("failing", HEAD + 'return h->fail(e, TREADLE_UNSUPPORTED, "this plugin never loads"); }\n', "never loads")
    not_a_library = os.path.join(work.name, "plugins", "libtext.so")
    with open(not_a_library, "w") as f:
        f.write("no library\n")
    folder = folder_with(not_a_library)
    run = testing.treadle("run", folder, "-p", "x", "--allow-plugins", os.path.dirname(not_a_library))
    assert run.returncode == 3 and "cannot be loaded" in run.stderr, run


testing.main()
