/* engine/registry.c - the engines of this build, and which of them runs a session. */
#include "engine/engine.h"

#include <stdio.h>

static const td_engine *const engines[] = {&td_engine_light, &td_engine_ort};

size_t td_engine_count(void) { return TD_COUNT(engines); }

const td_engine *td_engine_at(size_t index) { return engines[index]; }

const td_engine *td_engine_find(td_str name) {
    for (size_t i = 0; i < TD_COUNT(engines); i++)
        if (td_str_is(name, engines[i]->name)) return engines[i];
    return NULL;
}

static bool equal_letters(td_str a, const char *b) {
    size_t i = 0;
    for (; i < a.n && b[i]; i++)
        if ((a.p[i] >= 'A' && a.p[i] <= 'Z' ? a.p[i] + 32 : a.p[i]) != b[i]) return false;
    return i == a.n && !b[i];
}

bool td_engine_is_cpu_provider(td_str provider) {
    return provider.n == 0 || equal_letters(provider, "cpu") || equal_letters(provider, "cpuexecutionprovider");
}

static treadle_status no_such_engine(td_str name, treadle_error *err) {
    const char *names[TD_COUNT(engines)];
    char list[128] = "", given[64];
    for (size_t i = 0, at = 0; i < TD_COUNT(engines); i++) {
        names[i] = engines[i]->name;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    }
    snprintf(given, sizeof given, "%.*s", (int)TD_MIN(name.n, sizeof given - 1), name.p);
    (void)td_fail(err, TREADLE_CONFIG, "Unknown engine \"%s\". Valid options: %s", given, list);
    const char *near = td_nearest(given, names, TD_COUNT(engines));
    if (near) td_error_hint(err, "Did you mean \"%s\"?", near);
    return TREADLE_CONFIG;
}

treadle_status td_engine_for_session(const td_engine_options *base, const td_engine_wish *wish,
                                     const td_engine **out_engine, td_engine_options *out_options, treadle_error *err) {
    bool forced = base->engine && base->engine[0], accelerated = !td_engine_is_cpu_provider(wish->provider);
    td_str name = forced           ? td_str_from(base->engine)
                  : accelerated    ? TD_STR("ort")
                  : wish->engine.n ? wish->engine
                                   : TD_STR("light");
    const td_engine *engine = td_engine_find(name);
    if (!engine) return no_such_engine(name, err);
    *out_options = *base;
    if (engine != &td_engine_light) {
        out_options->provider = accelerated ? wish->provider : (td_str){0};
        out_options->provider_options = wish->provider_options;
        out_options->session_options = wish->session_options;
        out_options->run_options = wish->run_options;
    }
    *out_engine = engine;
    return TREADLE_OK;
}
