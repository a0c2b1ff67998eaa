/* engine/ort_provider.c - execution providers of ONNX Runtime by name.
 *
 * A name is taken in any spelling: "cuda", "CUDA", "CUDAExecutionProvider". Three ways lead to a provider: an
 * options struct of its own (the oldest ones), one function for all others that are built in, and devices for those
 * that a plugin library brought. */
#include "engine/ort.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>

/* --- names */

static const char suffix[] = "executionprovider";

static char lower(char c) { return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c); }

static bool same_letters(td_str a, td_str b) {
    if (a.n != b.n) return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i])) return false;
    return true;
}

static td_str short_name(td_str name) {
    size_t n = sizeof suffix - 1;
    if (name.n > n && same_letters((td_str){name.p + name.n - n, n}, td_str_from(suffix))) name.n -= n;
    return name;
}

static bool is_provider(const char *full, td_str name) {
    return same_letters(short_name(td_str_from(full)), short_name(name));
}

/* --- providers with an options struct of their own */

typedef treadle_status append_fn(const td_ort *ort, OrtSessionOptions *so, const td_ort_pairs *options,
                                 treadle_error *err);

#define DEFINE_APPEND(function, type, create, update, append, release)                                                 \
    static treadle_status function(const td_ort *ort, OrtSessionOptions *so, const td_ort_pairs *options,              \
                                   treadle_error *err) {                                                               \
        type *own = NULL;                                                                                              \
        TD_ORT_TRY(ort->api.create(&own), TREADLE_CONFIG);                                                             \
        OrtStatus *failed = options->n ? ort->api.update(own, options->keys, options->values, options->n) : NULL;      \
        if (!failed) failed = ort->api.append(so, own);                                                                \
        ort->api.release(own);                                                                                         \
        return failed ? td_ort_fail(ort, failed, TREADLE_CONFIG, err) : TREADLE_OK;                                    \
    }
DEFINE_APPEND(append_cann, OrtCANNProviderOptions, CreateCANNProviderOptions, UpdateCANNProviderOptions,
              SessionOptionsAppendExecutionProvider_CANN, ReleaseCANNProviderOptions)
DEFINE_APPEND(append_cuda, OrtCUDAProviderOptionsV2, CreateCUDAProviderOptions, UpdateCUDAProviderOptions,
              SessionOptionsAppendExecutionProvider_CUDA_V2, ReleaseCUDAProviderOptions)
DEFINE_APPEND(append_dnnl, OrtDnnlProviderOptions, CreateDnnlProviderOptions, UpdateDnnlProviderOptions,
              SessionOptionsAppendExecutionProvider_Dnnl, ReleaseDnnlProviderOptions)
DEFINE_APPEND(append_rocm, OrtROCMProviderOptions, CreateROCMProviderOptions, UpdateROCMProviderOptions,
              SessionOptionsAppendExecutionProvider_ROCM, ReleaseROCMProviderOptions)
DEFINE_APPEND(append_tensorrt, OrtTensorRTProviderOptionsV2, CreateTensorRTProviderOptions,
              UpdateTensorRTProviderOptions, SessionOptionsAppendExecutionProvider_TensorRT_V2,
              ReleaseTensorRTProviderOptions)

static const struct {
    const char *name;
    append_fn *append;
} own_structs[] = {
    {"cann", append_cann}, {"cuda", append_cuda},         {"dnnl", append_dnnl},
    {"rocm", append_rocm}, {"tensorrt", append_tensorrt},
};

/* --- what there is */

typedef struct provider_list {
    char **names; /* built in */
    int n;
    const OrtEpDevice *const *devices; /* borrowed from the environment; of built-in and plugin providers */
    size_t n_devices;
} provider_list;

static treadle_status list_open(const td_ort *ort, provider_list *out, treadle_error *err) {
    *out = (provider_list){0};
    TD_ORT_TRY(ort->api.GetAvailableProviders(&out->names, &out->n), TREADLE_INTERNAL);
    if (!ort->api.GetEpDevices) return TREADLE_OK;
    OrtStatus *failed = ort->api.GetEpDevices(ort->env, &out->devices, &out->n_devices);
    if (!failed) return TREADLE_OK;
    ort->api.ReleaseStatus(failed); /* then there are only the built-in ones */
    out->n_devices = 0;
    return TREADLE_OK;
}

static void list_close(const td_ort *ort, provider_list *list) {
    OrtStatus *failed = list->names ? ort->api.ReleaseAvailableProviders(list->names, list->n) : NULL;
    if (failed) ort->api.ReleaseStatus(failed);
}

static const char *find_built_in(const provider_list *list, td_str name) {
    for (int i = 0; i < list->n; i++)
        if (is_provider(list->names[i], name)) return list->names[i];
    return NULL;
}

/* The provider of device i, unless an earlier device or the built-in list has it already. */
static const char *new_name(const td_ort *ort, const provider_list *list, size_t i) {
    const char *name = ort->api.EpDevice_EpName(list->devices[i]);
    if (!name || find_built_in(list, td_str_from(name))) return NULL;
    for (size_t k = 0; k < i; k++) {
        const char *other = ort->api.EpDevice_EpName(list->devices[k]);
        if (other && strcmp(other, name) == 0) return NULL;
    }
    return name;
}

/* All names, NULL-terminated. */
static treadle_status list_names(const td_ort *ort, const provider_list *list, td_arena *arena, const char *const **out,
                                 treadle_error *err) {
    size_t n = 0, most = (size_t)list->n + list->n_devices + 1;
    const char **names = TD_ARENA_ARRAY(arena, const char *, most);
    bool ok = names != NULL;
    for (int i = 0; ok && i < list->n; i++) ok = (names[n++] = td_arena_strdup(arena, list->names[i])) != NULL;
    for (size_t i = 0; ok && i < list->n_devices; i++) {
        const char *name = new_name(ort, list, i);
        if (name) ok = (names[n++] = td_arena_strdup(arena, name)) != NULL;
    }
    if (!ok) return td_fail_memory(err, "names of providers", most * sizeof *names);
    *out = names;
    return TREADLE_OK;
}

treadle_status td_ort_provider_names(const td_ort *ort, td_arena *arena, const char *const **out, treadle_error *err) {
    provider_list list;
    TD_TRY(list_open(ort, &list, err));
    treadle_status status = list_names(ort, &list, arena, out, err);
    list_close(ort, &list);
    return status;
}

static treadle_status not_available(const td_ort *ort, const provider_list *list, td_str name, td_arena *arena,
                                    treadle_error *err) {
    const char *const *known;
    td_buf text = {0};
    size_t n = 0;
    char given[128];
    TD_TRY(list_names(ort, list, arena, &known, err));
    for (; known[n]; n++) td_buf_printf(&text, "%s%s", n ? ", " : "", known[n]);
    snprintf(given, sizeof given, "%.*s", (int)TD_MIN(name.n, sizeof given - 1), name.p);
    (void)td_fail(err, TREADLE_CONFIG, "execution provider \"%s\" is not available (available: %s)", given,
                  text.p ? text.p : "");
    const char *near = td_nearest(given, known, n);
    if (near) td_error_hint(err, "Did you mean \"%s\"?", near);
    td_buf_free(&text);
    return TREADLE_CONFIG;
}

/* --- devices of plugin providers */

static const char *const device_types[] = {"cpu", "gpu", "npu"};

static const char *device_type(const td_ort *ort, const OrtEpDevice *device) {
    const OrtHardwareDevice *hardware = ort->api.EpDevice_Device(device);
    OrtHardwareDeviceType type = hardware ? ort->api.HardwareDevice_Type(hardware) : OrtHardwareDeviceType_CPU;
    return type < TD_COUNT(device_types) ? device_types[type] : "other";
}

/* "device_filtering_options": {"hardware_device_type": "gpu", "hardware_device_id": n, "hardware_vendor_id": n} */
static bool device_fits(const td_ort *ort, const OrtEpDevice *device, const td_json *filter) {
    const OrtHardwareDevice *hardware = ort->api.EpDevice_Device(device);
    td_str type = td_json_string_or(filter, "hardware_device_type", "");
    int64_t id = td_json_int_or(filter, "hardware_device_id", -1);
    int64_t vendor = td_json_int_or(filter, "hardware_vendor_id", -1);
    if (type.n && !same_letters(type, td_str_from(device_type(ort, device)))) return false;
    if (!hardware) return id < 0 && vendor < 0;
    if (id >= 0 && id != (int64_t)ort->api.HardwareDevice_DeviceId(hardware)) return false;
    return vendor < 0 || vendor == (int64_t)ort->api.HardwareDevice_VendorId(hardware);
}

/* The first device that fits: most providers take one at a time. */
static const OrtEpDevice *find_device(const td_ort *ort, const provider_list *list, td_str name,
                                      const td_json *filter) {
    for (size_t i = 0; i < list->n_devices; i++) {
        const char *full = ort->api.EpDevice_EpName(list->devices[i]);
        if (full && is_provider(full, name) && device_fits(ort, list->devices[i], filter)) return list->devices[i];
    }
    return NULL;
}

/* --- appending */

static const char filter_key[] = "device_filtering_options";

/* Options of a config must not name native code by a path: a model folder is not trusted. */
static treadle_status check_options(const td_ort_pairs *pairs, treadle_error *err) {
    for (size_t i = 0; i < pairs->n; i++) {
        const char *value = pairs->values[i];
        bool library = strstr(value, ".so") || strstr(value, ".dll") || strstr(value, ".dylib");
        if (library && (strchr(value, '/') || strchr(value, '\\')))
            return td_fail(err, TREADLE_CONFIG,
                           "provider_options: %s: a library is named without a folder in a config, found \"%.200s\"",
                           pairs->keys[i], value);
    }
    return TREADLE_OK;
}

static treadle_status append_built_in(const td_ort *ort, const char *full, OrtSessionOptions *so,
                                      const td_ort_pairs *pairs, treadle_error *err) {
    for (size_t i = 0; i < TD_COUNT(own_structs); i++)
        if (is_provider(full, td_str_from(own_structs[i].name))) return own_structs[i].append(ort, so, pairs, err);
    /* Older libraries know the short names in capitals only, newer ones the full names too. */
    td_str name = short_name(td_str_from(full));
    char shorter[64], capitals[64];
    snprintf(shorter, sizeof shorter, "%.*s", (int)TD_MIN(name.n, sizeof shorter - 1), name.p);
    for (size_t i = 0; i < sizeof capitals; i++)
        capitals[i] = (char)(shorter[i] >= 'a' && shorter[i] <= 'z' ? shorter[i] - 32 : shorter[i]);
    const char *const names[] = {full, shorter, capitals};
    OrtStatus *failed = NULL;
    for (size_t i = 0; i < TD_COUNT(names); i++) {
        if (failed) ort->api.ReleaseStatus(failed);
        failed = ort->api.SessionOptionsAppendExecutionProvider(so, names[i], pairs->keys, pairs->values, pairs->n);
        if (!failed) return TREADLE_OK;
    }
    return td_ort_fail(ort, failed, TREADLE_CONFIG, err);
}

static treadle_status append(const td_ort *ort, const td_engine_options *options, const provider_list *list,
                             OrtSessionOptions *so, td_arena *arena, treadle_error *err) {
    td_ort_pairs pairs;
    const char *full = find_built_in(list, options->provider);
    const td_json *filter = td_json_get(options->provider_options, filter_key);
    const OrtEpDevice *device = full ? NULL : find_device(ort, list, options->provider, filter);
    TD_TRY(td_ort_pairs_read(options->provider_options, "provider_options", arena, &pairs, err));
    TD_TRY(check_options(&pairs, err));
    if (!full && !device) {
        if (filter && find_device(ort, list, options->provider, NULL))
            return td_fail(err, TREADLE_CONFIG, "provider_options: no device of \"%.*s\" fits %s",
                           (int)TD_MIN(options->provider.n, (size_t)128), options->provider.p, filter_key);
        return not_available(ort, list, options->provider, arena, err);
    }
    if (full) return append_built_in(ort, full, so, &pairs, err);
    size_t n = 0;
    for (size_t i = 0; i < pairs.n; i++) {
        if (strcmp(pairs.keys[i], filter_key) == 0) continue;
        pairs.keys[n] = pairs.keys[i];
        pairs.values[n++] = pairs.values[i];
    }
    TD_ORT_TRY(ort->api.SessionOptionsAppendExecutionProvider_V2(so, ort->env, &device, 1, pairs.keys, pairs.values, n),
               TREADLE_CONFIG);
    return TREADLE_OK;
}

treadle_status td_ort_append_provider(const td_ort *ort, const td_engine_options *options, OrtSessionOptions *so,
                                      treadle_error *err) {
    if (td_engine_is_cpu_provider(options->provider)) return TREADLE_OK;
    provider_list list;
    td_arena arena = {0};
    TD_TRY(list_open(ort, &list, err));
    treadle_status status = append(ort, options, &list, so, &arena, err);
    td_arena_free(&arena);
    list_close(ort, &list);
    return status;
}

/* --- libraries of plugin providers */

/* Another session may have registered the library already: the environment, and what is
 * registered in it, is one per process. */
static bool is_registered(const td_ort *ort, const char *path) {
    const OrtEpDevice *const *devices = NULL;
    size_t n = 0;
    OrtStatus *failed = ort->api.GetEpDevices(ort->env, &devices, &n);
    if (failed) {
        ort->api.ReleaseStatus(failed);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const OrtKeyValuePairs *metadata = ort->api.EpDevice_EpMetadata(devices[i]);
        const char *from = metadata ? ort->api.GetKeyValue(metadata, "library_path") : NULL;
        if (from && strcmp(from, path) == 0) return true;
    }
    return false;
}

/* ONNX Runtime would look for a relative path beside itself, so it is given whole ones. */
static treadle_status register_library(const td_ort *ort, const char *given, treadle_error *err) {
    const char *equals = strchr(given, '='), *path = equals ? equals + 1 : given;
    char name[128], *whole = realpath(path, NULL);
    if (!whole) return td_fail(err, TREADLE_NOT_FOUND, "provider library '%s' does not exist", path);
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - given) : (int)sizeof name,
             equals ? given : td_path_base(path));
    treadle_status status = TREADLE_OK;
    if (!is_registered(ort, whole)) {
        OrtStatus *failed = ort->api.RegisterExecutionProviderLibrary(ort->env, name, whole);
        if (failed) {
            status = td_ort_fail(ort, failed, TREADLE_UNSUPPORTED, err);
            td_error_context(err, "provider library '%s'", path);
        }
        if (failed && is_registered(ort, whole)) status = TREADLE_OK; /* by another thread, meanwhile */
    }
    free(whole);
    return status;
}

treadle_status td_ort_register_libraries(const td_ort *ort, const td_engine_options *options, treadle_error *err) {
    if (options->n_provider_libraries && !ort->api.RegisterExecutionProviderLibrary)
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "'%s' is ONNX Runtime %s, which takes no provider libraries; expected 1.22 or newer", ort->path,
                       ort->version);
    for (size_t i = 0; i < options->n_provider_libraries; i++)
        TD_TRY(register_library(ort, options->provider_libraries[i], err));
    return TREADLE_OK;
}

/* --- listing */

static void write_text(td_json_writer *w, const char *key, const char *text) {
    td_json_key(w, key);
    td_json_write_text(w, text ? text : "");
}

static void write_lists(const td_ort *ort, const provider_list *list, const char *const *names, td_json_writer *w) {
    td_json_key(w, "providers");
    td_json_begin_array(w);
    for (size_t i = 0; names[i]; i++) td_json_write_text(w, names[i]);
    td_json_end_array(w);
    td_json_key(w, "devices");
    td_json_begin_array(w);
    for (size_t i = 0; i < list->n_devices; i++) {
        const OrtEpDevice *device = list->devices[i];
        const OrtHardwareDevice *hardware = ort->api.EpDevice_Device(device);
        td_json_begin_object(w);
        write_text(w, "provider", ort->api.EpDevice_EpName(device));
        write_text(w, "type", device_type(ort, device));
        write_text(w, "name", hardware ? ort->api.HardwareDevice_Vendor(hardware) : "");
        td_json_key(w, "vendor_id");
        td_json_write_int(w, hardware ? ort->api.HardwareDevice_VendorId(hardware) : 0);
        td_json_key(w, "device_id");
        td_json_write_int(w, hardware ? ort->api.HardwareDevice_DeviceId(hardware) : 0);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

treadle_status td_ort_list_devices(const td_ort *ort, td_json_writer *w, treadle_error *err) {
    provider_list list;
    td_arena arena = {0};
    const char *const *names;
    TD_TRY(list_open(ort, &list, err));
    treadle_status status = list_names(ort, &list, &arena, &names, err);
    if (status == TREADLE_OK) write_lists(ort, &list, names, w);
    td_arena_free(&arena);
    list_close(ort, &list);
    return status;
}
