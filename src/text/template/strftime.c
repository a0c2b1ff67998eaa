/* template/strftime.c - strftime_now: the C library's dates, and what Python adds. */
#include "text/template/value.h"

#include <stdio.h>
#include <time.h>

static bool local_now(td_tpl *r, td_template_time *out) {
    struct timespec now;
    struct tm t;
    if (r->has_now) {
        *out = r->now;
        return true;
    }
    if (clock_gettime(CLOCK_REALTIME, &now) != 0 || !localtime_r(&now.tv_sec, &t)) {
        td_tpl_raise(r, "OSError", "the time of day is not known");
        return false;
    }
    *out = (td_template_time){t.tm_year + 1900,         t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                              (int)(now.tv_nsec / 1000)};
    return true;
}

static int day_of_year(int year, int month, int day) { /* from 0 */
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return before[month - 1] + day - 1 + (leap && month > 2);
}

static int day_of_week(int year, int month, int day) { /* 0: Sunday; Sakamoto's method */
    static const int shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
    year -= month < 3;
    return (year + year / 4 - year / 100 + year / 400 + shift[month - 1] + day) % 7;
}

static struct tm broken_down(const td_template_time *t) {
    int month = TD_MAX(TD_MIN(t->month, 12), 1), year = TD_MAX(TD_MIN(t->year, 9999), 1),
        day = TD_MAX(TD_MIN(t->day, 31), 1);
    return (struct tm){
        .tm_year = year - 1900,
        .tm_mon = month - 1,
        .tm_mday = day,
        .tm_hour = t->hour,
        .tm_min = t->minute,
        .tm_sec = t->second,
        .tm_wday = day_of_week(year, month, day),
        .tm_yday = day_of_year(year, month, day),
        .tm_isdst = -1,
    };
}

/* One directive, from its % to its letter. Flags and widths are the C library's. */
static void put_directive(const struct tm *tm, int microsecond, td_str directive, td_buf *out) {
    char letter = directive.p[directive.n - 1], format[24] = " ", text[256];
    if (directive.n == 2 && letter == 'f') {
        td_buf_printf(out, "%06d", microsecond);
        return;
    }
    if (directive.n == 2 && (letter == 'z' || letter == 'Z')) return; /* the time carries no zone, as datetime.now() */
    if (directive.n + 2 > sizeof format) return;
    memcpy(format + 1, directive.p, directive.n); /* the space tells an empty text from one that is too long */
    format[directive.n + 1] = 0;
    size_t n = strftime(text, sizeof text, format, tm);
    if (n > 1) td_buf_append(out, text + 1, n - 1);
}

td_val td_tpl_strftime(td_tpl *r, td_str format) {
    td_template_time now;
    if (!local_now(r, &now) || !td_tpl_steps(r, format.n)) return td_v_error();
    struct tm tm = broken_down(&now);
    td_buf out = {0};
    for (size_t i = 0; i < format.n;) {
        size_t end = i + 1;
        if (format.p[i] == '%') {
            while (end < format.n && format.p[end] && strchr("-_0^#123456789EO", format.p[end])) end++;
            if (end < format.n && format.p[end] > ' ' && !(format.p[end] & 0x80)) {
                end++;
                put_directive(&tm, now.microsecond, (td_str){format.p + i, end - i}, &out);
                i = end;
                continue;
            }
        }
        td_buf_append(&out, format.p + i, end - i);
        i = end;
    }
    return td_v_take_buf(r, &out);
}
