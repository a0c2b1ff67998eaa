/* onnx/wire.h - the protobuf wire format: reading fields in place, writing them to a sink.
 *
 * The reader never copies and never looks outside [p, end). Groups (deprecated) are skipped whole. The writer emits the
 * shortest varints; a sink without a buffer only counts, which is how lengths of nested messages are found.
 * Source: protobuf.dev/programming-guides/encoding. */
#ifndef TD_ONNX_WIRE_H
#define TD_ONNX_WIRE_H

#include "base/str.h"

typedef enum td_wire_type {
    TD_WIRE_VARINT = 0,
    TD_WIRE_I64 = 1,
    TD_WIRE_LEN = 2,
    TD_WIRE_GROUP = 3,
    TD_WIRE_GROUP_END = 4,
    TD_WIRE_I32 = 5,
} td_wire_type;

typedef struct td_wire {
    const uint8_t *p, *end;
} td_wire;

typedef struct td_wire_field {
    uint32_t number;
    td_wire_type type;   /* never a group: those are skipped */
    const uint8_t *at;   /* first byte of the tag */
    uint64_t u;          /* VARINT, I32, I64 */
    const uint8_t *data; /* LEN */
    size_t n;
} td_wire_field;

/* Reads the next field. 1: *out is filled; 0: end of the message; -1: malformed, *problem (static text) says how and
 * w->p stays at the bad field. */
int td_wire_next(td_wire *w, td_wire_field *out, const char **problem);

/* One varint at w->p; false: truncated or longer than 10 bytes. */
bool td_wire_varint(td_wire *w, uint64_t *out);

const char *td_wire_type_name(td_wire_type type);

static inline uint32_t td_wire_load32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t td_wire_load64(const uint8_t *p) {
    return (uint64_t)td_wire_load32(p) | (uint64_t)td_wire_load32(p + 4) << 32;
}

/* --- writing */
typedef struct td_wire_sink {
    td_buf *out; /* NULL: only count */
    size_t n;    /* bytes put so far */
    /* NULL: out holds everything. Else out is emptied into this now and then; false ends the writing. */
    bool (*drain)(void *ctx, const void *bytes, size_t n);
    void *ctx;
    bool failed; /* drain said so */
} td_wire_sink;

bool td_wire_flush(td_wire_sink *s); /* what out still holds goes to drain */
void td_wire_put_varint(td_wire_sink *s, uint64_t value);
void td_wire_put_tag(td_wire_sink *s, uint32_t number, td_wire_type type);
void td_wire_put_int(td_wire_sink *s, uint32_t number, int64_t value);
void td_wire_put_float(td_wire_sink *s, uint32_t number, float value);
void td_wire_put_str(td_wire_sink *s, uint32_t number, td_str text);

#endif
