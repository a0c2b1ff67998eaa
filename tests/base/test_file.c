/* base/file.h: reading, writing, mapping, folders, paths, and the rule that a model's files stay in its folder. */
#include "support/test.h"

#include "base/alloc.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static td_arena arena; /* freed at the end of each test that uses it */

static const char *temp(const char *name) { return td_test_temp(name); }

static void write_text(const char *path, const char *text) { td_test_write(path, text, strlen(text)); }

static void link_to(const char *target, const char *path) {
    unlink(path);
    REQUIRE(symlink(target, path) == 0);
}

TEST(read_whole_files) {
    char *text = NULL;
    size_t n = 0;
    treadle_error err;
    write_text(temp("some"), "warp and weft");
    CHECK_OK(td_file_read(temp("some"), 0, &text, &n, &err), &err);
    CHECK_EQ_INT(n, 13);
    CHECK_EQ_STR(text, "warp and weft");
    td_free(text);
    write_text(temp("empty"), "");
    CHECK_OK(td_file_read(temp("empty"), 0, &text, &n, &err), &err);
    CHECK_EQ_INT(n, 0);
    CHECK_EQ_STR(text, "");
    td_free(text);
    CHECK_OK(td_file_read("/proc/self/status", 0, &text, &n, &err), &err); /* says its size is 0 */
    CHECK(n > 100 && strlen(text) == n);
    td_free(text);
}

TEST(read_limits) {
    char *text = NULL;
    size_t n = 0;
    treadle_error err;
    write_text(temp("ten"), "0123456789");
    CHECK_OK(td_file_read(temp("ten"), 10, &text, &n, &err), &err);
    td_free(text);
    CHECK_STATUS(td_file_read(temp("ten"), 9, &text, &n, &err), TREADLE_LIMIT, &err);
    CHECK_HAS_STR(err.message, "9 bytes");
    CHECK_STATUS(td_file_read("/proc/self/status", 9, &text, &n, &err), TREADLE_LIMIT, &err);
}

TEST(only_regular_files) {
    char *text;
    size_t n;
    td_mmap map;
    treadle_error err;
    const char *fifo = temp("fifo"), *loop = temp("loop");
    REQUIRE(mkfifo(fifo, 0600) == 0);
    link_to("loop", loop);
    static const struct {
        const char *path;
        treadle_status status;
        const char *part;
    } cases[] = {{"/dev/zero", TREADLE_FORMAT, "a device, pipe or socket"},
                 {"/", TREADLE_FORMAT, "a folder"},
                 {"/no/such/file", TREADLE_NOT_FOUND, "No such file"},
                 {"/dev/null/x", TREADLE_NOT_FOUND, "Not a directory"},
                 {"", TREADLE_NOT_FOUND, "No such file"},
                 {NULL, TREADLE_FORMAT, "pipe"},
                 {"loop", TREADLE_IO, "symbolic links"}};
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        const char *path = !cases[i].path ? fifo : strcmp(cases[i].path, "loop") == 0 ? loop : cases[i].path;
        CHECK_STATUS(td_file_read(path, 0, &text, &n, &err), cases[i].status, &err);
        CHECK_HAS_STR(err.message, cases[i].part);
        CHECK_EQ_STR(err.file, path);
        CHECK_STATUS(td_mmap_open(path, &map, &err), cases[i].status, &err);
        CHECK_STATUS(td_mmap_open(path, &map, NULL), cases[i].status, NULL);
    }
}

TEST(maps) {
    td_mmap map = {0};
    treadle_error err;
    write_text(temp("mapped"), "bytes in place");
    CHECK_OK(td_mmap_open(temp("mapped"), &map, &err), &err);
    CHECK_EQ_INT(map.n, 14);
    CHECK_EQ_MEM(map.data, "bytes in place", 14);
    td_mmap_drop(map.data, map.n);
    CHECK_EQ_MEM(map.data, "bytes in place", 14);
    td_mmap_close(&map);
    CHECK(map.data == NULL && map.n == 0);
    write_text(temp("nothing"), "");
    CHECK_OK(td_mmap_open(temp("nothing"), &map, &err), &err);
    CHECK(map.data != NULL && map.n == 0);
    td_mmap_close(&map);
}

TEST(drop_keeps_what_is_around) {
    td_mmap map = {0};
    treadle_error err;
    size_t n = 5 * 4096 + 100;
    unsigned char *bytes = malloc(n);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(i * 31 >> 3);
    td_test_write(temp("pages"), bytes, n);
    CHECK_OK(td_mmap_open(temp("pages"), &map, &err), &err);
    td_mmap_drop(map.data + 10, 4 * 4096);
    td_mmap_drop(map.data + 10, 20);
    td_mmap_drop(map.data, 0);
    CHECK_EQ_MEM(map.data, bytes, n);
    td_mmap_close(&map);
    free(bytes);
}

static size_t names_in(const char *dir) {
    char **names;
    size_t n = 0;
    treadle_error err;
    CHECK_OK(td_list_dir(&arena, dir, &names, &n, &err), &err);
    return n;
}

TEST(write_replaces_whole) {
    treadle_error err;
    char *text;
    size_t n;
    CHECK_OK(td_make_dirs(temp("w"), &err), &err);
    const char *path = temp("w/file");
    CHECK_OK(td_file_write(path, "first", 5, &err), &err);
    int old = open(path, O_RDONLY);
    CHECK_OK(td_file_write(path, "second, longer", 14, &err), &err);
    char still[8] = "";
    CHECK_EQ_INT(read(old, still, sizeof still), 5); /* who had it open reads the old one to its end */
    CHECK_EQ_STR(still, "first");
    close(old);
    CHECK_OK(td_file_read(path, 0, &text, &n, &err), &err);
    CHECK_EQ_STR(text, "second, longer");
    td_free(text);
    CHECK_OK(td_file_write(path, NULL, 0, &err), &err);
    CHECK_EQ_INT(td_file_size(path), 0);
    CHECK_EQ_INT(names_in(temp("w")), 1); /* nothing left aside */

    CHECK_STATUS(td_file_write(temp("w/none/file"), "x", 1, &err), TREADLE_IO, &err);
    CHECK_OK(td_make_dirs(temp("w/dir"), &err), &err);
    CHECK_STATUS(td_file_write(temp("w/dir"), "x", 1, &err), TREADLE_IO, &err); /* a folder is in the way */
    CHECK_EQ_STR(err.file, temp("w/dir"));
    CHECK_EQ_INT(names_in(temp("w")), 2);
    td_arena_free(&arena);
}

/* What is no regular file is written through: a device or a link in its place would be gone. */
TEST(write_through_links_and_pipes) {
    treadle_error err;
    struct stat info;
    char *text, got[8] = "";
    size_t n;
    CHECK_OK(td_make_dirs(temp("through"), &err), &err);
    CHECK(symlink("real", temp("through/link")) == 0);
    CHECK_OK(td_file_write(temp("through/link"), "text", 4, &err), &err);
    CHECK(lstat(temp("through/link"), &info) == 0 && S_ISLNK(info.st_mode));
    CHECK_OK(td_file_read(temp("through/real"), 0, &text, &n, &err), &err);
    CHECK_EQ_STR(text, "text");
    td_free(text);

    CHECK(mkfifo(temp("through/pipe"), 0600) == 0);
    int reader = open(temp("through/pipe"), O_RDONLY | O_NONBLOCK);
    CHECK_OK(td_file_write(temp("through/pipe"), "piped", 5, &err), &err);
    CHECK_EQ_INT(read(reader, got, sizeof got), 5);
    close(reader);
    CHECK(lstat(temp("through/pipe"), &info) == 0 && S_ISFIFO(info.st_mode));
    CHECK_STATUS(td_file_write("/dev/full", "x", 1, &err), TREADLE_IO, &err);
    CHECK(lstat("/dev/full", &info) == 0 && S_ISCHR(info.st_mode));
    CHECK_EQ_INT(names_in(temp("through")), 3);
    td_arena_free(&arena);
}

TEST(make_and_remove_trees) {
    treadle_error err;
    const char *top = temp("tree");
    CHECK_OK(td_make_dirs(temp("tree/a/b//c/"), &err), &err);
    CHECK(td_path_is_dir(temp("tree/a/b/c")));
    CHECK_OK(td_make_dirs(temp("tree/a/b/c"), &err), &err);
    write_text(temp("tree/a/file"), "x");
    CHECK_STATUS(td_make_dirs(temp("tree/a/file"), &err), TREADLE_IO, &err);
    CHECK_STATUS(td_make_dirs(temp("tree/a/file/x"), &err), TREADLE_IO, &err);

    CHECK_OK(td_make_dirs(temp("kept/inner"), &err), &err);
    write_text(temp("kept/file"), "x");
    link_to(temp("kept"), temp("tree/a/link"));
    link_to(temp("kept/file"), temp("tree/a/file_link"));
    link_to("nowhere", temp("tree/a/dangling"));
    REQUIRE(mkfifo(temp("tree/a/b/fifo"), 0600) == 0);
    CHECK_OK(td_remove_tree(top, &err), &err);
    CHECK(!td_path_exists(top));
    CHECK(td_path_is_file(temp("kept/file")) && td_path_is_dir(temp("kept/inner")));

    CHECK_OK(td_remove_tree(top, &err), &err); /* absent is fine */
    link_to(temp("kept"), temp("alias"));
    CHECK_OK(td_remove_tree(temp("alias"), &err), &err); /* the link, not what it leads to */
    CHECK(td_path_is_file(temp("kept/file")) && !td_path_exists(temp("alias")));
    CHECK_OK(td_remove_tree(temp("kept/file"), &err), &err);
    CHECK(!td_path_exists(temp("kept/file")));
}

TEST(remove_many_and_deep) {
    treadle_error err;
    td_buf path = {0};
    td_buf_text(&path, temp("many"));
    for (int i = 0; i < 100; i++) {
        td_buf_printf(&path, "/%d", i);
        CHECK_OK(td_make_dirs(path.p, &err), &err);
    }
    for (int i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/f%d", i);
        FILE *file = fopen(temp(name), "w");
        REQUIRE(file != NULL);
        fclose(file);
    }
    CHECK_OK(td_remove_tree(temp("many"), &err), &err);
    CHECK(!td_path_exists(temp("many")));
    td_buf_free(&path);
}

TEST(list_is_sorted) {
    treadle_error err;
    char **names = NULL;
    size_t n = 0;
    CHECK_OK(td_make_dirs(temp("list/B"), &err), &err);
    write_text(temp("list/a"), "");
    write_text(temp("list/.hidden"), "");
    write_text(temp("list/\xC3\xA9"), "");
    CHECK_OK(td_list_dir(&arena, temp("list"), &names, &n, &err), &err);
    REQUIRE(n == 4);
    CHECK_EQ_STR(names[0], ".hidden");
    CHECK_EQ_STR(names[1], "B");
    CHECK_EQ_STR(names[2], "a");
    CHECK_EQ_STR(names[3], "\xC3\xA9");
    CHECK_OK(td_list_dir(&arena, temp("list/B"), &names, &n, &err), &err);
    CHECK(n == 0 && names != NULL);
    CHECK_STATUS(td_list_dir(&arena, temp("list/a"), &names, &n, &err), TREADLE_NOT_FOUND, &err);
    td_arena_free(&arena);
}

TEST(questions) {
    write_text(temp("q"), "abc");
    CHECK(td_path_exists(temp("q")) && td_path_is_file(temp("q")) && !td_path_is_dir(temp("q")));
    CHECK(td_path_exists("/") && td_path_is_dir("/") && !td_path_is_file("/"));
    CHECK(!td_path_exists(temp("q2")) && !td_path_is_file(temp("q2")) && !td_path_is_dir(temp("q2")));
    CHECK_EQ_INT(td_file_size(temp("q")), 3);
    CHECK_EQ_INT(td_file_size(temp("q2")), -1);
    CHECK_EQ_INT(td_file_size("/"), -1);
}

TEST(path_text) {
    CHECK_EQ_STR(td_path_join(&arena, "a", "b"), "a/b");
    CHECK_EQ_STR(td_path_join(&arena, "a/", "b"), "a/b");
    CHECK_EQ_STR(td_path_join(&arena, "a", "/b"), "/b");
    CHECK_EQ_STR(td_path_join(&arena, "", "b"), "b");
    CHECK_EQ_STR(td_path_base("a/b"), "b");
    CHECK_EQ_STR(td_path_base("b"), "b");
    CHECK_EQ_STR(td_path_base("a/"), "");
    CHECK_EQ_STR(td_path_dir(&arena, "a/b/c"), "a/b");
    CHECK_EQ_STR(td_path_dir(&arena, "a//c"), "a");
    CHECK_EQ_STR(td_path_dir(&arena, "c"), ".");
    CHECK_EQ_STR(td_path_dir(&arena, "/c"), "/");
    CHECK_EQ_STR(td_path_dir(&arena, "//"), "/");
    td_arena_free(&arena);
}

static void check_refused(const char *root, td_str relative, treadle_status status, const char *part) {
    char *out = NULL;
    treadle_error err = {0};
    CHECK_STATUS(td_path_resolve_inside(&arena, root, relative, &out, &err), status, &err);
    CHECK_HAS_STR(err.message, part);
    CHECK(out == NULL);
}

static void check_resolves(const char *root, const char *relative, const char *to) {
    char *out = NULL;
    treadle_error err = {0};
    CHECK_OK(td_path_resolve_inside(&arena, root, td_str_from(relative), &out, &err), &err);
    char *real = realpath(to, NULL); /* the temporary folder may itself lie behind links */
    CHECK_EQ_STR(out, real);
    free(real);
}

TEST(inside_a_plain_folder) {
    treadle_error err;
    CHECK_OK(td_make_dirs(temp("model/sub"), &err), &err);
    write_text(temp("secret"), "s");
    write_text(temp("model/file"), "x");
    write_text(temp("model/sub/file"), "x");
    write_text(temp("model/..dots"), "x");
    CHECK_OK(td_make_dirs(temp("model-evil"), &err), &err);
    write_text(temp("model-evil/file"), "x");
    link_to("../sub/../file", temp("model/sub/inner_link"));
    link_to("../secret", temp("model/outer_link"));
    link_to("../model-evil/file", temp("model/neighbour_link")); /* shares a prefix with the root */
    link_to("/", temp("model/disk"));
    link_to("nowhere", temp("model/dangling"));
    link_to("cycle", temp("model/cycle"));
    const char *root = temp("model");

    check_resolves(root, "file", temp("model/file"));
    check_resolves(root, "./sub//file", temp("model/sub/file"));
    check_resolves(root, "sub/inner_link", temp("model/file"));
    check_resolves(root, "..dots", temp("model/..dots"));
    check_resolves(root, "sub", temp("model/sub"));
    check_resolves(root, ".", root);
    link_to("model", temp("model_alias"));
    check_resolves(temp("model_alias"), "file", temp("model/file"));
    link_to("../model/file", temp("model/back")); /* out and in again, but it ends inside */
    check_resolves(root, "back", temp("model/file"));

    check_refused(root, TD_STR("../secret"), TREADLE_CONFIG, "\"..\"");
    check_refused(root, TD_STR("sub/../../secret"), TREADLE_CONFIG, "\"..\"");
    check_refused(root, TD_STR("sub/.."), TREADLE_CONFIG, "\"..\"");
    check_refused(root, TD_STR(".."), TREADLE_CONFIG, "folder");
    check_refused(root, TD_STR("/etc/passwd"), TREADLE_CONFIG, "absolute");
    check_refused(root, TD_STR(""), TREADLE_CONFIG, "empty");
    check_refused(root, (td_str){0}, TREADLE_CONFIG, "empty");
    check_refused(root, TD_STR("file\0.txt"), TREADLE_CONFIG, "control character");
    check_refused(root, TD_STR("fi\nle"), TREADLE_CONFIG, "control character");
    check_refused(root, TD_STR("fi\x7fle"), TREADLE_CONFIG, "control character");
    check_refused(root, TD_STR("outer_link"), TREADLE_CONFIG, "leads out");
    check_refused(root, TD_STR("neighbour_link"), TREADLE_CONFIG, "leads out");
    check_refused(root, TD_STR("disk"), TREADLE_CONFIG, "leads out");
    check_refused(root, TD_STR("disk/etc/passwd"), TREADLE_CONFIG, "leads out");
    check_refused(root, TD_STR("missing"), TREADLE_NOT_FOUND, "does not exist");
    check_refused(root, TD_STR("dangling"), TREADLE_NOT_FOUND, "does not exist");
    check_refused(root, TD_STR("file/x"), TREADLE_NOT_FOUND, "does not exist");
    check_refused(root, TD_STR("cycle"), TREADLE_IO, "cycle");
    check_refused(temp("no_model"), TD_STR("file"), TREADLE_NOT_FOUND, "does not exist");

    char *out = NULL; /* a file that need not be there */
    CHECK(td_path_find_inside(&arena, root, "missing", &out, &err) == TREADLE_OK && !out);
    CHECK(td_path_find_inside(&arena, temp("no_model"), "file", &out, &err) == TREADLE_OK && !out);
    CHECK_OK(td_path_find_inside(&arena, root, "file", &out, &err), &err);
    CHECK(out && td_path_is_file(out));
    CHECK_STATUS(td_path_find_inside(&arena, root, "dangling", &out, &err), TREADLE_CONFIG, &err);
    CHECK_STATUS(td_path_find_inside(&arena, root, "outer_link", &out, &err), TREADLE_CONFIG, &err);
    CHECK_STATUS(td_path_find_inside(&arena, root, "cycle", &out, &err), TREADLE_IO, &err);
    td_arena_free(&arena);
}

TEST(inside_a_hugging_face_cache) {
    treadle_error err;
    const char *rev = "hub/models--org--name/snapshots/0123abcd";
    char path[256];
    CHECK_OK(td_make_dirs(temp("hub/models--org--name/blobs"), &err), &err);
    CHECK_OK(td_make_dirs(temp("hub/models--org--other/blobs"), &err), &err);
    snprintf(path, sizeof path, "%s/onnx", rev);
    CHECK_OK(td_make_dirs(temp(path), &err), &err);
    const char *root = temp(rev), *sub = temp(path);
    write_text(temp("hub/models--org--name/blobs/aa11"), "weights");
    write_text(temp("hub/models--org--name/secret"), "s");
    write_text(temp("hub/models--org--other/blobs/bb22"), "s");
    snprintf(path, sizeof path, "%s/model.onnx", rev);
    link_to("../../blobs/aa11", temp(path));
    snprintf(path, sizeof path, "%s/onnx/model.onnx", rev);
    link_to("../../../blobs/aa11", temp(path));
    snprintf(path, sizeof path, "%s/secret", rev);
    link_to("../../secret", temp(path));
    snprintf(path, sizeof path, "%s/blobs", rev);
    link_to("../../blobs", temp(path));
    snprintf(path, sizeof path, "%s/other", rev);
    link_to("../../../models--org--other/blobs/bb22", temp(path));

    check_resolves(root, "model.onnx", temp("hub/models--org--name/blobs/aa11"));
    check_resolves(root, "onnx/model.onnx", temp("hub/models--org--name/blobs/aa11"));
    check_resolves(sub, "model.onnx",
                   temp("hub/models--org--name/blobs/aa11")); /* a folder of the snapshot is opened */
    link_to("hub/models--org--name/snapshots/0123abcd", temp("hf_alias"));
    check_resolves(temp("hf_alias"), "model.onnx", temp("hub/models--org--name/blobs/aa11"));
    check_refused(root, TD_STR("secret"), TREADLE_CONFIG, "leads out");
    check_refused(root, TD_STR("other"), TREADLE_CONFIG, "leads out");
    check_refused(root, TD_STR("blobs"), TREADLE_CONFIG, "leads out"); /* the folder itself is no file of the model */

    /* A blobs folder that is a link to somewhere else opens nothing. */
    CHECK_OK(td_make_dirs(temp("fake/snapshots/x"), &err), &err);
    link_to(temp("hub"), temp("fake/blobs"));
    link_to("../../blobs/models--org--name/secret", temp("fake/snapshots/x/f"));
    check_refused(temp("fake/snapshots/x"), TD_STR("f"), TREADLE_CONFIG, "leads out");
    td_arena_free(&arena);
}

TEST(cache_dir) {
    char *saved = getenv("XDG_CACHE_HOME") ? td_strdup(getenv("XDG_CACHE_HOME")) : NULL;
    setenv("HOME", "/h", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("TREADLE_CACHE", "/t", 1);
    CHECK_EQ_STR(td_cache_dir(&arena), "/t");
    setenv("TREADLE_CACHE", "", 1);
    CHECK_EQ_STR(td_cache_dir(&arena), "/x/treadle");
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK_EQ_STR(td_cache_dir(&arena), "/h/.cache/treadle");
    unsetenv("HOME");
    CHECK(td_cache_dir(&arena) == NULL);
    if (saved) setenv("XDG_CACHE_HOME", saved, 1);
    td_free(saved);
    td_arena_free(&arena);
}
