/* Fuzzes the .npy reader: a file that is read is written and read again as the same tensor. Files lie in memory
 * (memfd): the reader takes paths. */
#include "base/alloc.h"
#include "base/file.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

/* Reads the tensor of a file with these bytes. */
static bool read_bytes(const void *bytes, size_t n, td_tensor *out) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz.npy", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    check(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, bytes, n, 0) == (ssize_t)n);
    return td_npy_read(path, out, NULL) == TREADLE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char to[] = "/tmp/fuzz-npy-XXXXXX";
    static bool made;
    td_tensor a = {0}, b = {0};
    size_t n_bytes, n;
    char *written;
    if (!made) {
        int fd = mkstemp(to);
        check(fd >= 0 && close(fd) == 0);
        made = true;
    }
    if (!read_bytes(data, size, &a)) return 0;
    check(td_tensor_bytes(&a, &n_bytes) && n_bytes <= size);
    check(td_npy_write(to, &a, NULL) == TREADLE_OK);
    check(td_file_read(to, 0, &written, &n, NULL) == TREADLE_OK);
    check(read_bytes(written, n, &b));
    check(a.dtype == b.dtype && a.shape.rank == b.shape.rank);
    for (int i = 0; i < a.shape.rank; i++) check(a.shape.dims[i] == b.shape.dims[i]);
    check(n_bytes == 0 || memcmp(a.data, b.data, n_bytes) == 0);
    td_buffer_release(a.buffer);
    td_buffer_release(b.buffer);
    td_free(written);
    unlink(to);
    return 0;
}
