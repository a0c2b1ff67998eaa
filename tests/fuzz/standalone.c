/* fuzz/standalone.c - runs a fuzz target without libFuzzer: every seed as it is, then cheap mutations of each.
 *
 * usage: fuzz_x FILE_OR_FOLDER...   TREADLE_FUZZ_MUTATIONS=N: mutations per seed (default 300)
 *
 * The mutations are the same on every machine (splitmix64 from a fixed start): truncations, byte changes, bit
 * flips, runs of 0x00 or 0xff, a doubled piece. They find the simple faults at every test run, on compilers
 * that have no libFuzzer; the real search is `make fuzz`. Inputs are copied into a block of their exact size,
 * so ASan sees reads past the end. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_seeds, n_unreadable;

static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void run_exact(const uint8_t *bytes, size_t size) {
    uint8_t *copy = calloc(size ? size : 1, 1);
    if (!copy) return;
    if (size) memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void mutate(uint8_t *bytes, size_t *size, size_t capacity, uint64_t *state) {
    if (*size == 0) return;
    size_t at = (size_t)(next_random(state) % *size);
    size_t n = 1 + (size_t)(next_random(state) % 16);
    if (n > *size - at) n = *size - at;
    switch (next_random(state) % 6) {
    case 0: *size = at; break;
    case 1: bytes[at] = (uint8_t)next_random(state); break;
    case 2: bytes[at] ^= (uint8_t)(1u << (next_random(state) % 8)); break;
    case 3: memset(bytes + at, 0, n); break;
    case 4: memset(bytes + at, 0xff, n); break;
    default:
        if (*size + n <= capacity) {
            memmove(bytes + at + n, bytes + at, *size - at);
            *size += n;
        }
        break;
    }
}

static void run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        printf("%s: cannot be read\n", path);
        n_unreadable++;
        if (f) fclose(f);
        return;
    }
    size_t size = (size_t)st.st_size, capacity = size + 256;
    uint8_t *bytes = malloc(capacity), *work = malloc(capacity);
    if (!bytes || !work || fread(bytes, 1, size, f) != size) {
        printf("%s: cannot be read\n", path);
        n_unreadable++;
    } else {
        const char *text = getenv("TREADLE_FUZZ_MUTATIONS");
        long n_mutations = text ? strtol(text, NULL, 10) : 300;
        uint64_t state = 1;
        n_seeds++;
        run_exact(bytes, size);
        for (long i = 0; i < n_mutations; i++) {
            size_t work_size = size;
            memcpy(work, bytes, size);
            for (uint64_t k = 1 + next_random(&state) % 3; k > 0; k--) mutate(work, &work_size, capacity, &state);
            run_exact(work, work_size);
        }
    }
    free(bytes);
    free(work);
    fclose(f);
}

int main(int argc, char **argv) {
    run_exact((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) != 0 || !S_ISDIR(st.st_mode)) {
            run_file(argv[i]);
            continue;
        }
        struct dirent **entries = NULL;
        int n = scandir(argv[i], &entries, NULL, alphasort);
        for (int k = 0; k < n; k++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], entries[k]->d_name);
            if (entries[k]->d_name[0] != '.') run_file(path);
            free(entries[k]);
        }
        free(entries);
    }
    printf("%d passed, %d failed, 0 skipped\n", n_seeds, n_unreadable);
    return n_unreadable || n_seeds == 0;
}
