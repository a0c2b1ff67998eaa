/* media/mp3.h - MPEG audio (layers I to III) through libmpg123 itself: libsndfile, which would call it, lets
 * it write to standard error. */
#ifndef TD_MEDIA_MP3_H
#define TD_MEDIA_MP3_H

#include "media/audio.h"

/* Whether the bytes begin, after ID3 tags, as a frame of MPEG audio does. */
bool td_mp3_is(const uint8_t *bytes, size_t n);

typedef struct td_mp3 td_mp3;
/* Reads the first frame. bytes must outlive the decoder. *out_frames: samples of each channel that the file's own tag
 * (Xing, LAME) promises; -1: it has none. */
treadle_status td_mp3_open(const uint8_t *bytes, size_t n, td_mp3 **out, int *out_channels, int *out_rate_hz,
                           int64_t *out_frames, treadle_error *err);
/* Decodes up to room frames [room, channels]; 0: there are no more. *out_damaged is set where
 * what follows cannot be decoded. */
int64_t td_mp3_read(td_mp3 *mp3, float *out, int64_t room, bool *out_damaged);
void td_mp3_close(td_mp3 *mp3);

/* Whether the last frame ends before its header says. */
bool td_mp3_is_cut(const uint8_t *bytes, size_t n);

#endif
