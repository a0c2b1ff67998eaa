"""A plugin execution provider, loaded by path (scripts/fetch-ort-provider): listed, chosen by a config, given its options, shared by
two models of one process; its results beside the CPU provider's. It rounds weights to float16, so values are near, not equal."""
import os
import platform

import testing
import tiny_graph

work = testing.temp_dir()
if testing.sanitized():  # what the provider's own library keeps is not ours to judge
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0"


def library():
    if platform.machine() != "x86_64":
        testing.skip("this provider exists for x86-64 only")
    return testing.model("ort-provider/onnxruntime_ggml/lib/libonnxruntime_ggml.so")


def options(name="ggml"):
    os.environ["ORT_GGML_LOG"] = "error"
    if testing.sanitized():
        os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # the provider keeps memory of its own, which nobody can find once it is unloaded
    return ("--ort-lib", testing.ort_library(), "--ep-library", f"{name}={library()}")


def folder(**session):
    return tiny_graph.decoder(os.path.join(work.name, "model"), session=session)


def test_listed():
    ort = testing.treadle_json("devices", "--json", *options())[1]
    assert "ggml" in ort["providers"] and any(d["provider"] == "ggml" and d["type"] == "cpu" for d in ort["devices"]), ort
    named = testing.treadle_json("devices", "--json", *options("Mine"))[1]  # the name that it is registered by
    assert "Mine" in named["providers"], named


def test_chosen():
    want = testing.treadle("run", folder(), "--ids", "1,2", "-n", 6).stdout
    for session in ({"execution_provider": "ggml"}, {"execution_provider": "GGML", "provider_options": {"device": "cpu", "threads": 1}},
                    {"execution_provider": "ggml", "provider_options": {"device_filtering_options": {"hardware_device_type": "cpu"}}}):
        run = testing.treadle("run", folder(**session), "--ids", "1,2", "-n", 6, *options())
        testing.equal((run.returncode, run.stdout), (0, want), run.stderr)
    run = testing.treadle("run", folder(execution_provider="ggml"), "--ids", "1,2", "-n", 6, "--engine", "light")
    testing.equal((run.returncode, run.stdout), (0, want), "the host may still say light")


def test_two_models_of_one_process():
    answer = testing.treadle_json("verify", folder(execution_provider="ggml"), "--engine", "ort", "--against", "ort", "--json", *options())
    testing.equal((answer["agree"], answer["max_abs_diff"]), (True, 0))
    answer = testing.treadle_json("verify", folder(execution_provider="ggml"), "--tolerance", 0.01, "--json", *options())
    assert 0 < answer["max_abs_diff"] < 0.01, answer


def test_refused():
    run = testing.treadle("check", folder(execution_provider="gml"), *options())
    text = run.stdout + run.stderr
    assert run.returncode == 3 and 'execution provider "gml" is not available (available: ' in text and "ggml" in text, text
    run = testing.treadle("check", folder(execution_provider="ggml"), "--ort-lib", testing.ort_library())
    testing.equal(run.returncode, 3, "without its library")
    for provider_options, words in (({"device_filtering_options": {"hardware_device_type": "npu"}}, "no device of \"ggml\" fits"),
                                    ({"backend": "lib/evil.so"}, "a library is named without a folder in a config"), ([1], "expected an object")):
        run = testing.treadle("run", folder(execution_provider="ggml", provider_options=provider_options), "--ids", "1", *options())
        testing.equal((run.returncode, run.stdout), (3, ""), provider_options)
        assert words in run.stderr, run.stderr


testing.main()
