/* quant/pack_cache.h - packed weights on disk: packed once, mapped ever after.
 *
 * One file holds everything that one session packed, in execution order, so that decoding reads it as one stream. It
 * lies in td_cache_dir()/packed under the hex digits of its key. It is written aside, synced and renamed: readers see a
 * whole file or none, processes may race. A file that is truncated, damaged in header or table, or of another version
 * is a miss, and is replaced by the next writer. What is mapped is read-only.
 *
 * Key. Hashing the weights themselves would read every page of them at every start, which costs time and resident
 * memory just where mapping saves both. So the key covers what identifies them: the bytes of the graph (which name
 * and shape every weight), and for each file that weights come from its real path, device, inode, size and
 * modification time in nanoseconds; for weights that exist in memory only, their bytes. A file replaced by one with
 * the same path, inode, size and time would go unnoticed; writers that rename, as ours do, change the inode. The
 * format version is part of the key.
 *
 * File:  header (64 bytes), zeros to 4096, entries' bytes (64-byte aligned), table of td_pack_entry.
 *
 * Writing maps the growing file and hands out that memory, so weights are packed straight into the page cache
 * and stay mapped when the file is done: no copy, no second reading. Disk space is reserved before it is
 * handed out, so that a full disk is noticed and not a SIGBUS. Without a cache folder or space the same calls
 * give anonymous memory and no file.
 */
#ifndef TD_QUANT_PACK_CACHE_H
#define TD_QUANT_PACK_CACHE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/str.h"

#include <stdbool.h>

enum { TD_PACK_META_BYTES = 40 };

/* --- key: 128 bits, XXH3 --- */

typedef struct td_pack_key {
    uint64_t low, high;
} td_pack_key;

td_pack_key td_pack_key_start(void);                                 /* holds the format version */
void td_pack_key_add(td_pack_key *key, const void *bytes, size_t n); /* order and boundaries of the parts count */
/* Its identity, not its bytes. */
treadle_status td_pack_key_add_file(td_pack_key *key, const char *path, treadle_error *err);

/* --- reading --- */

/* One packed thing. meta is the packer's own, e.g. a td_qlayout, so that a hit needs no look at the source. */
typedef struct td_pack_entry {
    uint64_t name_hash; /* of the name given to td_pack_writer_add */
    uint64_t offset, bytes;
    uint8_t meta[TD_PACK_META_BYTES];
} td_pack_entry;

typedef struct td_pack_file {
    td_mmap map;
    const td_pack_entry *entries;
    uint32_t n_entries;
    uint32_t next; /* where td_pack_file_find looks first: entries are asked for in the order they were written */
} td_pack_file;

/* True on a hit; then *out is to be closed with td_pack_file_close. Never fails: all trouble is a miss. */
bool td_pack_cache_open(const td_pack_key *key, td_pack_file *out);
/* The entry of that name, NULL if there is none. Its bytes are at td_pack_file_data(file, entry), read-only. */
const td_pack_entry *td_pack_file_find(td_pack_file *file, td_str name);
static inline const void *td_pack_file_data(const td_pack_file *file, const td_pack_entry *entry) {
    return file->map.data + entry->offset;
}
void td_pack_file_close(td_pack_file *file);

/* --- writing --- */

typedef struct td_pack_writer {
    td_pack_key key;
    int fd;             /* -1: memory only */
    char *path, *aside; /* the file's name, and its name while it is written; NULL: memory only */
    uint8_t *base;      /* reserved_bytes of address space, the first used_bytes of it backed */
    size_t reserved_bytes, used_bytes, backed_bytes;
    TD_VEC(td_pack_entry) entries;
} td_pack_writer;

/* Starts a file for key. reserve_bytes: an upper bound of all that will be added. It costs address space only, so be
 * generous; twice the source's size, plus room for small matrices, which are padded to 16 outputs and 64 inputs.
 * Without a usable cache folder the writer is memory only. Fails when out of memory or address space. */
treadle_status td_pack_writer_begin(td_pack_writer *writer, const td_pack_key *key, size_t reserve_bytes,
                                    treadle_error *err);

/* Zeroed, writable memory for one thing, 64-byte aligned, right behind the last; it stays valid until the file of
 * td_pack_writer_commit is closed or the writer aborted. meta (meta_bytes <= TD_PACK_META_BYTES) may be NULL. LIMIT:
 * the reserve is used up (the table takes 64 bytes an entry of it). A full disk is no failure: the writer goes on in
 * memory. After a failure the writer is as before the call. */
treadle_status td_pack_writer_add(td_pack_writer *writer, td_str name, const void *meta, size_t meta_bytes,
                                  size_t bytes, void **out, treadle_error *err);

/* Finishes the file, makes its memory read-only and moves it to *out; the writer is empty. Cannot fail: whether the
 * file could be stored too is in *out_stored, if not NULL. */
void td_pack_writer_commit(td_pack_writer *writer, td_pack_file *out, bool *out_stored);

/* Gives everything back and removes the unfinished file. Fine on a committed or zeroed writer. */
void td_pack_writer_abort(td_pack_writer *writer);

#endif
