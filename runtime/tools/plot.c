/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/tools/plot.h"

#include <math.h>

#define WIDTH 640
#define HEIGHT 260
#define LEFT 60
#define RIGHT 15
#define TOP 30
#define BOTTOM 40
#define BAR 18

static const char *const colours[] = { "#3b6ea5", "#d9822b", "#8a8a8a" };

void mu_plot_escape(const char *text, FILE *to)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", to);
            break;
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        default:
            fputc(*text, to);
        }
    }
}

void mu_plot_cell(const char *tag, const char *text, FILE *to)
{
    fprintf(to, "<%s>", tag);
    mu_plot_escape(text, to);
    fprintf(to, "</%s>", tag);
}

/* The largest of 1, 2, 5 times a power of ten that gives at least four ticks. */
static double tick_of(double range)
{
    double power = pow(10, floor(log10(range))), tick = power;

    while (range / tick < 4)
        tick /= range / (tick / 2) >= 4 ? 2 : 2.5;
    return tick;
}

static void label(double x, double y, const char *anchor, const char *text, FILE *to)
{
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    mu_plot_escape(text, to);
    fputs("</text>\n", to);
}

static void number(double x, double y, const char *anchor, double value, FILE *to)
{
    char text[32];

    snprintf(text, sizeof text, "%g", value);
    label(x, y, anchor, text, to);
}

static void open_svg(int height, const char *title, FILE *to)
{
    fprintf(to, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n",
            WIDTH, height, WIDTH, height);
    label(LEFT, 18, "start", title, to);
}

void mu_plot_line(const char *title, const char *xlabel, const char *ylabel,
                  const double *x, const double *y, int n, FILE *to)
{
    double x0 = INFINITY, x1 = -INFINITY, y1 = 0, xs, ys, tick;

    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !isfinite(y[i]))
            continue;
        x0 = fmin(x0, x[i]);
        x1 = fmax(x1, x[i]);
        y1 = fmax(y1, y[i]);
    }
    open_svg(HEIGHT, title, to);
    if (!(x1 > x0) || !(y1 > 0)) {
        label(WIDTH / 2, HEIGHT / 2, "middle", "too few points", to);
        fputs("</svg>\n", to);
        return;
    }
    xs = (WIDTH - LEFT - RIGHT) / (x1 - x0);
    ys = (HEIGHT - TOP - BOTTOM) / y1;
    tick = tick_of(y1);
    for (double v = 0; v <= y1 * 1.0001; v += tick) {
        double at = HEIGHT - BOTTOM - v * ys;

        fprintf(to,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                LEFT, WIDTH - RIGHT, at, at);
        number(LEFT - 6, at + 4, "end", v, to);
    }
    tick = tick_of(x1 - x0);
    for (double v = ceil(x0 / tick) * tick; v <= x1; v += tick)
        number(LEFT + (v - x0) * xs, HEIGHT - BOTTOM + 15, "middle", v, to);
    label(WIDTH / 2, HEIGHT - 6, "middle", xlabel, to);
    label(WIDTH - RIGHT, 18, "end", ylabel, to);
    fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
            colours[0]);
    for (int i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y[i]))
            fprintf(to, "%.1f,%.1f ", LEFT + (x[i] - x0) * xs,
                    HEIGHT - BOTTOM - fmax(0, y[i]) * ys);
    fputs("\"/>\n</svg>\n", to);
}

void mu_plot_bars(const char *title, const char *const *parts, int nparts,
                  const double *values, int n, FILE *to)
{
    int height = TOP + n * (BAR + 4) + BOTTOM;
    double most = 0, scale, at = LEFT;

    for (int i = 0; i < n; i++) {
        double sum = 0;

        for (int p = 0; p < nparts; p++)
            sum += values[i * nparts + p];
        most = fmax(most, sum);
    }
    scale = most > 0 ? (WIDTH - LEFT - RIGHT - 60) / most : 0;
    open_svg(height, title, to);
    for (int i = 0; i < n; i++) {
        double left = LEFT, sum = 0;
        int y = TOP + i * (BAR + 4);
        char text[32];

        snprintf(text, sizeof text, "rank %d", i);
        label(LEFT - 6, y + BAR - 5, "end", text, to);
        for (int p = 0; p < nparts; p++) {
            double width = values[i * nparts + p] * scale;

            fprintf(to,
                    "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" "
                    "fill=\"%s\"/>\n",
                    left, y, width, BAR, colours[p]);
            left += width;
            sum += values[i * nparts + p];
        }
        snprintf(text, sizeof text, "%.2f s", sum);
        label(left + 5, y + BAR - 5, "start", text, to);
    }
    for (int p = 0; p < nparts; p++) {
        fprintf(to,
                "<rect x=\"%.1f\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>\n",
                at, height - 22, colours[p]);
        label(at + 14, height - 13, "start", parts[p], to);
        at += 190;
    }
    fputs("</svg>\n", to);
}
