/* base/time.h - the monotonic clock and process memory. */
#ifndef TD_BASE_TIME_H
#define TD_BASE_TIME_H

#include <stdint.h>

uint64_t td_time_ns(void);        /* CLOCK_MONOTONIC */
uint64_t td_peak_rss_bytes(void); /* high-water mark of this process */

#endif
