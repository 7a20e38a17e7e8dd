/*
 * The lines of one unit of debug info, from .debug_line. libdw's own table takes 60 times the memory of its bytes in the
 * file while it is read, and libdw keeps it until the file is closed.
 *
 *     if (line_table_read(&t, &sections, offset, "/build", names) == 0 && line_table_find(&t, vaddr, &file, &line))
 *         printf("%s:%d\n", line_table_file(&t, file), line);
 */
#ifndef ELF_LINE_TABLE_H
#define ELF_LINE_TABLE_H

#include "base/intern.h"
#include "elf/range_list.h"

struct line_section {
    const void *bytes; /* NULL if there is no such section */
    size_t len;
};

struct line_sections {
    struct line_section line, line_str, str; /* .debug_line, .debug_line_str, .debug_str */
};

struct line_row {
    uint64_t vaddr;
    int line;
    uint32_t file;
};

struct line_table {
    struct line_row *rows;
    size_t n, cap;
    struct range_list sequences; /* address -> first row and number of rows */
    const char **files;          /* interned; NULL if unknown */
    size_t n_files, cap_files;
};

/* The bytes that the unit at `at` takes in .debug_line; 0 if it lies outside. */
size_t line_table_bytes(const struct line_sections *s, uint64_t at);

/*
 * Reads the line program at `at`. `comp_dir` is the directory that the compiler ran in, or NULL. Names of files live as
 * long as `names`. Returns 0, or ERR_READ if the program is damaged; the table is empty then.
 */
int line_table_read(struct line_table *t, const struct line_sections *s, uint64_t at, const char *comp_dir,
                    struct intern *names);
void line_table_clear(struct line_table *t);

/* Finds the line at an address. Returns false if there is none. */
bool line_table_find(const struct line_table *t, uint64_t vaddr, uint64_t *ret_file, int *ret_line);

/* The name of a file, which can be relative to the compiler's directory. NULL if there is no such file. */
const char *line_table_file(const struct line_table *t, uint64_t index);

#endif
