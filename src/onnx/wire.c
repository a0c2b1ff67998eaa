/* onnx/wire.c - see wire.h. */
#include "onnx/wire.h"

enum { DRAIN_BYTES = 1 << 16 };

/* Groups inside groups beyond this are refused; no writer of ONNX uses groups at all. */
enum { MAX_GROUP_DEPTH = 16 };

bool td_wire_varint(td_wire *w, uint64_t *out) {
    const uint8_t *p = w->p;
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (p == w->end) return false;
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1) return false;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            w->p = p;
            *out = value;
            return true;
        }
    }
    return false;
}

/* Reads tag and payload of one field; group tags come back without payload. */
static bool read_field(td_wire *w, td_wire_field *out, const char **problem) {
    uint64_t tag;
    out->at = w->p;
    if (!td_wire_varint(w, &tag)) return *problem = "a field tag is truncated or too long", false;
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return *problem = "a field number is out of range", false;
    out->number = (uint32_t)(tag >> 3);
    out->type = (td_wire_type)(tag & 7);
    out->u = 0;
    out->data = NULL;
    out->n = 0;
    size_t left = (size_t)(w->end - w->p);
    switch (out->type) {
    case TD_WIRE_VARINT:
        if (!td_wire_varint(w, &out->u)) return *problem = "a number is truncated or too long", false;
        return true;
    case TD_WIRE_I64:
        if (left < 8) return *problem = "a 64-bit value is truncated", false;
        out->u = td_wire_load64(w->p);
        w->p += 8;
        return true;
    case TD_WIRE_I32:
        if (left < 4) return *problem = "a 32-bit value is truncated", false;
        out->u = td_wire_load32(w->p);
        w->p += 4;
        return true;
    case TD_WIRE_LEN: {
        uint64_t n;
        if (!td_wire_varint(w, &n)) return *problem = "a length is truncated or too long", false;
        if (n > (uint64_t)(w->end - w->p)) return *problem = "a length reaches past the end of its message", false;
        out->data = w->p;
        out->n = (size_t)n;
        w->p += n;
        return true;
    }
    case TD_WIRE_GROUP:
    case TD_WIRE_GROUP_END: return true;
    default: return *problem = "a field has an unknown wire type", false;
    }
}

static bool skip_group(td_wire *w, uint32_t number, const char **problem) {
    uint32_t open[MAX_GROUP_DEPTH];
    int depth = 0;
    open[depth++] = number;
    while (depth > 0) {
        td_wire_field f;
        if (w->p == w->end) return *problem = "a group is not closed", false;
        if (!read_field(w, &f, problem)) return false;
        if (f.type == TD_WIRE_GROUP) {
            if (depth == MAX_GROUP_DEPTH) return *problem = "groups are nested too deep", false;
            open[depth++] = f.number;
        } else if (f.type == TD_WIRE_GROUP_END && open[--depth] != f.number) {
            return *problem = "a group is closed by another field's end", false;
        }
    }
    return true;
}

int td_wire_next(td_wire *w, td_wire_field *out, const char **problem) {
    while (w->p != w->end) {
        const uint8_t *start = w->p;
        bool ok = read_field(w, out, problem);
        if (ok && out->type == TD_WIRE_GROUP_END) {
            *problem = "a group ends that was never opened";
            ok = false;
        }
        if (ok && out->type == TD_WIRE_GROUP) {
            if (skip_group(w, out->number, problem)) continue;
            ok = false;
        }
        if (ok) return 1;
        w->p = start;
        return -1;
    }
    return 0;
}

const char *td_wire_type_name(td_wire_type type) {
    static const char *const names[] = {"varint", "64-bit", "length-delimited", "group", "group end", "32-bit"};
    return (unsigned)type < TD_COUNT(names) ? names[type] : "unknown";
}

bool td_wire_flush(td_wire_sink *s) {
    if (s->out->n && !s->failed && !s->drain(s->ctx, s->out->p, s->out->n)) s->failed = true;
    td_buf_clear(s->out);
    return !s->failed;
}

static void put_bytes(td_wire_sink *s, const void *bytes, size_t n) {
    s->n += n;
    if (!s->out || !n) return;
    if (!s->drain || n < DRAIN_BYTES) td_buf_append(s->out, bytes, n);
    if (!s->drain) return;
    if (n >= DRAIN_BYTES || s->out->n >= DRAIN_BYTES) td_wire_flush(s);
    if (n >= DRAIN_BYTES && !s->failed && !s->drain(s->ctx, bytes, n)) s->failed = true;
}

void td_wire_put_varint(td_wire_sink *s, uint64_t value) {
    uint8_t bytes[10];
    size_t n = 0;
    while (value >= 0x80) {
        bytes[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[n++] = (uint8_t)value;
    put_bytes(s, bytes, n);
}

void td_wire_put_tag(td_wire_sink *s, uint32_t number, td_wire_type type) {
    td_wire_put_varint(s, (uint64_t)number << 3 | (uint64_t)type);
}

void td_wire_put_int(td_wire_sink *s, uint32_t number, int64_t value) {
    td_wire_put_tag(s, number, TD_WIRE_VARINT);
    td_wire_put_varint(s, (uint64_t)value);
}

void td_wire_put_float(td_wire_sink *s, uint32_t number, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint8_t)(bits >> 24)};
    td_wire_put_tag(s, number, TD_WIRE_I32);
    put_bytes(s, bytes, sizeof bytes);
}

void td_wire_put_str(td_wire_sink *s, uint32_t number, td_str text) {
    td_wire_put_tag(s, number, TD_WIRE_LEN);
    td_wire_put_varint(s, text.n);
    put_bytes(s, text.p, text.n);
}
