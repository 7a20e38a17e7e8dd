/*
 * What one CPython looks like in memory: numbers only, one row per minor version (layouts.c). From 3.13
 * on the numbers that the interpreter tells of itself (_Py_DebugOffsets) replace the row's.
 */
#ifndef PYTHON_LAYOUT_H
#define PYTHON_LAYOUT_H

#include "base/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NO (-1) /* this version has no such field */

/* How co_lnotab / co_linetable is to be read (lines.h). */
enum line_kind { LINES_LNOTAB_UNSIGNED, LINES_LNOTAB, LINES_RANGES, LINES_LOCATIONS };

/* How an instance finds its attributes. */
enum attr_kind {
    ATTRS_DICTOFFSET,     /* tp_dictoffset: a dict pointer in the object */
    ATTRS_TWO_POINTERS,   /* 3.11: values at -32, dict at -24 */
    ATTRS_TAGGED_POINTER, /* 3.12: at -24; odd: one below the values */
    ATTRS_INLINE_VALUES,  /* 3.13+: dict at -24, values after the object */
};

/* How the values of a split dict tell the order in which they were set (pycore_dict.h). */
enum order_kind {
    ORDER_OF_KEYS, /* up to 3.10: that of the keys */
    ORDER_BEFORE,  /* 3.11, 3.12: bytes before the values, backwards */
    ORDER_BEHIND,  /* 3.13+: bytes behind the last value */
};

/* What repr() shows in another way than the versions after it or before it; a set of these. */
enum repr_kind {
    REPR_2 = 1,              /* 2.7: u'a', 1L, set([1]), <type 'int'> */
    REPR_ARGS_COMMA = 2,     /* up to 3.6: ValueError('a',) */
    REPR_DELTA_PLAIN = 4,    /* up to 3.6: timedelta(1, 2) rather than timedelta(days=1, seconds=2) */
    REPR_ORDERED_PAIRS = 8,  /* up to 3.11: OrderedDict([('a', 1)]) rather than OrderedDict({'a': 1}) */
    REPR_ARRAY_QUOTES = 32,  /* up to 3.14: bytearray(b"\'"), the quote escaped though it need not be */
    REPR_TAGGED_LOCALS = 16, /* 3.14+: the low bits of a frame's slots are tags (pycore_stackref.h) */
};

struct layout {
    int major, minor;

    /* _PyRuntimeState; 2.7 and 3.6 have none and are found through _PyThreadState_Current */
    int rt_interp_head, rt_gil_holder, rt_gil_locked;

    /* PyInterpreterState */
    int in_next, in_threads, in_id, in_modules;
    int in_gil;                 /* pointer to the GIL's own struct: 3.12+ */
    int gil_holder, gil_locked; /* in that struct */

    /* PyThreadState */
    int ts_next, ts_interp, ts_frame, ts_thread_id, ts_native_id, ts_chunk;
    int ts_holds_gil; /* 3.15+ */

    /* _PyCFrame, between thread state and frame: 3.11, 3.12 */
    int cf_frame, cf_previous;

    /* PyFrameObject up to 3.10, _PyInterpreterFrame after */
    int fr_code, fr_back, fr_owner, fr_is_entry;
    int fr_state;     /* 3.6 to 3.10: a byte that tells whether it is being executed, */
    int fr_executing; /* by these values, a bit each */
    int fr_lasti;     /* an int: up to 3.10 */
    int fr_instr;     /* a pointer into the bytecode: 3.11+ */
    int fr_size;      /* bytes to read to have all of the above */
    int fr_slots;     /* f_localsplus: the variables */

    /* PyCodeObject */
    int co_filename, co_name, co_qualname, co_lines, co_firstline, co_bytecode;
    int co_version; /* a number of its own: 3.12+ */
    int co_size;    /* bytes to read to have all of the above but the bytecode */
    int co_argcount, co_kwonly, co_flags;
    int co_varnames;              /* the names of the slots: co_varnames; from 3.11 on co_localsplusnames */
    int co_cellvars, co_freevars; /* names of the slots behind: up to 3.10 */
    int co_kinds;                 /* co_localspluskinds: 3.11+ */

    enum line_kind line_kind;

    /* str (3.x): data follows the ASCII or the compact header; 2.7: ob_sval */
    int str_length, str_state, str_ascii, str_compact;
    int str_wstr, str_wstr_length; /* one that is not "ready" has its text there: up to 3.11 */

    /* bytes */
    int by_size, by_data;

    /* dict; NO keys: the table of 2.7 */
    int di_keys, di_values, di_used;
    int dk_size, dk_log2_size, dk_log2_index, dk_kind, dk_nentries, dk_indices;
    int dv_values; /* where a split dict's values begin behind its values pointer */
    enum order_kind order_kind;

    /* tuple, list, set, bytearray: where the items are, or the pointer to them */
    int tu_items, li_items, se_mask, se_table, se_key, ba_start;

    /* functions and generators: the name, qualified where there is one */
    int fu_name, ge_name;

    /* int */
    int lo_tag, lo_digits; /* lo_tag NO: ob_size at 16 */

    /* type */
    int ty_basicsize, ty_dictoffset, ty_flags, ty_cached_keys;
    int ty_name, ty_itemsize, ty_members, ty_base, ty_dict;
    enum attr_kind attr_kind;

    int reprs; /* set of enum repr_kind */
};

/* The row of a version, or NULL when it is not known. */
const struct layout *layout_of(int major, int minor);

/* The rows from the newest to the oldest, for the search without symbols; NULL at the end. */
const struct layout *layout_nth(size_t i);

/* One number that the interpreter tells of itself from LAYOUT_TOLD_FIRST on. */
#define LAYOUT_TOLD_FIRST 13 /* 3.13 */
#define LAYOUT_TOLD_N     3

struct layout_told {
    size_t field;               /* offset of an int in struct layout */
    uint16_t at[LAYOUT_TOLD_N]; /* offset in _Py_DebugOffsets of 3.13, 3.14, …; 0: not told */
};

const struct layout_told *layout_told_nth(size_t i);

#endif
