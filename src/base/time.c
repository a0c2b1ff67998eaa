/* base/time.c - see time.h. */
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

uint64_t td_time_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t td_peak_rss_bytes(void) {
    /* Not getrusage at first: its mark survives exec, so a small program started by a large one would look large. */
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && kilobytes == 0 && fgets(line, sizeof line, status)) {
        if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtoull(line + 6, NULL, 10);
    }
    if (status) fclose(status);
    struct rusage usage;
    if (kilobytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0) kilobytes = (unsigned long long)usage.ru_maxrss;
    return (uint64_t)kilobytes * 1024;
}
