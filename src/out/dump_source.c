/*
 * Prints source lines under the frames of a dump.
 */
#include "base/text.h"
#include "out/dump_private.h"

#include <string.h>

#define ROOM     2048           /* longer lines are cut */
#define REPLACED "\xef\xbf\xbd" /* U+FFFD */

/* The line as it is shown: without its indentation, and with spaces for tabs. Returns the bytes of indentation. */
static size_t copy_line(const char *text, char ret[ROOM])
{
    size_t indent = strspn(text, " \t\f");

    snprintf(ret, ROOM, "%s", text + indent);
    for (char *tab = ret; (tab = strpbrk(tab, "\t\f\v")) != NULL; tab++)
        *tab = ' ';
    return indent;
}

/* Moves an offset that is inside a character to its start. */
static size_t to_character(const char *line, size_t at)
{
    while (at > 0 && ((unsigned char)line[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* The bytes of the line to underline. False if there are none, or if that would be all of it. A line that is not UTF-8 has other
 * bytes than the text that the columns count. */
static bool find_span(const struct frame *frame, const char *line, size_t indent, size_t *ret_begin, size_t *ret_end)
{
    const struct frame_source *s = frame->source;
    size_t len = strlen(line), begin, end;

    if (s->end_line < frame->line || s->end_line <= 0 || s->column < 0 || s->end_column < 0 || strstr(line, REPLACED))
        return false;
    begin = (size_t)s->column > indent ? (size_t)s->column - indent : 0;
    end = (size_t)s->end_column > indent ? (size_t)s->end_column - indent : 0;
    if (s->end_line > frame->line || end > len)
        end = len;
    if (begin >= end)
        return false;
    begin = to_character(line, begin);
    end = end < len ? to_character(line, end) : len;
    if (begin >= end || (begin == 0 && end == len))
        return false;
    *ret_begin = begin;
    *ret_end = end;
    return true;
}

static void print_part(const char *line, size_t begin, size_t end, FILE *out)
{
    char part[ROOM];

    memcpy(part, line + begin, end - begin);
    part[end - begin] = '\0';
    text_print_safe(out, part);
}

static void repeat(char c, size_t n, FILE *out)
{
    while (n-- > 0)
        putc(c, out);
}

void dump_text_source(const struct frame *frame, const struct dump_options *options, unsigned columns, FILE *out)
{
    char line[ROOM];
    size_t indent = copy_line(frame->source->text, line), begin = 0, end = 0;
    bool has_span = find_span(frame, line, indent, &begin, &end);

    if (!line[0])
        return;
    repeat(' ', columns, out);
    print_part(line, 0, begin, out);
    if (has_span) {
        dump_style(options, STYLE_CODE, out);
        print_part(line, begin, end, out);
        dump_style(options, STYLE_NONE, out);
    }
    print_part(line, end, strlen(line), out);
    putc('\n', out);
    if (!has_span)
        return;
    repeat(' ', columns, out);
    repeat(' ', text_safe_columns(line, begin), out);
    dump_style(options, STYLE_CARETS, out);
    repeat('^', text_safe_columns(line + begin, end - begin), out);
    dump_style(options, STYLE_NONE, out);
    putc('\n', out);
}
