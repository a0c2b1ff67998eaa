/* light/ops/loops.h - typed inner loops for map.h, written once as always-inline templates.
 *
 * TD_LOOP1(name, R, T, expr)       R y = expr of T a
 * TD_LOOP2(name, R, T, U, expr)    R y = expr of T a, U b
 * Each gets a path for dense operands, and one for a constant second operand, that compilers vectorise. */
#ifndef TD_LIGHT_OPS_LOOPS_H
#define TD_LIGHT_OPS_LOOPS_H

#include "light/ops/map.h"

#define TD_LOOP1(name, R, T, expr)                                                                                     \
    TD_INLINE void name##_at(int64_t n, char *po, const char *pa, int64_t so, int64_t sa, const void *ctx) {           \
        (void)ctx;                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T a = *(const T *)(const void *)(pa + i * sa);                                                       \
            *(R *)(void *)(po + i * so) = (R)(expr);                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void name(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS], const void *ctx) {   \
        if (s[0] == sizeof(R) && s[1] == sizeof(T)) name##_at(n, p[0], p[1], sizeof(R), sizeof(T), ctx);               \
        else name##_at(n, p[0], p[1], s[0], s[1], ctx);                                                                \
    }

#define TD_LOOP2(name, R, T, U, expr)                                                                                  \
    TD_INLINE void name##_at(int64_t n, char *po, const char *pa, const char *pb, int64_t so, int64_t sa, int64_t sb,  \
                             const void *ctx) {                                                                        \
        (void)ctx;                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T a = *(const T *)(const void *)(pa + i * sa);                                                       \
            const U b = *(const U *)(const void *)(pb + i * sb);                                                       \
            *(R *)(void *)(po + i * so) = (R)(expr);                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void name(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS], const void *ctx) {   \
        if (s[0] == sizeof(R) && s[1] == sizeof(T) && s[2] == sizeof(U))                                               \
            name##_at(n, p[0], p[1], p[2], sizeof(R), sizeof(T), sizeof(U), ctx);                                      \
        else if (s[0] == sizeof(R) && s[1] == sizeof(T) && s[2] == 0)                                                  \
            name##_at(n, p[0], p[1], p[2], sizeof(R), sizeof(T), 0, ctx);                                              \
        else name##_at(n, p[0], p[1], p[2], s[0], s[1], s[2], ctx);                                                    \
    }

/* The same loop for several C types: M(suffix, type, dtype, ...). Signed arithmetic is done unsigned, so that it
 * wraps. */
#define TD_FOR_SIGNED(M, ...)                                                                                          \
    M(i8, int8_t, uint8_t, TD_INT8, __VA_ARGS__)                                                                       \
    M(i16, int16_t, uint16_t, TD_INT16, __VA_ARGS__)                                                                   \
    M(i32, int32_t, uint32_t, TD_INT32, __VA_ARGS__)                                                                   \
    M(i64, int64_t, uint64_t, TD_INT64, __VA_ARGS__)
#define TD_FOR_UNSIGNED(M, ...)                                                                                        \
    M(u8, uint8_t, uint8_t, TD_UINT8, __VA_ARGS__)                                                                     \
    M(u16, uint16_t, uint16_t, TD_UINT16, __VA_ARGS__)                                                                 \
    M(u32, uint32_t, uint32_t, TD_UINT32, __VA_ARGS__)                                                                 \
    M(u64, uint64_t, uint64_t, TD_UINT64, __VA_ARGS__)
#define TD_FOR_FLOATS(M, ...)                                                                                          \
    M(f32, float, float, TD_FLOAT, __VA_ARGS__)                                                                        \
    M(f64, double, double, TD_DOUBLE, __VA_ARGS__)

#define TD_ROW(suffix, T, U, dtype, name) {dtype, name##_##suffix},

#endif
