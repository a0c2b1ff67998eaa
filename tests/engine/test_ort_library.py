"""Libraries that are missing, foreign, too old or broken: each is an error that says which file and what is wrong, never a crash; and plugin
providers that cannot be loaded."""
import os
import shutil
import subprocess

import testing

work = testing.temp_dir()

BASE = """
#include <stdint.h>
typedef struct { const void *(*GetApi)(uint32_t); const char *(*GetVersionString)(void); } base;
static const void *get(uint32_t version) { (void)version; return %s; }
static const char *text(void) { return %s; }
__attribute__((visibility("default"))) const base *OrtGetApiBase(void) { static const base b = {get, text}; return %s; }
"""
TABLE = "static const void *table[300];\n"


def library(name, code):
    compiler = os.environ.get("CC", "cc").split()
    if not shutil.which(compiler[0]):
        testing.skip(f"no {compiler[0]}")
    path = os.path.join(work.name, f"lib{name}.so")
    subprocess.run([*compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=code, text=True, check=True)
    return path


def error_of(path):
    ort = testing.treadle_json("devices", "--json", "--ort-lib", path)[1]
    testing.equal(ort["engine"], "ort")
    return ort["error"]


def test_fakes():
    for name, code, words in (
            ("empty", "int nothing;", "is no ONNX Runtime: it has no function OrtGetApiBase"),
            ("nobase", BASE % ("0", '"1.20.0"', "0"), "is no ONNX Runtime: OrtGetApiBase gives nothing"),
            ("noapi", BASE % ("0", '"1.20.0"', "&b"), "is ONNX Runtime 1.20.0 and does not offer its API level 20"),
            ("old", BASE % ("0", '"1.17.3"', "&b"), "is ONNX Runtime 1.17.3, expected 1.18 or newer"),
            ("noversion", BASE % ("0", "0", "&b"), "is ONNX Runtime of no version and does not offer its API level 18"),
            ("newmajor", BASE % ("0", '"2.0.0"', "&b"), "is ONNX Runtime 2.0.0 and does not offer its API level 18"),
            ("holes", TABLE + BASE % ("table", '"1.23.0"', "&b"), "is ONNX Runtime 1.23.0 without the function GetErrorCode")):
        path = library(name, code)
        text = error_of(path)
        assert path in text and words in text, (name, text)


def test_missing():
    for path in ("/no/such/libonnxruntime.so", work.name, __file__):
        text = error_of(path)
        assert text.startswith(f"ONNX Runtime was not found. Tried: {path} ("), text
        assert text.endswith("Name libonnxruntime.so by --ort-lib or TREADLE_ORT_LIB."), text
    environment = {k: v for k, v in os.environ.items() if k not in ("TREADLE_ORT_LIB", "LD_LIBRARY_PATH")}
    text = testing.treadle_json("devices", "--json", env=environment)[1].get("error")
    if text:  # else the system has one
        assert "Tried: libonnxruntime.so.1 (" in text and "libonnxruntime.so (" in text, text


def test_models_say_it():
    """--engine ort, and a config that names the engine or a provider, where there is no library."""
    import tiny_graph
    folder = tiny_graph.decoder(os.path.join(work.name, "model"))
    run = testing.treadle("run", folder, "--ids", "1,2", "--engine", "ort", "--ort-lib", "/no/such.so")
    testing.equal((run.returncode, run.stdout), (3, ""))
    assert "ONNX Runtime was not found. Tried: /no/such.so" in run.stderr, run.stderr
    for extra, words in (({"engine": "ort"}, 'engine "ort" is not available (available: light): ONNX Runtime was not found. Tried: /no/such.so'),
                         ({"execution_provider": "CUDA"}, 'execution provider "CUDA" is not available (available: CPUExecutionProvider): '
                                                          'ONNX Runtime was not found. Tried: /no/such.so')):
        folder = tiny_graph.decoder(os.path.join(work.name, "model"), session=extra)
        run = testing.treadle("check", folder, "--ort-lib", "/no/such.so")
        testing.equal(run.returncode, 3, run.stdout)
        assert words in run.stdout + run.stderr, run
        run = testing.treadle("run", folder, "--ids", "1,2", "-n", 2, "--engine", "light")
        testing.equal((run.returncode, run.stderr), (0, ""), "the host's engine wins")


def test_models_on_ort():
    """A config's engine, options and provider are honoured; a provider that is not there is said with those that are."""
    import onnxruntime
    import tiny_graph
    lib = ("--ort-lib", testing.ort_library())
    want = testing.treadle("run", tiny_graph.decoder(os.path.join(work.name, "model")), "--ids", "1,2", "-n", 5).stdout
    for session in ({"engine": "ort"}, {"engine": "ort", "session_options": {"graph_optimization_level": "ORT_ENABLE_BASIC", "enable_mem_pattern": False,
                                                                              "session.disable_prepacking": True, "config_entries": {"a.b": "1"}},
                                        "run_options": {"run_tag": "x", "log_severity_level": 3}}):
        folder = tiny_graph.decoder(os.path.join(work.name, "model"), session=session)
        run = testing.treadle("run", folder, "--ids", "1,2", "-n", 5, *lib)
        testing.equal((run.returncode, run.stderr, run.stdout), (0, "", want))
    folder = tiny_graph.decoder(os.path.join(work.name, "model"), session={"execution_provider": "CUDAExecutionProvider"})
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        run = testing.treadle("check", folder, *lib)
        testing.equal(run.returncode, 3)
        text = run.stdout + run.stderr
        assert 'execution provider "CUDAExecutionProvider" is not available (available: ' in text and "/pipeline/sessions/decoder/execution_provider" in text, text
    folder = tiny_graph.decoder(os.path.join(work.name, "model"), session={"engine": "ort", "session_options": {"optimized_model_filepath": "/x"}})
    run = testing.treadle("run", folder, "--ids", "1,2", *lib)
    testing.equal((run.returncode, run.stdout), (3, ""))
    assert '"optimized_model_filepath" is not taken from a config: it writes a file' in run.stderr, run.stderr


def test_provider_libraries():
    path = library("provider", "int nothing;")
    for given, words in ((f"mine={path}", f"provider library '{path}': ONNX Runtime: "), (path, f"provider library '{path}': ONNX Runtime: "),
                         ("mine=/no/such/provider.so", "provider library '/no/such/provider.so' does not exist")):
        ort = testing.treadle_json("devices", "--json", "--ort-lib", testing.ort_library(), "--ep-library", given)[1]
        assert words in ort["error"], ort
    folder = os.path.join(work.name, "elsewhere")
    os.makedirs(folder, exist_ok=True)
    ort = testing.treadle_json("devices", "--json", "--ort-lib", testing.ort_library(), "--ep-library", os.path.join("..", "libprovider.so"), cwd=folder)[1]
    assert "ONNX Runtime: " in ort["error"] and "CreateEpFactories" in ort["error"], ort


def test_external_data_stays_inside():
    """ONNX Runtime reads external data by itself: a file outside the folder is refused before it gets there."""
    import numpy as np
    import onnx
    from onnx import TensorProto as T, helper as h
    secret = os.path.join(work.name, "secret.bin")
    np.arange(4, dtype=np.float32).tofile(secret)
    folder = os.path.join(work.name, "folder")
    os.makedirs(folder, exist_ok=True)
    os.symlink(secret, os.path.join(folder, "link.bin"))
    np.arange(4, dtype=np.float32).tofile(os.path.join(folder, "good.bin"))
    x = os.path.join(work.name, "x.npy")
    np.save(x, np.zeros(4, np.float32))
    for location, code in (("../secret.bin", 3), ("link.bin", 3), (secret, 3), ("absent.bin", 3), ("good.bin", 0)):
        tensor = T(name="w", data_type=T.FLOAT, dims=[4], data_location=T.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        tensor.external_data.add(key="length", value="16")
        graph = h.make_graph([h.make_node("Add", ["x", "w"], ["y"])], "g", [h.make_tensor_value_info("x", T.FLOAT, [4])],
                             [h.make_tensor_value_info("y", T.FLOAT, [4])], [tensor])
        with open(os.path.join(folder, "m.onnx"), "wb") as f:
            f.write(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString())
        run = testing.treadle("infer", os.path.join(folder, "m.onnx"), "-i", f"x={x}", "--engine", "ort", "--ort-lib", testing.ort_library())
        testing.equal(run.returncode, code, (location, run.stderr))
        assert code == 0 or ("external data" in run.stderr and "ONNX Runtime" not in run.stderr), run.stderr


testing.main()
