/* api/api.h - what the files of the C ABI share. Each checks its arguments and passes on; nothing is decided here. */
#ifndef TD_API_API_H
#define TD_API_API_H

#include "request/request.h"
#include "tensor/public.h"
#include "treadle/treadle.h"

/* TREADLE_INVALID_ARGUMENT naming the parameter unless it is there. */
#define TD_NEED(pointer)                                                                                               \
    do {                                                                                                               \
        if (!(pointer)) return td_fail(error, TREADLE_INVALID_ARGUMENT, "%s is NULL", #pointer);                       \
    } while (0)

/* Ranges of what models and sessions have in common. */
treadle_status td_api_engine_options(const char *engine, int32_t n_threads, treadle_activations activations,
                                     treadle_error *error);

/* That a list of the caller's has all of its n entries. */
treadle_status td_api_names(const char *const *names, size_t n, const char *what, treadle_error *error);

/* Copies an options struct of the caller's size over the defaults in `out`. */
treadle_status td_api_options(const void *options, void *out, size_t size, const char *init, treadle_error *error);

/* Hands a buffer's text over as memory for treadle_free. Takes the buffer, also on failure. n_bytes may be NULL. */
treadle_status td_api_take_text(td_buf *buf, char **out, size_t *n_bytes, treadle_error *error);

/* A view of the caller's tensor, whose data are there. */
treadle_status td_api_tensor(const treadle_tensor *tensor, td_tensor *out, treadle_error *error);

struct treadle_value {
    int refs;       /* atomic */
    td_value value; /* owns what it holds; tensors are dense */
};
/* Takes *value, also on failure. */
treadle_status td_api_value_take(td_value *value, treadle_value **out, treadle_error *error);

#endif
