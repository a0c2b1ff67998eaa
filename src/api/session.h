/* api/session.h - the inside of a treadle_session, for the files that work on it. */
#ifndef TD_API_SESSION_H
#define TD_API_SESSION_H

#include <pthread.h>

#include "api/api.h"
#include "engine/engine.h"

struct treadle_session {
    const td_engine *engine;
    td_session *session;
    td_signature *signature;
    td_arena arena; /* names as C strings, options */
    treadle_port *inputs, *outputs;
    size_t n_inputs, n_outputs;
    pthread_mutex_t lock; /* guards idle */
    td_session_ctx *idle; /* a context that no run uses, also the latest one's profile; NULL: none */
};

#endif
