/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static trace points of provider "gantry", for bpftrace, perf and SystemTap.
 *
 * A trace point is one nop in the code and a note in the ELF file: free when nobody listens.
 *Without <sys/sdt.h> at build time it is nothing at all. Arguments must be integers or pointers
 *without side effects.
 *
 *	GANTRY_TRACE2(task_submit, queue_id, seq);
 *	bpftrace -e 'usdt:/usr/bin/gantry-worker:gantry:task_submit { @[arg0] = count(); }'
 */
#ifndef GANTRY_BASE_TRACE_H
#define GANTRY_BASE_TRACE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define GANTRY_TRACE_AVAILABLE 1
#endif
#endif

#ifdef GANTRY_TRACE_AVAILABLE
#define GANTRY_TRACE0(name)		DTRACE_PROBE(gantry, name)
#define GANTRY_TRACE1(name, a)		DTRACE_PROBE1(gantry, name, a)
#define GANTRY_TRACE2(name, a, b)	DTRACE_PROBE2(gantry, name, a, b)
#define GANTRY_TRACE3(name, a, b, c)	DTRACE_PROBE3(gantry, name, a, b, c)
#define GANTRY_TRACE4(name, a, b, c, d) DTRACE_PROBE4(gantry, name, a, b, c, d)
#else
/* sizeof: the arguments count as used, and are not evaluated. */
#define GANTRY_TRACE0(name)	     ((void)0)
#define GANTRY_TRACE1(name, a)	     ((void)sizeof(a))
#define GANTRY_TRACE2(name, a, b)    ((void)sizeof(a), (void)sizeof(b))
#define GANTRY_TRACE3(name, a, b, c) ((void)sizeof(a), (void)sizeof(b), (void)sizeof(c))
#define GANTRY_TRACE4(name, a, b, c, d) \
	((void)sizeof(a), (void)sizeof(b), (void)sizeof(c), (void)sizeof(d))
#endif

#endif
