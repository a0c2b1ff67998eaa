/* engine/ort_library.c - finds ONNX Runtime at run time. No header, no import library: one symbol, then a table. */
#include "base/alloc.h"
#include "base/log.h"
#include "engine/ort.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const standard_names[] = {"libonnxruntime.so.1", "libonnxruntime.so"};

static const struct {
    const char *name;
    unsigned slot, since;
    size_t offset; /* in td_ort_api */
} functions[] = {
#define TD_ORT_FN(slot, since, name, result, parameters) {#name, slot, since, offsetof(td_ort_api, name)},
#include "engine/ort_api.inc"
#undef TD_ORT_FN
};

/* --- statuses */

treadle_status td_ort_fail(const td_ort *ort, OrtStatus *status, treadle_status otherwise, treadle_error *err) {
    treadle_status code = otherwise;
    switch (ort->api.GetErrorCode(status)) {
    case ORT_NO_SUCHFILE: code = TREADLE_NOT_FOUND; break;
    case ORT_INVALID_PROTOBUF:
    case ORT_INVALID_GRAPH: code = TREADLE_FORMAT; break;
    case ORT_NOT_IMPLEMENTED: code = TREADLE_UNSUPPORTED; break;
    default: break;
    }
    const char *text = ort->api.GetErrorMessage(status);
    (void)td_fail(err, code, "ONNX Runtime: %s", text && text[0] ? text : "it gives no reason");
    ort->api.ReleaseStatus(status);
    return code;
}

/* Failures come back as statuses too, so what is logged as an error is worth no more than a warning here, and a warning
 * (unused initializers, nodes left to the CPU) is for those who ask. */
static void forward_log(void *param, OrtLoggingLevel severity, const char *category, const char *logid,
                        const char *code_location, const char *message) {
    (void)param, (void)category, (void)logid;
    td_log_level level = severity >= ORT_LOGGING_LEVEL_WARNING ? TD_LOG_INFO : TD_LOG_DEBUG;
    td_log(level, "ONNX Runtime: %s (%s)", message ? message : "", code_location ? code_location : "");
}

/* --- the table */

/* "1.31.1" is level 31. 0: the text says no such thing. */
static unsigned level_of_version(const char *version) {
    unsigned major, minor;
    if (!version || sscanf(version, "%u.%u", &major, &minor) != 2 || major != 1) return 0;
    return minor;
}

static treadle_status read_table(td_ort *ort, const OrtApiBase *base, treadle_error *err) {
    const char *version = base->GetVersionString();
    snprintf(ort->version, sizeof ort->version, "%s", version ? version : "of no version");
    unsigned level = level_of_version(version);
    if (level && level < TD_ORT_API_MIN)
        return td_fail(err, TREADLE_UNSUPPORTED, "'%s' is ONNX Runtime %s, expected 1.%d or newer", ort->path,
                       ort->version, TD_ORT_API_MIN);
    ort->level = level ? TD_MIN(level, (unsigned)TD_ORT_API_MAX) : TD_ORT_API_MIN;
    ort->table = base->GetApi(ort->level);
    if (!ort->table)
        return td_fail(err, TREADLE_UNSUPPORTED, "'%s' is ONNX Runtime %s and does not offer its API level %u",
                       ort->path, ort->version, ort->level);
    for (size_t i = 0; i < TD_COUNT(functions); i++) {
        if (functions[i].since > ort->level) continue;
        const void *function = ((const void *const *)ort->table)[functions[i].slot];
        if (!function)
            return td_fail(err, TREADLE_UNSUPPORTED, "'%s' is ONNX Runtime %s without the function %s", ort->path,
                           ort->version, functions[i].name);
        memcpy((char *)&ort->api + functions[i].offset, &function, sizeof function);
    }
    return TREADLE_OK;
}

/* --- finding it */

static void *load(const char *name, td_buf *tried) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library) return library;
    const char *why = dlerror();
    size_t n = strlen(name);
    if (why && strncmp(why, name, n) == 0 && strncmp(why + n, ": ", 2) == 0) why += n + 2; /* not said twice */
    td_buf_printf(tried, "%s%s (%s)", tried->n ? ", " : "", name, why ? why : "no reason given");
    return NULL;
}

static treadle_status find(const td_engine_options *options, void **out, const char **out_name, treadle_error *err) {
    const char *named = options->library && options->library[0] ? options->library : getenv("TREADLE_ORT_LIB");
    td_buf tried = {0};
    *out = NULL;
    if (named && named[0]) {
        *out = load(*out_name = named, &tried);
    } else {
        for (size_t i = 0; !*out && i < TD_COUNT(standard_names); i++)
            *out = load(*out_name = standard_names[i], &tried);
    }
    if (!*out) {
        (void)td_fail(err, TREADLE_NOT_FOUND, "ONNX Runtime was not found. Tried: %s", tried.p ? tried.p : "nothing");
        td_error_hint(err, "Name libonnxruntime.so by --ort-lib or TREADLE_ORT_LIB.");
    }
    td_buf_free(&tried);
    return *out ? TREADLE_OK : TREADLE_NOT_FOUND;
}

static treadle_status make_environment(td_ort *ort, treadle_error *err) {
    TD_ORT_TRY(ort->api.CreateEnvWithCustomLogger(forward_log, NULL, ORT_LOGGING_LEVEL_WARNING, "treadle", &ort->env),
               TREADLE_UNSUPPORTED);
    TD_ORT_TRY(ort->api.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &ort->cpu), TREADLE_INTERNAL);
    TD_ORT_TRY(ort->api.GetAllocatorWithDefaultOptions(&ort->allocator), TREADLE_INTERNAL);
    return TREADLE_OK;
}

treadle_status td_ort_open(const td_engine_options *options, td_ort **out, treadle_error *err) {
    void *library = NULL;
    const char *name = NULL;
    TD_TRY(find(options, &library, &name, err));
    void *symbol = dlsym(library, "OrtGetApiBase");
    if (!symbol)
        return td_fail(err, TREADLE_UNSUPPORTED, "'%s' is no ONNX Runtime: it has no function OrtGetApiBase", name);
    const OrtApiBase *(*get_base)(void);
    memcpy(&get_base, &symbol, sizeof get_base);
    const OrtApiBase *base = get_base();
    if (!base || !base->GetApi || !base->GetVersionString)
        return td_fail(err, TREADLE_UNSUPPORTED, "'%s' is no ONNX Runtime: OrtGetApiBase gives nothing", name);
    td_ort *ort = td_alloc_zero(1, sizeof *ort);
    if (!ort) return td_fail_memory(err, "ONNX Runtime's table", sizeof *ort);
    ort->refs = 1;
    ort->path = td_strdup(name);
    treadle_status status = ort->path ? read_table(ort, base, err) : td_fail_memory(err, "a path", strlen(name));
    if (status == TREADLE_OK) status = make_environment(ort, err);
    if (status == TREADLE_OK) status = td_ort_register_libraries(ort, options, err);
    if (status != TREADLE_OK) {
        td_ort_release(ort);
        return status;
    }
    *out = ort;
    return TREADLE_OK;
}

td_ort *td_ort_retain(td_ort *ort) {
    __atomic_add_fetch(&ort->refs, 1, __ATOMIC_RELAXED);
    return ort;
}

void td_ort_release(td_ort *ort) {
    if (!ort || __atomic_sub_fetch(&ort->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (ort->cpu) ort->api.ReleaseMemoryInfo(ort->cpu);
    if (ort->env) ort->api.ReleaseEnv(ort->env);
    td_free(ort->path);
    td_free(ort);
}
