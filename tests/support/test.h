/* support/test.h - the test harness: one process per file, tests that register themselves, checks that show operands.
 *
 *     #include "support/test.h"
 *
 *     TEST(adds_up)
 *     {
 *         CHECK_EQ_INT(1 + 1, 2);
 *     }
 *
 * main() is in test.c. Arguments select tests by substring (`test_base_json depth escape`); `-l` lists them.
 * A failed check is printed and the test goes on; REQUIRE and the _OK checks leave the test, since what follows needs
 * them. Checks do not depend on NDEBUG. Each operand is evaluated once. Checks are for the test's own thread; other
 * threads hand their findings back. Output is nothing but failures, skips and the closing line
 * `N passed, N failed, N skipped`. Exit code: 1 if a test failed, 77 if all were skipped, else 0.
 */
#ifndef TD_TESTS_SUPPORT_TEST_H
#define TD_TESTS_SUPPORT_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "treadle/status.h"

typedef struct td_test {
    const char *name;
    void (*run)(void);
    const char *file;
    struct td_test *next;
} td_test;

void td_test_register(td_test *test);

#define TEST(test_name)                                                                                                \
    static void test_name##_test(void);                                                                                \
    __attribute__((constructor)) static void test_name##_register(void) {                                              \
        static td_test row;                                                                                            \
        row.name = #test_name;                                                                                         \
        row.run = test_name##_test;                                                                                    \
        row.file = __FILE__;                                                                                           \
        td_test_register(&row);                                                                                        \
    }                                                                                                                  \
    static void test_name##_test(void)

/* Checks return whether they held, so `if (!CHECK(p)) return;` works. */
#define CHECK(cond) td_check(__FILE__, __LINE__, #cond, !!(cond))
#define CHECK_EQ_INT(a, b) td_check_int(__FILE__, __LINE__, #a " == " #b, (int64_t)(a), (int64_t)(b))
#define CHECK_EQ_UINT(a, b) td_check_uint(__FILE__, __LINE__, #a " == " #b, (uint64_t)(a), (uint64_t)(b))
#define CHECK_EQ_PTR(a, b) td_check_ptr(__FILE__, __LINE__, #a " == " #b, (a), (b))
#define CHECK_EQ_STR(a, b) td_check_str(__FILE__, __LINE__, #a " == " #b, (a), (b))
#define CHECK_HAS_STR(text, part) td_check_has_str(__FILE__, __LINE__, #text " has " #part, (text), (part))
#define CHECK_EQ_MEM(a, b, n_bytes) td_check_mem(__FILE__, __LINE__, #a " == " #b, (a), (b), (n_bytes))
/* |a - b| <= tol; both NaN is equal, so are equal infinities. */
#define CHECK_NEAR(a, b, tol) td_check_near(__FILE__, __LINE__, #a " ~ " #b, (double)(a), (double)(b), (double)(tol))

/* Leaves the test when the condition does not hold. */
#define REQUIRE(cond)                                                                                                  \
    do {                                                                                                               \
        if (!td_check(__FILE__, __LINE__, #cond, !!(cond))) td_test_leave();                                           \
    } while (0)
/* status_expr must be TREADLE_OK, else the error `err` (treadle_error *, may be NULL) is shown and the test is left. */
#define CHECK_OK(status_expr, err)                                                                                     \
    do {                                                                                                               \
        treadle_status td_status_ = (status_expr);                                                                     \
        if (!td_check_status(__FILE__, __LINE__, #status_expr, td_status_, TREADLE_OK, (err))) td_test_leave();        \
    } while (0)
/* status_expr must be this failure; the error's text can then be checked with CHECK_HAS_STR. */
#define CHECK_STATUS(status_expr, wanted, err)                                                                         \
    td_check_status(__FILE__, __LINE__, #status_expr, (status_expr), (wanted), (err))

#define FAIL(...) td_test_fail(__FILE__, __LINE__, __VA_ARGS__) /* printf form */
#define SKIP(...) td_test_skip(__VA_ARGS__)                     /* leaves the test; printf form */

bool td_check(const char *file, int line, const char *text, bool holds);
bool td_check_int(const char *file, int line, const char *text, int64_t a, int64_t b);
bool td_check_uint(const char *file, int line, const char *text, uint64_t a, uint64_t b);
bool td_check_ptr(const char *file, int line, const char *text, const void *a, const void *b);
bool td_check_str(const char *file, int line, const char *text, const char *a, const char *b);
bool td_check_has_str(const char *file, int line, const char *text, const char *whole, const char *part);
bool td_check_mem(const char *file, int line, const char *text, const void *a, const void *b, size_t n_bytes);
bool td_check_near(const char *file, int line, const char *text, double a, double b, double tol);
bool td_check_status(const char *file, int line, const char *text, treadle_status got, treadle_status wanted,
                     const treadle_error *err);
void td_test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void td_test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void td_test_leave(void);

/* Paths. All are absolute, NUL-terminated and live until the process ends. */

/* A file or folder of the independent test data. NULL when TREADLE_SHARED is not set (then SKIP); a missing file under
 * a TREADLE_SHARED that is set fails the test and leaves it. */
const char *td_test_shared(const char *path);
/* The folder of the unpacked archive data/NAME.tar.xz of the independent test data (scripts/unpack-shared). Skips the
 * test where TREADLE_SHARED is not set. */
const char *td_test_unpacked(const char *name);
/* A file that scripts/fetch-* put under TREADLE_MODELS (default: models/ of the source tree). NULL if it is not there;
 * under CI or TREADLE_SHARED that fails the test and leaves it. */
const char *td_test_model(const char *path);
/* ONNX Runtime's library: TREADLE_ORT_LIB, else that of the tests' Python packages. Skips the test where there is none;
 * under CI or TREADLE_SHARED that fails it. */
const char *td_test_ort(void);
/* A file of the source tree, e.g. "tests/config/data/x.json"; it need not exist. */
const char *td_test_source(const char *path);
/* A path inside a fresh folder of this process, removed when the process ends. */
const char *td_test_temp(const char *name);

/* The whole file, with a 0 behind it; fails and leaves the test if it cannot be read. Free with free(). */
char *td_test_read(const char *path, size_t *n_bytes);
void td_test_write(const char *path, const void *bytes, size_t n_bytes);

/* Deterministic random numbers for test data (splitmix64): the same everywhere, unlike rand(). */
uint64_t td_test_random(uint64_t *state);
float td_test_random_f32(uint64_t *state, float low, float high);

#endif
