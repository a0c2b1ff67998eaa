/* quant/pack_cache.c - see the header. Owns the mapped region of a writer until commit hands it to the td_pack_file. */
#include "quant/pack_cache.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { FORMAT_VERSION = 1, FIRST_OFFSET = 4096, ALIGN = 64 };
static const size_t GROW_BYTES = (size_t)8 << 20; /* disk space is reserved in steps of this */

typedef struct pack_header {
    char magic[8];
    uint32_t version, n_entries;
    uint64_t file_bytes, table_offset;
    td_pack_key key;
    uint64_t checksum; /* of the header with this as 0, and the table */
    uint64_t zero;
} pack_header;

_Static_assert(sizeof(pack_header) == 64, "the file's header is fixed");
_Static_assert(sizeof(td_pack_entry) == 64, "the file's table is fixed");

static const char MAGIC[8] = {'T', 'D', 'P', 'A', 'C', 'K', '\r', '\n'};

/* --- key --- */

void td_pack_key_add(td_pack_key *key, const void *bytes, size_t n) {
    XXH128_hash_t part = XXH3_128bits(bytes, n);
    uint64_t chain[5] = {key->low, key->high, part.low64, part.high64, n};
    XXH128_hash_t next = XXH3_128bits(chain, sizeof chain);
    *key = (td_pack_key){next.low64, next.high64};
}

td_pack_key td_pack_key_start(void) {
    td_pack_key key = {0};
    uint32_t version = FORMAT_VERSION;
    td_pack_key_add(&key, &version, sizeof version);
    return key;
}

treadle_status td_pack_key_add_file(td_pack_key *key, const char *path, treadle_error *err) {
    struct stat info;
    char *real = realpath(path, NULL);
    if (!real || stat(real, &info) != 0) {
        int code = errno;
        free(real);
        td_fail(err, code == ENOENT ? TREADLE_NOT_FOUND : TREADLE_IO, "cannot look at the file: %s", strerror(code));
        td_error_file(err, path);
        return code == ENOENT ? TREADLE_NOT_FOUND : TREADLE_IO;
    }
    uint64_t facts[5] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino, (uint64_t)info.st_size,
                         (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec};
    td_pack_key_add(key, real, strlen(real));
    td_pack_key_add(key, facts, sizeof facts);
    free(real); /* realpath's own */
    return TREADLE_OK;
}

/* The folder in the arena, NULL without a cache. */
static char *cache_folder(td_arena *arena) {
    char *root = td_cache_dir(arena);
    return root ? td_path_join(arena, root, "packed") : NULL;
}

static char *file_path(td_arena *arena, const td_pack_key *key) {
    char name[48], *folder = cache_folder(arena);
    snprintf(name, sizeof name, "%016llx%016llx.pack", (unsigned long long)key->high, (unsigned long long)key->low);
    return folder ? td_path_join(arena, folder, name) : NULL;
}

/* --- reading --- */

static uint64_t checksum_of(const pack_header *header, const td_pack_entry *entries) {
    pack_header blank = *header;
    blank.checksum = 0;
    uint64_t head = XXH3_64bits(&blank, sizeof blank);
    return XXH3_64bits_withSeed(entries, (size_t)header->n_entries * sizeof *entries, head);
}

/* Everything that reading relies on. */
static bool file_is_sound(const td_mmap *map, const td_pack_key *key, pack_header *header) {
    if (map->n < FIRST_OFFSET) return false;
    memcpy(header, map->data, sizeof *header);
    if (memcmp(header->magic, MAGIC, sizeof MAGIC) != 0 || header->version != FORMAT_VERSION) return false;
    if (header->key.low != key->low || header->key.high != key->high) return false;
    if (header->file_bytes != map->n || header->table_offset % ALIGN != 0) return false;
    if (header->table_offset < FIRST_OFFSET || header->table_offset > map->n) return false;
    if ((map->n - header->table_offset) / sizeof(td_pack_entry) != header->n_entries) return false;
    if ((map->n - header->table_offset) % sizeof(td_pack_entry) != 0) return false;
    const td_pack_entry *entries = (const td_pack_entry *)(const void *)(map->data + header->table_offset);
    if (checksum_of(header, entries) != header->checksum) return false;
    for (uint32_t i = 0; i < header->n_entries; i++) {
        if (entries[i].offset % ALIGN != 0 || entries[i].offset < FIRST_OFFSET) return false;
        if (entries[i].offset > header->table_offset) return false;
        if (entries[i].bytes > header->table_offset - entries[i].offset) return false;
    }
    return true;
}

bool td_pack_cache_open(const td_pack_key *key, td_pack_file *out) {
    td_arena arena;
    td_arena_init(&arena);
    td_mmap map = {0};
    pack_header header;
    char *path = file_path(&arena, key);
    bool hit = path && td_path_is_file(path) && td_mmap_open(path, &map, NULL) == TREADLE_OK;
    td_arena_free(&arena);
    if (!hit) return false;
    if (!file_is_sound(&map, key, &header)) {
        td_mmap_close(&map);
        return false;
    }
    *out = (td_pack_file){.map = map,
                          .n_entries = header.n_entries,
                          .entries = (const td_pack_entry *)(const void *)(map.data + header.table_offset)};
    return true;
}

const td_pack_entry *td_pack_file_find(td_pack_file *file, td_str name) {
    uint64_t hash = XXH3_64bits(name.p, name.n);
    for (uint32_t i = 0; i < file->n_entries; i++) {
        uint32_t at = (file->next + i) % file->n_entries;
        if (file->entries[at].name_hash != hash) continue;
        file->next = at + 1;
        return &file->entries[at];
    }
    return NULL;
}

void td_pack_file_close(td_pack_file *file) {
    td_mmap_close(&file->map);
    *file = (td_pack_file){0};
}

/* --- writing --- */

/* Opens the file aside. On any trouble the writer stays memory only. */
static void open_aside(td_pack_writer *w) {
    td_arena arena;
    td_arena_init(&arena);
    char *folder = cache_folder(&arena), *path = file_path(&arena, &w->key);
    if (folder && path && td_make_dirs(folder, NULL) == TREADLE_OK) {
        char *aside = td_arena_printf(&arena, "%s.tmp-%ld-XXXXXX", path, (long)getpid());
        w->path = td_strdup(path);
        w->aside = aside ? td_strdup(aside) : NULL;
        if (w->path && w->aside) w->fd = mkostemp(w->aside, O_CLOEXEC);
    }
    if (w->fd < 0) {
        td_free(w->path);
        td_free(w->aside);
        w->path = w->aside = NULL;
    }
    td_arena_free(&arena);
}

static void drop_file(td_pack_writer *w) {
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->aside);
    }
    td_free(w->path);
    td_free(w->aside);
    w->path = w->aside = NULL;
    w->fd = -1;
}

/* Backs the region up to `bytes`. A full disk turns the writer to memory only: what is written stays where it is,
 * mapped from a file without a name, and anonymous memory takes the place of the rest. */
static treadle_status back(td_pack_writer *w, size_t bytes, treadle_error *err) {
    if (bytes <= w->backed_bytes) return TREADLE_OK;
    if (bytes > w->reserved_bytes)
        return td_fail(err, TREADLE_LIMIT, "packed weights need %zu bytes, more than the %zu reserved", bytes,
                       w->reserved_bytes);
    size_t target = TD_MIN(TD_ROUND_UP(bytes, GROW_BYTES), w->reserved_bytes),
           rest = w->reserved_bytes - w->backed_bytes;
    if (w->fd >= 0 && posix_fallocate(w->fd, (off_t)w->backed_bytes, (off_t)(target - w->backed_bytes)) != 0) {
        void *at = mmap(w->base + w->backed_bytes, rest, PROT_READ | PROT_WRITE,
                        MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return td_fail_memory(err, "packed weights", rest);
        drop_file(w);
    }
    w->backed_bytes = target;
    return TREADLE_OK;
}

treadle_status td_pack_writer_begin(td_pack_writer *w, const td_pack_key *key, size_t reserve_bytes,
                                    treadle_error *err) {
    *w = (td_pack_writer){.key = *key, .fd = -1, .used_bytes = FIRST_OFFSET};
    if (reserve_bytes > SIZE_MAX / 4) return td_fail(err, TREADLE_LIMIT, "packed weights of %zu bytes", reserve_bytes);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    w->reserved_bytes = TD_ROUND_UP(reserve_bytes + FIRST_OFFSET, TD_MAX(page, (size_t)FIRST_OFFSET));
    open_aside(w);
    int flags = w->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *base = mmap(NULL, w->reserved_bytes, PROT_READ | PROT_WRITE, flags, w->fd, 0);
    if (base == MAP_FAILED) {
        drop_file(w);
        return td_fail_memory(err, "packed weights", w->reserved_bytes);
    }
    w->base = base;
    treadle_status status = back(w, FIRST_OFFSET, err);
    if (status != TREADLE_OK) td_pack_writer_abort(w);
    return status;
}

treadle_status td_pack_writer_add(td_pack_writer *w, td_str name, const void *meta, size_t meta_bytes, size_t bytes,
                                  void **out, treadle_error *err) {
    if (bytes > w->reserved_bytes)
        return td_fail(err, TREADLE_LIMIT, "packed weights need %zu bytes, more than the %zu reserved", bytes,
                       w->reserved_bytes);
    size_t end = TD_ROUND_UP(w->used_bytes + bytes, ALIGN), table_bytes = (w->entries.n + 1) * sizeof(td_pack_entry);
    td_pack_entry entry = {.name_hash = XXH3_64bits(name.p, name.n), .offset = w->used_bytes, .bytes = bytes};
    if (meta) memcpy(entry.meta, meta, TD_MIN(meta_bytes, sizeof entry.meta));
    TD_TRY(back(w, end + table_bytes, err)); /* so that commit cannot fail */
    if (!td_vec_push(&w->entries, entry)) return td_fail_memory(err, "the table of packed weights", sizeof entry);
    w->used_bytes = end;
    *out = w->base + entry.offset;
    return TREADLE_OK;
}

/* Cuts the file to size, syncs and renames it. Without the sync a power cut could leave a named file full of zeros. */
static bool store(td_pack_writer *w, size_t file_bytes) {
    if (w->fd < 0) return false;
    bool stored = ftruncate(w->fd, (off_t)file_bytes) == 0 && fdatasync(w->fd) == 0 && rename(w->aside, w->path) == 0;
    if (!stored) unlink(w->aside);
    close(w->fd);
    w->fd = -1;
    return stored;
}

void td_pack_writer_commit(td_pack_writer *w, td_pack_file *out, bool *out_stored) {
    size_t table_bytes = w->entries.n * sizeof *w->entries.items, file_bytes = w->used_bytes + table_bytes;
    td_pack_entry *table = (td_pack_entry *)(void *)(w->base + w->used_bytes);
    if (table_bytes) memcpy(table, w->entries.items, table_bytes);
    pack_header header = {.version = FORMAT_VERSION,
                          .n_entries = (uint32_t)w->entries.n,
                          .file_bytes = file_bytes,
                          .table_offset = w->used_bytes,
                          .key = w->key};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    header.checksum = checksum_of(&header, table);
    memcpy(w->base, &header, sizeof header);
    bool stored = store(w, file_bytes);
    if (out_stored) *out_stored = stored;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), kept = TD_ROUND_UP(file_bytes, page);
    if (kept < w->reserved_bytes) munmap(w->base + kept, w->reserved_bytes - kept);
    mprotect(w->base, kept, PROT_READ);
    *out = (td_pack_file){.map = {w->base, file_bytes}, .entries = table, .n_entries = (uint32_t)w->entries.n};
    w->base = NULL;
    td_pack_writer_abort(w);
}

void td_pack_writer_abort(td_pack_writer *w) {
    if (w->base) munmap(w->base, w->reserved_bytes);
    if (w->path) drop_file(w);
    td_vec_free(&w->entries);
    *w = (td_pack_writer){.fd = -1};
}
