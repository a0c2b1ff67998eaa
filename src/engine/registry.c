/* engine/registry.c - the engines of this build. */
#include "engine/engine.h"

static const td_engine *const engines[] = {&td_engine_light};

const td_engine *td_engine_find(td_str name) {
    for (size_t i = 0; i < TD_COUNT(engines); i++)
        if (td_str_is(name, engines[i]->name)) return engines[i];
    return NULL;
}
