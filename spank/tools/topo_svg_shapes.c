/* SPDX-License-Identifier: BSD-3-Clause */
/* topo_svg_shapes.c - text, boxes and the colours of tasks in the drawing */
#include <math.h>

#include "spank/tools/topo_svg.h"

/* Steps of the golden angle give neighbouring tasks hues that differ well. */
const char *mu_svg_colour(int task, char buf[8])
{
    double h = fmod(task * 137.508, 360) / 60, x = 1 - fabs(fmod(h, 2) - 1);
    double rgb[6][3] = { { 1, x, 0 }, { x, 1, 0 }, { 0, 1, x },
                         { 0, x, 1 }, { x, 0, 1 }, { 1, 0, x } };
    const double *c = rgb[(int)h % 6];
    double low = task / 7 % 2 ? 105 : 135; /* a second round is darker */

    snprintf(buf, 8, "#%02x%02x%02x", (int)(low + c[0] * 115), (int)(low + c[1] * 115),
             (int)(low + c[2] * 115));
    return buf;
}

void mu_svg_text(const struct mu_svg *d, int x, int y, int size, const char *anchor,
                 const char *string)
{
    fprintf(d->out, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" text-anchor=\"%s\">", x,
            y, size, anchor);
    for (; *string; string++)
        switch (*string) {
        case '<':
            fputs("&lt;", d->out);
            break;
        case '>':
            fputs("&gt;", d->out);
            break;
        case '&':
            fputs("&amp;", d->out);
            break;
        default:
            if ((unsigned char)*string >= 32)
                fputc(*string, d->out);
        }
    fputs("</text>\n", d->out);
}

void mu_svg_box(const struct mu_svg *d, int x, int y, int w, int h, const char *colour,
                const char *stroke)
{
    fprintf(
        d->out,
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"%s\" "
        "rx=\"2\"/>\n",
        x, y, w, h, colour, stroke);
}
