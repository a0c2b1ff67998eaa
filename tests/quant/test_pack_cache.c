/* The packed-weights cache: hits, misses, damage, races, full disks, memory only. */
#include "support/test.h"

#include "base/alloc.h"
#include "quant/pack_cache.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* A cache folder of this test's own. */
static void use_cache(const char *name) { setenv("TREADLE_CACHE", td_test_temp(name), 1); }

static td_pack_key key_of(const char *text) {
    td_pack_key key = td_pack_key_start();
    td_pack_key_add(&key, text, strlen(text));
    return key;
}

static void fill_bytes(uint8_t *p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)td_test_random(&seed);
}

static const size_t SIZES[] = {1, 64, 100000, 0, 4097, 9000000};

/* Writes SIZES as entries "0", "1", ...; returns whether it was stored. */
static bool write_all(const td_pack_key *key, td_pack_file *out) {
    td_pack_writer w;
    treadle_error err = {0};
    bool stored;
    CHECK_OK(td_pack_writer_begin(&w, key, 32 << 20, &err), &err);
    for (size_t i = 0; i < TD_COUNT(SIZES); i++) {
        char name[2] = {(char)('0' + i), 0};
        void *memory;
        uint64_t meta = i * 1000;
        CHECK_OK(td_pack_writer_add(&w, td_str_from(name), &meta, sizeof meta, SIZES[i], &memory, &err), &err);
        CHECK_EQ_UINT((uintptr_t)memory % 64, 0);
        fill_bytes(memory, SIZES[i], i);
    }
    td_pack_writer_commit(&w, out, &stored);
    return stored;
}

static void check_all(td_pack_file *file) {
    CHECK_EQ_UINT(file->n_entries, TD_COUNT(SIZES));
    for (size_t step = 0; step < TD_COUNT(SIZES); step++) {
        size_t i = (step * 5 + 2) % TD_COUNT(SIZES); /* not in order */
        char name[2] = {(char)('0' + i), 0};
        const td_pack_entry *entry = td_pack_file_find(file, td_str_from(name));
        REQUIRE(entry);
        uint64_t meta;
        memcpy(&meta, entry->meta, sizeof meta);
        CHECK_EQ_UINT(meta, i * 1000);
        CHECK_EQ_UINT(entry->bytes, SIZES[i]);
        uint8_t *want = td_alloc(SIZES[i]);
        REQUIRE(want);
        fill_bytes(want, SIZES[i], i);
        CHECK(memcmp(td_pack_file_data(file, entry), want, SIZES[i]) == 0);
        td_free(want);
    }
    CHECK(td_pack_file_find(file, TD_STR("none")) == NULL);
}

TEST(written_then_found) {
    use_cache("found");
    td_pack_key key = key_of("a"), other = key_of("b");
    td_pack_file file;
    CHECK(!td_pack_cache_open(&key, &file));
    CHECK(write_all(&key, &file));
    check_all(&file);
    td_pack_file_close(&file);
    REQUIRE(td_pack_cache_open(&key, &file));
    check_all(&file);
    td_pack_file_close(&file);
    CHECK(!td_pack_cache_open(&other, &file));
}

TEST(empty_and_aborted) {
    use_cache("empty");
    td_pack_key key = key_of("empty");
    td_pack_writer w;
    td_pack_file file;
    void *memory;
    treadle_error err = {0};
    CHECK_OK(td_pack_writer_begin(&w, &key, 100, &err), &err);
    CHECK_STATUS(td_pack_writer_add(&w, TD_STR("x"), NULL, 0, 1 << 20, &memory, &err), TREADLE_LIMIT, &err);
    td_pack_writer_abort(&w);
    td_pack_writer_abort(&w);
    CHECK(!td_pack_cache_open(&key, &file));
    CHECK_OK(td_pack_writer_begin(&w, &key, 0, &err), &err);
    td_pack_writer_commit(&w, &file, NULL);
    td_pack_file_close(&file);
    REQUIRE(td_pack_cache_open(&key, &file));
    CHECK_EQ_UINT(file.n_entries, 0);
    CHECK(td_pack_file_find(&file, TD_STR("x")) == NULL);
    td_pack_file_close(&file);
    td_arena arena = {0};
    char **names;
    size_t n;
    CHECK_OK(td_list_dir(&arena, td_path_join(&arena, td_test_temp("empty"), "packed"), &names, &n, &err), &err);
    CHECK_EQ_UINT(n, 1); /* nothing is left aside */
    td_arena_free(&arena);
}

TEST(damage_is_a_miss) {
    use_cache("damage");
    td_pack_key key = key_of("damage");
    td_pack_file file;
    treadle_error err = {0};
    CHECK(write_all(&key, &file));
    td_pack_file_close(&file);
    td_arena arena = {0};
    char **names;
    size_t n, bytes;
    char *folder = td_path_join(&arena, td_test_temp("damage"), "packed");
    CHECK_OK(td_list_dir(&arena, folder, &names, &n, &err), &err);
    REQUIRE(n == 1);
    char *path = td_path_join(&arena, folder, names[0]), *whole = td_test_read(path, &bytes);
    const size_t cuts[] = {0, 1, 63, 64, 4095, 4096, bytes / 2, bytes - 64, bytes - 1};
    for (size_t i = 0; i < TD_COUNT(cuts); i++) {
        td_test_write(path, whole, cuts[i]);
        CHECK(!td_pack_cache_open(&key, &file));
    }
    uint64_t seed = 9;
    size_t table = bytes - TD_COUNT(SIZES) * sizeof(td_pack_entry);
    for (int i = 0; i < 60; i++) { /* header and table are covered by the checksum */
        size_t at =
            i < 30 ? (size_t)(td_test_random(&seed) % 64) : table + (size_t)(td_test_random(&seed) % (bytes - table));
        whole[at] ^= (char)(1 << (i % 8));
        td_test_write(path, whole, bytes);
        CHECK(!td_pack_cache_open(&key, &file));
        whole[at] ^= (char)(1 << (i % 8));
    }
    CHECK(write_all(&key, &file)); /* and is replaced */
    td_pack_file_close(&file);
    REQUIRE(td_pack_cache_open(&key, &file));
    check_all(&file);
    td_pack_file_close(&file);
    free(whole);
    td_arena_free(&arena);
}

TEST(two_writers_race) {
    use_cache("race");
    td_pack_key key = key_of("race");
    td_pack_writer first;
    td_pack_file file, mine;
    void *memory;
    treadle_error err = {0};
    CHECK_OK(td_pack_writer_begin(&first, &key, 1 << 20, &err), &err);
    CHECK_OK(td_pack_writer_add(&first, TD_STR("x"), NULL, 0, 10, &memory, &err), &err);
    CHECK(write_all(&key, &file)); /* the other one is quicker */
    td_pack_writer_commit(&first, &mine, NULL);
    check_all(&file); /* and keeps its own */
    CHECK_EQ_UINT(mine.n_entries, 1);
    td_pack_file_close(&file);
    td_pack_file_close(&mine);
    REQUIRE(td_pack_cache_open(&key, &file));
    CHECK_EQ_UINT(file.n_entries, 1); /* the last one is found */
    td_pack_file_close(&file);
}

TEST(without_a_folder_it_is_memory) {
    td_test_write(td_test_temp("occupied"), "x", 1); /* a file where the folder should be */
    use_cache("occupied");
    td_pack_key key = key_of("memory");
    td_pack_file file;
    CHECK(!write_all(&key, &file));
    check_all(&file);
    td_pack_file_close(&file);
    CHECK(!td_pack_cache_open(&key, &file));
}

/* RLIMIT_FSIZE stands for a full disk: posix_fallocate fails beyond it. */
TEST(full_disk_goes_on_in_memory) {
    use_cache("full");
    td_pack_key key = key_of("full");
    td_pack_file file;
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = (rlim_t)(8 << 20);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    bool stored = write_all(&key, &file);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    CHECK(!stored);
    check_all(&file);
    td_pack_file_close(&file);
    CHECK(!td_pack_cache_open(&key, &file));
}

TEST(keys_follow_the_file) {
    treadle_error err = {0};
    const char *path = td_test_temp("weights");
    td_pack_key a = td_pack_key_start(), b = a, c = a, d = a;
    td_test_write(path, "abc", 3);
    CHECK_OK(td_pack_key_add_file(&a, path, &err), &err);
    CHECK_OK(td_pack_key_add_file(&b, path, &err), &err);
    CHECK(a.low == b.low && a.high == b.high);
    td_test_write(path, "abcd", 4);
    CHECK_OK(td_pack_key_add_file(&c, path, &err), &err);
    CHECK(a.low != c.low && a.high != c.high);
    CHECK_STATUS(td_pack_key_add_file(&d, td_test_temp("absent"), &err), TREADLE_NOT_FOUND, &err);
    td_pack_key e = td_pack_key_start(), f = e;
    td_pack_key_add(&e, "ab", 2);
    td_pack_key_add(&e, "c", 1);
    td_pack_key_add(&f, "a", 1);
    td_pack_key_add(&f, "bc", 2);
    CHECK(e.low != f.low);
}
