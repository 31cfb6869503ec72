/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_screen.c - the terminal, drawn by ncurses */
#include "runtime/tools/monitor.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_NCURSES
#include <ncurses.h>

static int top; /* the first line that is drawn */

int mu_screen_open(struct mu_err *err)
{
    if (!isatty(1))
        return mu_err_set(err, ENOTTY, "standard output is no terminal; add --once");
    if (!newterm(NULL, stdout, stdin))
        return mu_err_set(err, ENOTTY,
                          "the terminal of TERM is unknown; set TERM or add --once");
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    top = 0;
    return 0;
}

void mu_screen_draw(const char *text)
{
    int line = 0, last = 0;

    for (const char *at = text; *at; at++)
        last += *at == '\n';
    top = top > last - 1 ? last - 1 : top;
    top = top < 0 ? 0 : top;
    erase();
    for (const char *at = text; *at; line++) {
        int len = (int)strcspn(at, "\n");

        if (line >= top && line - top < LINES - 1) {
            if (line == 0)
                attron(A_BOLD);
            mvaddnstr(line - top, 0, at, len < COLS ? len : COLS);
            attroff(A_BOLD);
        }
        at += len + (at[len] == '\n');
    }
    attron(A_REVERSE);
    mvaddnstr(LINES - 1, 0, " q quit   up, down: more ranks ", COLS);
    attroff(A_REVERSE);
    refresh();
}

bool mu_screen_wait(double seconds, bool *again)
{
    int key;

    timeout((int)(seconds * 1000));
    key = getch();
    *again = key != ERR;
    if (key == KEY_DOWN)
        top++;
    else if (key == KEY_UP)
        top -= top > 0;
    else if (key == KEY_NPAGE)
        top += LINES - 2;
    else if (key == KEY_PPAGE)
        top = top > LINES - 2 ? top - (LINES - 2) : 0;
    return key == 'q';
}

void mu_screen_close(void)
{
    endwin();
}

#else

int mu_screen_open(struct mu_err *err)
{
    return mu_err_set(err, ENOSYS,
                      "this build has no ncurses, and so no view; add --once");
}

void mu_screen_draw(const char *text)
{
    (void)text;
}

bool mu_screen_wait(double seconds, bool *again)
{
    (void)seconds;
    *again = false;
    return true;
}

void mu_screen_close(void)
{
}

#endif
