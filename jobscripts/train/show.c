/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobscripts/train/show.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"

#define BAR_WIDTH 24
#define LINE_EVERY 2.0 /* seconds */

void show_init(struct show *show, int rank)
{
    *show = (struct show){ .rank = rank,
                           .bar = rank == 0 && isatty(STDOUT_FILENO),
                           .last_line = mu_clock_s() };
    /* A line is one write(2), also into a pipe that several ranks share. */
    setvbuf(stdout, NULL, _IOLBF, 4096);
}

/* "1:02:03", "2:03" */
static void put_duration(double seconds, char *buf, int len)
{
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;

    if (s >= 3600)
        snprintf(buf, len, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, len, "%ld:%02ld", s / 60, s % 60);
}

void show_line(struct show *show, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    printf("%sRANK: %d | %s\n", show->bar_drawn ? "\r\033[K" : "", show->rank, text);
    show->bar_drawn = 0;
    fflush(stdout);
}

static void draw_bar(struct show *show, const struct show_progress *p)
{
    static const char *const eighths[] = { " ", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    char bar[BAR_WIDTH * 4] = "", eta[32];
    uint64_t filled = p->steps ? p->step * BAR_WIDTH * 8 / p->steps : 0;

    for (uint64_t i = 0; i < BAR_WIDTH; i++)
        strcat(bar, filled >= 8 * (i + 1) ? "█"
                    : filled > 8 * i      ? eighths[filled - 8 * i]
                                          : " ");
    put_duration(p->eta, eta, sizeof eta);
    printf("\r\033[Kepoch %ld/%ld %3llu%% |%s| %llu/%llu  loss %.4f  %.0f samples/s  "
           "ETA %s",
           p->epoch, p->epochs,
           (unsigned long long)(p->steps ? 100 * p->step / p->steps : 0), bar,
           (unsigned long long)p->step, (unsigned long long)p->steps, p->loss, p->rate,
           eta);
    fflush(stdout);
    show->bar_drawn = 1;
}

void show_progress(struct show *show, const struct show_progress *p)
{
    double now = mu_clock_s();
    char eta[32];

    if (show->rank != 0)
        return;
    if (show->bar) {
        draw_bar(show, p);
        return;
    }
    if (now - show->last_line < LINE_EVERY)
        return;
    show->last_line = now;
    put_duration(p->eta, eta, sizeof eta);
    show_line(show,
              "epoch %ld/%ld | step %llu/%llu | loss %.4f | lr %.5f | %.0f samples/s | "
              "ETA %s",
              p->epoch, p->epochs, (unsigned long long)p->step,
              (unsigned long long)p->steps, p->loss, p->lr, p->rate, eta);
}

void show_bar_end(struct show *show)
{
    if (show->bar_drawn)
        printf("\r\033[K");
    show->bar_drawn = 0;
    fflush(stdout);
}
