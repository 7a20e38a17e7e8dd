/*
 * Field offsets of one CPython version: numbers only, one row per minor version (layouts.c). From 3.13
 * on, _Py_DebugOffsets of the target overrides the row.
 */
#ifndef PYTHON_LAYOUT_H
#define PYTHON_LAYOUT_H

#include "base/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NO (-1) /* this version has no such field */

/* Format of co_lnotab or co_linetable (lines.h). */
enum line_kind { LINES_LNOTAB_UNSIGNED, LINES_LNOTAB, LINES_RANGES, LINES_LOCATIONS };

/* Where an instance keeps its attributes. */
enum attr_kind {
    ATTRS_DICTOFFSET,     /* tp_dictoffset: a pointer to a dict inside the object */
    ATTRS_TWO_POINTERS,   /* 3.11: values at -32, dict at -24 */
    ATTRS_TAGGED_POINTER, /* 3.12: dict or values at -24; odd: address of the values minus one */
    ATTRS_INLINE_VALUES,  /* 3.13+: dict at -24, values after the object */
};

/* Where a split dict keeps the insertion order of its values (pycore_dict.h). */
enum order_kind {
    ORDER_OF_KEYS, /* up to 3.10: the order of the keys */
    ORDER_BEFORE,  /* 3.11, 3.12: bytes in front of the values, in reverse */
    ORDER_AFTER,   /* 3.13+: bytes after the last value */
};

/* How long a frame in the data stack is, in words. The fields are next to co_firstlineno in every version. */
enum frame_size_kind {
    FRAME_SIZE_NONE,  /* up to 3.10: frames are objects */
    FRAME_SIZE_SUM,   /* 3.11: co_stacksize, co_firstlineno, co_nlocalsplus; and the fixed part */
    FRAME_SIZE_FIELD, /* 3.12+: co_firstlineno, co_nlocalsplus, co_framesize */
};

/* Differences in repr() between versions; a set of bits. */
enum repr_flag {
    REPR_PY2 = 1,            /* 2.7: u'a', 1L, set([1]), <type 'int'> */
    REPR_ARGS_COMMA = 2,     /* up to 3.6: ValueError('a',) */
    REPR_DELTA_PLAIN = 4,    /* up to 3.6: timedelta(1, 2); later timedelta(days=1, seconds=2) */
    REPR_ORDERED_PAIRS = 8,  /* up to 3.11: OrderedDict([('a', 1)]); later OrderedDict({'a': 1}) */
    REPR_TAGGED_LOCALS = 16, /* 3.14+: the low bits of local variable slots are tags (pycore_stackref.h) */
    REPR_ARRAY_QUOTES = 32,  /* up to 3.14: bytearray(b"\'") with a needless backslash */
};

struct layout {
    int major, minor;

    /* _PyRuntimeState; 2.7 and 3.6 have none, see _PyThreadState_Current */
    int rt_interp_head, rt_gil_holder, rt_gil_locked;

    /* PyInterpreterState */
    int in_next, in_threads, in_modules;
    int in_gil;                 /* 3.12+: pointer to struct _gil_runtime_state */
    int gil_holder, gil_locked; /* offsets in that struct */

    /* PyThreadState */
    int ts_next, ts_interp, ts_frame, ts_thread_id, ts_native_id, ts_chunk;

    /* _PyCFrame: 3.11 and 3.12 put it between the thread state and the frame */
    int cf_frame, cf_previous;

    /* PyFrameObject up to 3.10, _PyInterpreterFrame from 3.11 on */
    int fr_code, fr_back, fr_owner, fr_is_entry;
    int fr_state;     /* 3.6 to 3.10: a byte, the state of the frame */
    int fr_executing; /* set of the states that mean executing, a bit each */
    int fr_lasti;     /* up to 3.10: an int */
    int fr_instr;     /* 3.11+: a pointer into the bytecode */
    int fr_size;      /* bytes that cover the fields above and fr_stacktop */
    int fr_slots;     /* f_localsplus: the local variables */
    int fr_stacktop; /* the top of the value stack, saved when the frame calls another: an index into fr_slots or, in 3.10, into the
                        array that fr_valuestack points to */
    bool fr_stacktop_is_pointer;  /* 3.6 to 3.9, 3.14+: it is an address */
    int fr_valuestack;            /* 3.10 */
    int fr_values;                /* up to 3.10: the address of the value stack; later it follows the local variables */
    int fr_iblock, fr_blockstack; /* up to 3.10: the blocks that the frame is in */
    int fr_globals;
    int fr_awaited; /* bytes from the top of the value stack back to the object that a suspended frame awaits */

    /* PyCodeObject */
    int co_filename, co_name, co_qualname, co_lines, co_firstline, co_bytecode;
    enum frame_size_kind frame_size_kind;
    int co_version; /* 3.12+: unique per code object */
    int co_size;    /* bytes that cover all of the above except the bytecode */
    int co_argcount, co_kwonly, co_flags;
    int co_varnames;              /* names of the local variable slots: co_varnames; from 3.11 on co_localsplusnames */
    int co_cellvars, co_freevars; /* names of the slots that follow: up to 3.10 */
    int co_kinds;                 /* co_localspluskinds: 3.11+ */
    int co_code;                  /* up to 3.10: the bytes object with the bytecode */

    enum line_kind line_kind;

    /* str: the data follows the ASCII header or the compact header; 2.7: ob_sval */
    int str_length, str_state, str_ascii, str_compact;
    int str_wstr, str_wstr_length; /* up to 3.11: the text of a str that is not "ready" */

    /* bytes */
    int by_size, by_data;

    /* dict; di_keys is NO for the single table of 2.7 */
    int di_keys, di_values, di_used;
    int dk_size, dk_log2_size, dk_log2_index, dk_kind, dk_nentries, dk_indices;
    int dv_values; /* offset of the first value from the values pointer of a split dict */
    enum order_kind order_kind;

    /* tuple, list, set, bytearray: offset of the items, or of the pointer to them */
    int tu_items, li_items, se_mask, se_table, se_key, ba_start;

    /* functions and generators: the qualified name if there is one */
    int fu_name, ge_name;
    int fu_closure; /* tuple of cells */
    int ge_frame;   /* the frame inside a generator; 3.6 to 3.10: a pointer to it */
    /* 3.11+: a byte, the state of the frame inside a generator, and its values (pycore_frame.h) */
    int ge_state, ge_created, ge_suspended, ge_executing;
    int ge_delegates; /* 3.13+: suspended in an await or `yield from`; in 3.11 and 3.12 the same as ge_suspended */

    /* int */
    int lo_tag, lo_digits; /* lo_tag NO: ob_size at 16 */

    /* type */
    int ty_basicsize, ty_dictoffset, ty_flags, ty_cached_keys;
    int ty_name, ty_members, ty_base, ty_dict;
    enum attr_kind attr_kind;

    /* Task and Future of _asyncio (_asynciomodule.c) */
    int fut_loop, fut_callback0, fut_callbacks, fut_state;
    int task_waiter, task_coro, task_name;
    int task_node;          /* 3.14+: its place in the list of a thread or an interpreter */
    int ts_running_task;    /* 3.14+: the task that the thread runs */
    int ts_tasks, in_tasks; /* 3.14+: the heads of these lists */
    int ts_dict;            /* up to 3.12: PyThreadState_GetDict(), which has the running loop */

    int repr_flags; /* set of enum repr_flag */
};

/* The row of a version, or NULL if it is not supported. */
const struct layout *layout_of(int major, int minor);

#define DEBUG_OFFSETS_FIRST_MINOR 13 /* 3.13 */
#define DEBUG_OFFSETS_VERSIONS    3  /* 3.13, 3.14, 3.15: one column each */

/* One entry of _Py_DebugOffsets. */
struct debug_offset {
    size_t field;                        /* offset of an int in struct layout */
    uint16_t at[DEBUG_OFFSETS_VERSIONS]; /* offset in _Py_DebugOffsets of 3.13, 3.14, …; 0: no such entry */
};

/* NULL after the last. */
const struct debug_offset *debug_offset_nth(size_t i);

/* The offset of gil_runtime_state in _Py_DebugOffsets. `column` is below DEBUG_OFFSETS_VERSIONS. */
size_t debug_offset_gil(size_t column);

#endif
