/* base/alloc.h and base/arena.h: sizes that overflow, alignment, zeroing, lifetimes. */
#include "support/test.h"

#include "base/alloc.h"
#include "base/arena.h"

#include <string.h>

TEST(alloc_refuses_overflow) {
    CHECK(td_alloc_array(SIZE_MAX / 2, 3) == NULL);
    CHECK(td_alloc_zero(SIZE_MAX / 2, 3) == NULL);
    CHECK(td_realloc_array(NULL, SIZE_MAX / 2, 3) == NULL);
    CHECK(td_alloc_aligned(SIZE_MAX - 10) == NULL);
    CHECK(td_strndup("x", SIZE_MAX) == NULL);
}

TEST(alloc_zero_bytes) {
    void *a = td_alloc(0), *b = td_alloc_zero(0, 5), *c = td_alloc_aligned(0), *d = td_realloc_array(NULL, 0, 4);
    CHECK(a && b && c && d);
    td_free(a);
    td_free(b);
    td_free_aligned(c);
    td_free(d);
    td_free(NULL);
    td_free_aligned(NULL);
}

TEST(alloc_aligned) {
    for (size_t n = 1; n < 300; n += 13) {
        char *p = td_alloc_aligned(n);
        REQUIRE(p != NULL);
        CHECK_EQ_UINT((uintptr_t)p % 64, 0);
        memset(p, 7, n);
        td_free_aligned(p);
    }
}

TEST(strdup_copies) {
    char *whole = td_strdup("abc"), *part = td_strndup("abc", 2), *none = td_strndup(NULL, 0);
    CHECK_EQ_STR(whole, "abc");
    CHECK_EQ_STR(part, "ab");
    CHECK_EQ_STR(none, "");
    td_free(whole);
    td_free(part);
    td_free(none);
}

TEST(arena_is_zeroed_and_aligned) {
    td_arena arena;
    td_arena_init(&arena);
    uint64_t seed = 1;
    for (int i = 0; i < 3000; i++) {
        size_t align = (size_t)1 << td_test_random(&seed) % 7, n = td_test_random(&seed) % (i % 100 ? 200 : 100000);
        unsigned char *p = td_arena_alloc(&arena, n, align);
        REQUIRE(p != NULL);
        CHECK_EQ_UINT((uintptr_t)p % align, 0);
        for (size_t k = 0; k < n; k++) {
            if (p[k] != 0) FAIL("byte %zu of %zu is not zero", k, n);
        }
        memset(p, 0xAA, n); /* would show in later blocks if they overlapped */
    }
    CHECK(arena.used_bytes > 3000 * 50);
    td_arena_free(&arena);
    CHECK(arena.head == NULL && arena.used_bytes == 0);
}

TEST(arena_large_requests_do_not_waste_the_chunk) {
    td_arena arena;
    td_arena_init(&arena);
    char *small = td_arena_alloc(&arena, 10, 1);
    char *large = td_arena_alloc(&arena, 1 << 20, 64);
    char *next = td_arena_alloc(&arena, 10, 1);
    REQUIRE(small && large && next);
    CHECK_EQ_PTR(next, small + 10);
    td_arena_free(&arena);
}

TEST(arena_refuses_overflow) {
    td_arena arena = {0};
    CHECK(td_arena_alloc(&arena, SIZE_MAX, 1) == NULL);
    CHECK(td_arena_alloc(&arena, SIZE_MAX - 70, 64) == NULL);
    CHECK(td_arena_array(&arena, SIZE_MAX / 4, 8, 8) == NULL);
    CHECK(td_arena_strndup(&arena, "", SIZE_MAX) == NULL);
    CHECK(TD_ARENA_NEW(&arena, int) != NULL); /* still usable */
    td_arena_free(&arena);
    CHECK(TD_ARENA_ARRAY(&arena, int, 3) != NULL); /* and again after being freed */
    td_arena_free(&arena);
}

TEST(arena_text) {
    td_arena arena = {0};
    CHECK_EQ_STR(td_arena_strdup(&arena, "warp"), "warp");
    CHECK_EQ_STR(td_arena_strndup(&arena, "warp", 2), "wa");
    CHECK_EQ_STR(td_arena_printf(&arena, "%s-%d", "weft", 12), "weft-12");
    CHECK_EQ_STR(td_arena_printf(&arena, "%s", ""), "");
    td_str view = td_arena_str(&arena, TD_STR("a\0b"));
    CHECK_EQ_INT(view.n, 3);
    CHECK_EQ_MEM(view.p, "a\0b", 4);
    CHECK_EQ_STR(td_arena_str(&arena, (td_str){0}).p, "");
    td_arena_free(&arena);
}
