/* support/test.c - see test.h. Depends on nothing of src/, so that it can test the lowest layer. */
#include "support/test.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static td_test *first_test, **last_link = &first_test;
static const td_test *current;
static jmp_buf leave_point;
static int n_failed_checks; /* of the current test */
static char skip_reason[512];
static char temp_dir[512];

enum { MAX_SHOWN = 20 }; /* failed checks shown per test; a loop gone wrong should not print a million lines */

void td_test_register(td_test *test) {
    *last_link = test;
    last_link = &test->next;
}

static void failed(const char *file, int line) {
    n_failed_checks++;
    if (n_failed_checks <= MAX_SHOWN) printf("%s:%d: %s: ", file, line, current ? current->name : "(no test)");
    if (n_failed_checks == MAX_SHOWN + 1)
        printf("%s: more failures not shown\n", current ? current->name : "(no test)");
}

static bool shown(void) { return n_failed_checks <= MAX_SHOWN; }

bool td_check(const char *file, int line, const char *text, bool holds) {
    if (holds) return true;
    failed(file, line);
    if (shown()) printf("does not hold: %s\n", text);
    return false;
}

bool td_check_int(const char *file, int line, const char *text, int64_t a, int64_t b) {
    if (a == b) return true;
    failed(file, line);
    if (shown()) printf("%s: %" PRId64 " != %" PRId64 "\n", text, a, b);
    return false;
}

bool td_check_uint(const char *file, int line, const char *text, uint64_t a, uint64_t b) {
    if (a == b) return true;
    failed(file, line);
    if (shown()) printf("%s: %" PRIu64 " (0x%" PRIx64 ") != %" PRIu64 " (0x%" PRIx64 ")\n", text, a, a, b, b);
    return false;
}

bool td_check_ptr(const char *file, int line, const char *text, const void *a, const void *b) {
    if (a == b) return true;
    failed(file, line);
    if (shown()) printf("%s: %p != %p\n", text, a, b);
    return false;
}

/* "text" with escapes, or NULL without quotes. */
static void print_quoted(const char *s) {
    if (!s) {
        printf("NULL");
        return;
    }
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
        if (*p == '\n') printf("\\n");
        else if (*p == '"' || *p == '\\') printf("\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f) printf("\\x%02x", *p);
        else putchar(*p);
    }
    putchar('"');
}

bool td_check_str(const char *file, int line, const char *text, const char *a, const char *b) {
    if (a == b || (a && b && strcmp(a, b) == 0)) return true;
    failed(file, line);
    if (shown()) {
        printf("%s:\n    ", text);
        print_quoted(a);
        printf("\n    ");
        print_quoted(b);
        printf("\n");
    }
    return false;
}

bool td_check_has_str(const char *file, int line, const char *text, const char *whole, const char *part) {
    if (whole && part && strstr(whole, part)) return true;
    failed(file, line);
    if (shown()) {
        printf("%s:\n    ", text);
        print_quoted(whole);
        printf("\n    lacks ");
        print_quoted(part);
        printf("\n");
    }
    return false;
}

bool td_check_mem(const char *file, int line, const char *text, const void *a, const void *b, size_t n_bytes) {
    const unsigned char *x = a, *y = b;
    size_t i = 0;
    while (i < n_bytes && x[i] == y[i]) i++;
    if (i == n_bytes) return true;
    failed(file, line);
    if (shown()) printf("%s: byte %zu of %zu: 0x%02x != 0x%02x\n", text, i, n_bytes, x[i], y[i]);
    return false;
}

bool td_check_near(const char *file, int line, const char *text, double a, double b, double tol) {
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tol) return true;
    failed(file, line);
    if (shown()) printf("%s: %.9g and %.9g differ by %.3g, more than %.3g\n", text, a, b, fabs(a - b), tol);
    return false;
}

bool td_check_status(const char *file, int line, const char *text, treadle_status got, treadle_status wanted,
                     const treadle_error *err) {
    if (got == wanted) return true;
    failed(file, line);
    if (!shown()) return false;
    printf("%s: status %d, wanted %d\n", text, (int)got, (int)wanted);
    if (got != TREADLE_OK && err) {
        printf("    %s:%u:%u %s: %s", err->file, err->line, err->column, err->pointer, err->message);
        printf("%s%s\n", err->hint[0] ? " | " : "", err->hint);
    }
    return false;
}

void td_test_fail(const char *file, int line, const char *format, ...) {
    failed(file, line);
    if (!shown()) return;
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void td_test_leave(void) { longjmp(leave_point, 1); }

void td_test_skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(skip_reason, sizeof skip_reason, format, args);
    va_end(args);
    longjmp(leave_point, 2);
}

/* ---- paths and files ---- */

/* base/path on the heap, kept until the end; reachable from a list so that leak checkers stay quiet. */
static char *join(const char *base, const char *path) {
    typedef struct kept {
        struct kept *next;
        char text[];
    } kept;
    static kept *all;
    size_t n = strlen(base) + 1 + strlen(path) + 1;
    kept *k = malloc(sizeof *k + n);
    if (!k) {
        fprintf(stderr, "out of memory\n");
        _exit(1);
    }
    snprintf(k->text, n, "%s/%s", base, path);
    k->next = all;
    all = k;
    return k->text;
}

static const char *set_env(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

const char *td_test_shared(const char *path) {
    const char *base = set_env("TREADLE_SHARED");
    if (!base) return NULL;
    const char *full = join(base, path);
    if (access(full, R_OK) != 0) {
        FAIL("%s: not found, though TREADLE_SHARED is set", full);
        td_test_leave();
    }
    return full;
}

const char *td_test_unpacked(const char *name) {
    char archive[200], command[4200], line[4096];
    snprintf(archive, sizeof archive, "data/%s.tar.xz", name);
    if (!td_test_shared(archive)) td_test_skip("TREADLE_SHARED is not set");
    snprintf(command, sizeof command, "'%s' '%s'", td_test_source("scripts/unpack-shared"), name);
    FILE *pipe = popen(command, "r");
    bool got = pipe && fgets(line, sizeof line, pipe);
    if (!pipe || pclose(pipe) != 0 || !got) {
        FAIL("%s failed", command);
        td_test_leave();
    }
    line[strcspn(line, "\n")] = 0;
    return join(line, ".");
}

const char *td_test_model(const char *path) {
    const char *base = set_env("TREADLE_MODELS");
    const char *full = base ? join(base, path) : td_test_source(join("models", path));
    if (access(full, R_OK) == 0) return full;
    if (set_env("CI") || set_env("TREADLE_SHARED")) {
        FAIL("%s: not found; `make models` gets it", full);
        td_test_leave();
    }
    return NULL;
}

const char *td_test_ort(void) {
    static const char pattern[] = ".venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*";
    const char *named = set_env("TREADLE_ORT_LIB");
    if (named) return named;
    glob_t found = {0};
    const char *path = NULL;
    if (glob(td_test_source(pattern), 0, NULL, &found) == 0 && found.gl_pathc > 0)
        path = join("", found.gl_pathv[0] + 1); /* a whole path: it begins with a slash */
    globfree(&found);
    if (path) return path;
    if (set_env("CI") || set_env("TREADLE_SHARED")) {
        FAIL("%s: not found; scripts/setup installs it", pattern);
        td_test_leave();
    }
    td_test_skip("no libonnxruntime.so (TREADLE_ORT_LIB, or scripts/setup)");
}

const char *td_test_source(const char *path) {
    const char *base = set_env("TREADLE_SOURCE");
    return join(base ? base : TD_TEST_SOURCE_DIR, path);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_temp_dir(void) {
    if (temp_dir[0]) nftw(temp_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *td_test_temp(const char *name) {
    if (!temp_dir[0]) {
        const char *base = set_env("TMPDIR");
        snprintf(temp_dir, sizeof temp_dir, "%s/treadle-test-XXXXXX", base ? base : P_tmpdir);
        if (!mkdtemp(temp_dir)) {
            FAIL("cannot make %s: %s", temp_dir, strerror(errno));
            temp_dir[0] = 0;
            td_test_leave();
        }
        atexit(remove_temp_dir);
    }
    return join(temp_dir, name);
}

char *td_test_read(const char *path, size_t *n_bytes) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        FAIL("cannot read %s: %s", path, f ? "not a regular file" : strerror(errno));
        if (f) fclose(f);
        td_test_leave();
    }
    size_t size = (size_t)st.st_size;
    char *bytes = malloc(size + 1);
    if (!bytes || fread(bytes, 1, size, f) != size) {
        FAIL("cannot read %zu bytes of %s", size, path);
        free(bytes);
        fclose(f);
        td_test_leave();
    }
    fclose(f);
    bytes[size] = 0;
    if (n_bytes) *n_bytes = size;
    return bytes;
}

void td_test_write(const char *path, const void *bytes, size_t n_bytes) {
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, n_bytes, f) == n_bytes;
    if (f && fclose(f) != 0) ok = false;
    if (!ok) {
        FAIL("cannot write %s: %s", path, strerror(errno));
        td_test_leave();
    }
}

uint64_t td_test_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float td_test_random_f32(uint64_t *state, float low, float high) {
    double unit = (double)(td_test_random(state) >> 11) * 0x1p-53;
    return (float)((double)low + ((double)high - (double)low) * unit);
}

/* ---- main ---- */

static bool selected(const td_test *test, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strstr(test->name, argv[i])) return true;
    return argc <= 1;
}

/* 0 passed, 1 failed, 2 skipped; apart from main so that no local of main lives across setjmp. */
static int run_one(const td_test *test) {
    current = test;
    n_failed_checks = 0;
    skip_reason[0] = 0;
    switch (setjmp(leave_point)) {
    case 0: test->run(); break;
    case 2: printf("SKIP: %s: %s\n", current->name, skip_reason[0] ? skip_reason : "no reason given"); break;
    default: break;
    }
    int result = n_failed_checks ? 1 : skip_reason[0] ? 2 : 0;
    current = NULL;
    return result;
}

/* Names the test that crashed, then lets the signal do what it does. Sanitizers have handlers of their own. */
static void on_crash(int signal_number) {
    static const char text[] = "crashed in test ";
    const char *name = current ? current->name : "(none)";
    ssize_t ignored = write(STDOUT_FILENO, text, sizeof text - 1);
    ignored += write(STDOUT_FILENO, name, strlen(name));
    ignored += write(STDOUT_FILENO, "\n", 1);
    (void)ignored;
    raise(signal_number); /* SA_RESETHAND: now the default action */
}

static void watch_crashes(void) {
    static const int signals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) != 0 || old.sa_handler != SIG_DFL) continue;
        struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
        sigaction(signals[i], &action, NULL);
    }
}

int main(int argc, char **argv) {
    int counts[3] = {0, 0, 0};
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed before a crash must be seen */
    watch_crashes();

    if (argc == 2 && strcmp(argv[1], "-l") == 0) {
        for (const td_test *t = first_test; t; t = t->next) printf("%s\n", t->name);
        return 0;
    }
    for (const td_test *t = first_test; t; t = t->next)
        if (selected(t, argc, argv)) counts[run_one(t)]++;
    if (counts[0] + counts[1] + counts[2] == 0) {
        printf("no test %s\n", argc > 1 ? "of that name" : "registered");
        counts[1] = 1;
    }
    printf("%d passed, %d failed, %d skipped\n", counts[0], counts[1], counts[2]);
    return counts[1] ? 1 : counts[0] ? 0 : 77;
}
