/* Each allocation in turn fails, alone and with all that follow: base answers TREADLE_OUT_OF_MEMORY or false, keeps
 * what it had, and leaks nothing (the sanitizers look). */
#include "support/allocations.h"
#include "support/test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "base/pool.h"

#include <stdio.h>

/* Runs work(), which returns false if it met a failure, until a run meets none. */
static void sweep(bool (*work)(void)) {
    for (int all = 0; all < 2; all++) {
        td_test_fail_after = all != 0;
        bool done = false;
        int n = 0;
        while (!done && n < 100000) {
            td_test_allocations = 0;
            td_test_fail_at = ++n;
            done = work();
            if (!done && td_test_allocations < n) FAIL("failed without a reason at %d", n);
            if (done && td_test_allocations >= n) FAIL("failure of allocation %d went unnoticed", n);
        }
        td_test_fail_at = INT_MAX;
        CHECK(n > 1);
    }
}

static bool ok(treadle_status status) {
    if (status != TREADLE_OK && status != TREADLE_OUT_OF_MEMORY) FAIL("status %d", status);
    return status == TREADLE_OK;
}

static td_buf json_text;

static bool parse_json(void) {
    td_arena arena = {0};
    td_json *root = NULL;
    treadle_error err = {0};
    bool done = ok(td_json_parse(td_buf_view(&json_text), NULL, &arena, &root, &err));
    CHECK_EQ_INT(err.code, done ? TREADLE_OK : TREADLE_OUT_OF_MEMORY);
    if (!done) CHECK_HAS_STR(err.message, "out of memory");
    td_arena_free(&arena);
    return done;
}

TEST(json_parse) {
    td_buf_text(&json_text, "{\"many\": {");
    for (int i = 0; i < 500; i++) td_buf_printf(&json_text, "\"k\\u00e9y%d\": [%d, \"\\n\"],", i, i);
    td_buf_text(&json_text, "\"last\": \"text\"}}");
    REQUIRE(!json_text.failed);
    sweep(parse_json);
    td_buf_free(&json_text);
}

static bool parse_bad_json(void) {
    td_arena arena = {0};
    td_json *root = NULL;
    treadle_error err = {0};
    treadle_status status = td_json_parse(TD_STR("{\"a\": [1, {\"b\": x}]}"), NULL, &arena, &root, &err);
    td_arena_free(&arena);
    if (status == TREADLE_FORMAT) CHECK_EQ_INT(err.column, 17); /* the pointer may be missing then, the place is not */
    return status == TREADLE_FORMAT && strcmp(err.pointer, "/a/1/b") == 0;
}

TEST(json_error) { sweep(parse_bad_json); }

static bool fill_map(void) {
    static char keys[300][8];
    td_map map = {0};
    bool done = true;
    for (int i = 0; i < 300 && done; i++) {
        snprintf(keys[i], sizeof keys[i], "%hu", (unsigned short)i);
        size_t before = map.n;
        done = td_map_set(&map, td_str_from(keys[i]), (uint64_t)i);
        if (!done && map.n != before) FAIL("a failed set changed the map");
    }
    for (size_t i = 0; i < map.n; i++) CHECK(td_map_get(&map, td_str_from(keys[i]), NULL));
    td_map_free(&map);
    return done;
}

TEST(map) { sweep(fill_map); }

static bool fill_buf(void) {
    td_buf buf = {0};
    td_buf_text(&buf, "start");
    td_buf_printf(&buf, "%0500d", 7);
    td_buf_printf(&buf, "%05000d", 7);
    bool whole = buf.n == 5505;
    CHECK_EQ_INT(!buf.failed, whole);
    if (buf.p) CHECK_EQ_INT(strlen(buf.p), buf.n);
    td_buf_free(&buf);
    return whole;
}

TEST(buf) { sweep(fill_buf); }

static bool fill_vec(void) {
    TD_VEC(int) v = {0};
    bool done = true;
    for (int i = 0; i < 1000 && done; i++) done = td_vec_push(&v, i);
    for (size_t i = 0; i < v.n; i++) CHECK_EQ_INT(v.items[i], i);
    td_vec_free(&v);
    return done;
}

TEST(vec) { sweep(fill_vec); }

static bool fill_arena(void) {
    td_arena arena = {0};
    bool done = td_arena_printf(&arena, "%d", 5) != NULL;
    for (int i = 0; i < 200 && done; i++) done = td_arena_alloc(&arena, (size_t)i * 50, 8) != NULL;
    done = done && td_arena_str(&arena, TD_STR("x")).p != NULL;
    td_arena_free(&arena);
    return done;
}

TEST(arena) { sweep(fill_arena); }

static bool use_files(void) {
    treadle_error err;
    td_arena arena = {0};
    char *text = NULL, *path = NULL, **names = NULL;
    size_t n = 0;
    const char *dir = td_test_temp("oom"), *file = td_test_temp("oom/file");
    bool done = ok(td_make_dirs(dir, &err)) && ok(td_file_write(file, "abc", 3, &err)) &&
                ok(td_list_dir(&arena, dir, &names, &n, &err)) &&
                ok(td_path_resolve_inside(&arena, dir, TD_STR("file"), &path, &err)) &&
                ok(td_file_read(path, 0, &text, &n, &err));
    if (done) CHECK_EQ_STR(text, "abc");
    td_free(text);
    td_arena_free(&arena);
    return done;
}

TEST(files) { sweep(use_files); }

static void add(void *arg, int part, int thread) {
    (void)thread;
    ((int *)arg)[part]++;
}

static bool use_pool(void) {
    td_pool *pool = td_pool_acquire(3);
    int parts[8] = {0};
    td_pool_run(pool, 8, add, parts); /* NULL is a pool of one thread */
    for (int i = 0; i < 8; i++) CHECK_EQ_INT(parts[i], 1);
    td_pool_release(pool);
    return pool != NULL;
}

TEST(pool) { sweep(use_pool); }
