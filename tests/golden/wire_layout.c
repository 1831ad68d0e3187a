/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire format as it lies in memory, one line a field, to be compared with wire-layout.txt. Two builds
 * that print the same can talk to each other. A structure whose fields do not add up to its size has
 * a hole, or a field that this list lacks: that fails too.
 */
#include <stddef.h>
#include <stdio.h>

#include "proto/codec.h"
#include "proto/door.h"
#include "proto/doormem.h"
#include "proto/wire.h"

static const char *current;
static size_t current_bytes, seen_bytes;
static int holes;

static void end_struct(void)
{
	if (current && seen_bytes != current_bytes) {
		fprintf(stderr, "struct %s: %zu bytes, its listed fields are %zu\n", current,
			current_bytes, seen_bytes);
		holes = 1;
	}
}

static void begin_struct(const char *name, size_t bytes)
{
	end_struct();
	current = name;
	current_bytes = bytes;
	seen_bytes = 0;
	printf("struct %s %zu\n", name, bytes);
}

static void field(const char *name, size_t off, size_t bytes)
{
	printf("  %s +%zu %zu\n", name, off, bytes);
	seen_bytes += bytes;
}

#define STRUCT(name) begin_struct(#name, sizeof(struct name))
#define F(s, name)   field(#name, offsetof(struct s, name), sizeof(((struct s *)0)->name))
#define NUMBER(name) printf("%s %lld\n", #name, (long long)(name))

static void print_ring(void)
{
	STRUCT(gantry_desc);
	F(gantry_desc, op);
	F(gantry_desc, flags);
	F(gantry_desc, len_bytes);
	F(gantry_desc, off_bytes);
	F(gantry_desc, imm);
	STRUCT(gantry_inline);
	F(gantry_inline, bytes);
	STRUCT(gantry_wire_access);
	F(gantry_wire_access, buffer);
	F(gantry_wire_access, off);
	F(gantry_wire_access, len);
	F(gantry_wire_access, mode);
	F(gantry_wire_access, arg_off);
	F(gantry_wire_access, reserved);
	STRUCT(gantry_output);
	F(gantry_output, put);
	F(gantry_output, lost);
	F(gantry_output, fault);
	F(gantry_output, reserved);
	STRUCT(gantry_wire_texture);
	F(gantry_wire_texture, width);
	F(gantry_wire_texture, height);
	F(gantry_wire_texture, depth);
	F(gantry_wire_texture, format);
	F(gantry_wire_texture, channels);
	F(gantry_wire_texture, flags);
	F(gantry_wire_texture, levels);
	F(gantry_wire_texture, address);
	F(gantry_wire_texture, pitch);
	F(gantry_wire_texture, address_mode);
	F(gantry_wire_texture, filter);
	F(gantry_wire_texture, sampling);
	F(gantry_wire_texture, anisotropy);
	F(gantry_wire_texture, level_filter);
	F(gantry_wire_texture, level_bias);
	F(gantry_wire_texture, level_min);
	F(gantry_wire_texture, level_max);
	F(gantry_wire_texture, border);
	F(gantry_wire_texture, view_format);
	F(gantry_wire_texture, view_level);
	F(gantry_wire_texture, view_layer);
	F(gantry_wire_texture, reserved);
	F(gantry_wire_texture, view);
	STRUCT(gantry_wire_tensor);
	F(gantry_wire_tensor, address);
	F(gantry_wire_tensor, dims);
	F(gantry_wire_tensor, strides);
	F(gantry_wire_tensor, mode);
	F(gantry_wire_tensor, type);
	F(gantry_wire_tensor, rank);
	F(gantry_wire_tensor, steps);
	F(gantry_wire_tensor, box);
	F(gantry_wire_tensor, channels);
	F(gantry_wire_tensor, pixels);
	F(gantry_wire_tensor, interleave);
	F(gantry_wire_tensor, swizzle);
	F(gantry_wire_tensor, promotion);
	F(gantry_wire_tensor, fill);
	STRUCT(gantry_queue_area);
	F(gantry_queue_area, tail);
	F(gantry_queue_area, waiters);
	F(gantry_queue_area, is_own);
	F(gantry_queue_area, pad0);
	F(gantry_queue_area, head);
	F(gantry_queue_area, done);
	F(gantry_queue_area, nfailed);
	F(gantry_queue_area, parked);
	F(gantry_queue_area, state);
	F(gantry_queue_area, pad1);
}

static void print_header(void)
{
	STRUCT(gantry_segment_header);
	F(gantry_segment_header, magic);
	F(gantry_segment_header, version);
	F(gantry_segment_header, nqueues);
	F(gantry_segment_header, nslots);
	F(gantry_segment_header, queue_stride_bytes);
	F(gantry_segment_header, queues_off);
	F(gantry_segment_header, heap_off);
	F(gantry_segment_header, heap_bytes);
	F(gantry_segment_header, segment_bytes);
	F(gantry_segment_header, session_id);
	F(gantry_segment_header, state);
	F(gantry_segment_header, reason);
	F(gantry_segment_header, epoch);
	F(gantry_segment_header, pad0);
	F(gantry_segment_header, bell);
	F(gantry_segment_header, props);
	F(gantry_segment_header, listening);
	F(gantry_segment_header, pad1);
}

static void print_replies(void)
{
	STRUCT(gantry_reply);
	F(gantry_reply, status);
	F(gantry_reply, len_bytes);
	F(gantry_reply, text);
	F(gantry_reply, data);
	STRUCT(gantry_reply_handle);
	F(gantry_reply_handle, handle);
	STRUCT(gantry_reply_kernel);
	F(gantry_reply_kernel, handle);
	F(gantry_reply_kernel, nargs);
	F(gantry_reply_kernel, args_bytes);
	F(gantry_reply_kernel, flags);
	F(gantry_reply_kernel, kinds);
	STRUCT(gantry_reply_queue);
	F(gantry_reply_queue, handle);
	F(gantry_reply_queue, slot);
	F(gantry_reply_queue, reserved);
	F(gantry_reply_queue, next_seq);
	STRUCT(gantry_reply_buffer);
	F(gantry_reply_buffer, handle);
	F(gantry_reply_buffer, bytes);
	F(gantry_reply_buffer, heap_off);
	F(gantry_reply_buffer, alloc_flags);
	F(gantry_reply_buffer, slot);
	F(gantry_reply_buffer, rights);
	F(gantry_reply_buffer, is_dying);
	STRUCT(gantry_reply_queue_state);
	F(gantry_reply_queue_state, handle);
	F(gantry_reply_queue_state, slot);
	F(gantry_reply_queue_state, kind);
	F(gantry_reply_queue_state, priority);
	F(gantry_reply_queue_state, reserved);
	STRUCT(gantry_reply_props);
	F(gantry_reply_props, ndevices);
	F(gantry_reply_props, kinds);
	F(gantry_reply_props, lanes);
	F(gantry_reply_props, flags);
	F(gantry_reply_props, mem_bytes);
	F(gantry_reply_props, virtual_bytes);
	F(gantry_reply_props, heap_bytes);
	F(gantry_reply_props, nqueues);
	F(gantry_reply_props, nslots);
	F(gantry_reply_props, window_us);
	F(gantry_reply_props, priority_max);
	F(gantry_reply_props, name);
	STRUCT(gantry_reply_stats);
	F(gantry_reply_stats, tasks_finished);
	F(gantry_reply_stats, tasks_failed);
	F(gantry_reply_stats, device_ns);
	F(gantry_reply_stats, bytes_in);
	F(gantry_reply_stats, bytes_out);
	F(gantry_reply_stats, virtual_bytes);
	F(gantry_reply_stats, resident_bytes);
	F(gantry_reply_stats, resident_peak_bytes);
	F(gantry_reply_stats, worker_restarts);
}

static void print_hello_and_welcome(void)
{
	STRUCT(gantry_door_header);
	F(gantry_door_header, magic);
	F(gantry_door_header, kind);
	F(gantry_door_header, reserved);
	F(gantry_door_header, len_bytes);
	F(gantry_door_header, tag);
	STRUCT(gantry_door_hello);
	F(gantry_door_hello, h);
	F(gantry_door_hello, version_min);
	F(gantry_door_hello, version_max);
	F(gantry_door_hello, heap_bytes);
	F(gantry_door_hello, virtual_bytes);
	F(gantry_door_hello, mem_bytes);
	F(gantry_door_hello, nqueues);
	F(gantry_door_hello, nslots);
	F(gantry_door_hello, flags);
	F(gantry_door_hello, pid);
	F(gantry_door_hello, nonce);
	F(gantry_door_hello, name);
	STRUCT(gantry_door_welcome);
	F(gantry_door_welcome, h);
	F(gantry_door_welcome, version);
	F(gantry_door_welcome, props);
	F(gantry_door_welcome, session_id);
	F(gantry_door_welcome, segment_bytes);
	F(gantry_door_welcome, address);
	F(gantry_door_welcome, nqueues);
	F(gantry_door_welcome, nslots);
	F(gantry_door_welcome, nonce);
}

static void print_other_messages(void)
{
	STRUCT(gantry_door_refuse);
	F(gantry_door_refuse, h);
	F(gantry_door_refuse, status);
	F(gantry_door_refuse, version_min);
	F(gantry_door_refuse, version_max);
	F(gantry_door_refuse, reserved);
	F(gantry_door_refuse, text);
	STRUCT(gantry_door_share);
	F(gantry_door_share, h);
	F(gantry_door_share, buffer);
	F(gantry_door_share, mode);
	F(gantry_door_share, reserved);
	STRUCT(gantry_door_shared);
	F(gantry_door_shared, h);
	F(gantry_door_shared, status);
	F(gantry_door_shared, reserved);
	F(gantry_door_shared, token);
	STRUCT(gantry_door_adopt);
	F(gantry_door_adopt, h);
	F(gantry_door_adopt, token);
	STRUCT(gantry_door_adopted);
	F(gantry_door_adopted, h);
	F(gantry_door_adopted, status);
	F(gantry_door_adopted, mode);
	F(gantry_door_adopted, buffer);
	F(gantry_door_adopted, bytes);
	STRUCT(gantry_door_key);
	F(gantry_door_key, h);
	F(gantry_door_key, reserved);
	STRUCT(gantry_door_keyed);
	F(gantry_door_keyed, h);
	F(gantry_door_keyed, status);
	F(gantry_door_keyed, reserved);
	F(gantry_door_keyed, key);
	STRUCT(gantry_door_missing);
	F(gantry_door_missing, h);
	F(gantry_door_missing, calls);
	F(gantry_door_missing, name);
	STRUCT(gantry_door_noted);
	F(gantry_door_noted, h);
	F(gantry_door_noted, status);
	F(gantry_door_noted, reserved);
}

static void print_operations(void)
{
	for (size_t i = 0; i < gantry_op_count; i++) {
		const struct gantry_op_info *op = &gantry_op_table[i];
		size_t off = 0;

		printf("operation %u since %u flags %u\n", op->id, op->since, op->flags);
		begin_struct(op->name, op->imm_bytes);
		for (uint32_t j = 0; j < op->nfields; j++) {
			field(op->fields[j].name, off, op->fields[j].len_bytes);
			printf("    %s\n", op->fields[j].rule);
			off += op->fields[j].len_bytes;
		}
	}
	end_struct();
}

static void print_words(void)
{
#define STATUS(name, value, text) printf("GANTRY_E_%s %d\n", #name, value);
	GANTRY_STATUS_LIST(STATUS)
#undef STATUS
	for (int i = 0; i < GANTRY_NKINDS; i++)
		printf("kind %d %s\n", i, gantry_kind_name(i));
	printf("handle %#llx\n", (unsigned long long)GANTRY_HANDLE(1, 2, 3));
	printf("ticket %#llx\n", (unsigned long long)GANTRY_TICKET(1, 2));
	NUMBER(GANTRY_R);
	NUMBER(GANTRY_W);
	NUMBER(GANTRY_RW);
	NUMBER(GANTRY_C);
	NUMBER(GANTRY_HANDLE_BUFFER);
	NUMBER(GANTRY_HANDLE_KERNEL);
	NUMBER(GANTRY_HANDLE_IMAGE);
	NUMBER(GANTRY_HANDLE_QUEUE);
	NUMBER(GANTRY_ALLOC_HOST);
	NUMBER(GANTRY_ALLOC_DEVICE);
	NUMBER(GANTRY_ALLOC_SHARED);
	NUMBER(GANTRY_ALLOC_FIXED);
	NUMBER(GANTRY_ALLOC_OUTPUT);
	NUMBER(GANTRY_TASK_IDEMPOTENT);
	NUMBER(GANTRY_TASK_TOGETHER);
	NUMBER(GANTRY_TASK_CLUSTER(1, 2, 3));
	NUMBER(GANTRY_QUEUE_PRIORITY);
	NUMBER(GANTRY_QUEUE_DEVICE_MASK);
	NUMBER(GANTRY_QUEUE_WINDOW_US);
	NUMBER(GANTRY_QUEUE_FAIL_STOP);
	NUMBER(GANTRY_QUEUE_PAUSED);
}

static void print_numbers(void)
{
	NUMBER(GANTRY_WIRE_MAGIC);
	NUMBER(GANTRY_MAX_QUEUES);
	NUMBER(GANTRY_MIN_SLOTS);
	NUMBER(GANTRY_MAX_SLOTS);
	NUMBER(GANTRY_MAX_ACCESSES);
	NUMBER(GANTRY_MAX_ARGS_BYTES);
	NUMBER(GANTRY_MAX_NAME);
	NUMBER(GANTRY_MAX_SIGNATURE);
	NUMBER(GANTRY_MAX_BUFFER_BYTES);
	NUMBER(GANTRY_MAX_IMAGE_BYTES);
	NUMBER(GANTRY_MAX_VAR_BYTES);
	NUMBER(GANTRY_SEGMENT_MIN_BYTES);
	NUMBER(GANTRY_SEGMENT_MAX_BYTES);
	NUMBER(GANTRY_DESC_INLINE);
	NUMBER(GANTRY_ARG_NONE);
	NUMBER(GANTRY_PROP_HOST_DIRECT);
	NUMBER(GANTRY_PROP_TRANSLATED);
	NUMBER(GANTRY_SESSION_STARTING);
	NUMBER(GANTRY_SESSION_ATTACHED);
	NUMBER(GANTRY_SESSION_RECOVERING);
	NUMBER(GANTRY_SESSION_DETACHED);
	NUMBER(GANTRY_QUEUE_CLOSED);
	NUMBER(GANTRY_QUEUE_OPEN);
	NUMBER(GANTRY_QUEUE_CLOSING);
	NUMBER(GANTRY_DOOR_MAGIC);
	NUMBER(GANTRY_DOOR_HELLO);
	NUMBER(GANTRY_DOOR_WELCOME);
	NUMBER(GANTRY_DOOR_REFUSE);
	NUMBER(GANTRY_DOOR_SHARE);
	NUMBER(GANTRY_DOOR_SHARED);
	NUMBER(GANTRY_DOOR_ADOPT);
	NUMBER(GANTRY_DOOR_ADOPTED);
	NUMBER(GANTRY_DOOR_NOTICE);
}

static void print_doormem(void)
{
	NUMBER(GANTRY_DOORMEM_VERSION);
	NUMBER(GANTRY_DOORMEM_DESKS);
	NUMBER(GANTRY_DOORMEM_HOST_PEER);
	NUMBER(GANTRY_DOORMEM_OWN_PEER);
	NUMBER(GANTRY_DOORMEM_BELL_VECTOR);
	NUMBER(GANTRY_DOORMEM_MAX_VECTORS);
	NUMBER(GANTRY_DOORMEM_ABSENT);
	NUMBER(GANTRY_DOORMEM_OPEN);
	NUMBER(GANTRY_DOORMEM_DRAIN);
	NUMBER(GANTRY_DOORMEM_CLOSED);
	NUMBER(GANTRY_WAKE_POLL);
	NUMBER(GANTRY_WAKE_MSIX);
	NUMBER(GANTRY_WAKE_BYTE);
	STRUCT(gantry_doormem_header);
	F(gantry_doormem_header, magic);
	F(gantry_doormem_header, version);
	F(gantry_doormem_header, ndesks);
	F(gantry_doormem_header, desks_off);
	F(gantry_doormem_header, data_off);
	F(gantry_doormem_header, bytes);
	F(gantry_doormem_header, epoch);
	F(gantry_doormem_header, nvectors);
	F(gantry_doormem_header, host_peer);
	F(gantry_doormem_header, pad0);
	F(gantry_doormem_header, state);
	F(gantry_doormem_header, heartbeat);
	F(gantry_doormem_header, pad1);
	F(gantry_doormem_header, departures);
	F(gantry_doormem_header, pad2);
	STRUCT(gantry_doormem_desk);
	F(gantry_doormem_desk, generation);
	F(gantry_doormem_desk, boot_id);
	F(gantry_doormem_desk, pid);
	F(gantry_doormem_desk, uid);
	F(gantry_doormem_desk, wake);
	F(gantry_doormem_desk, mapping);
	F(gantry_doormem_desk, read_mib_per_s);
	F(gantry_doormem_desk, write_mib_per_s);
	F(gantry_doormem_desk, wake_vector);
	F(gantry_doormem_desk, pad0);
	F(gantry_doormem_desk, lock_space);
	F(gantry_doormem_desk, progress);
	F(gantry_doormem_desk, posted);
	F(gantry_doormem_desk, host_taken);
	F(gantry_doormem_desk, notice_taken);
	F(gantry_doormem_desk, pad1);
	F(gantry_doormem_desk, served);
	F(gantry_doormem_desk, host_posted);
	F(gantry_doormem_desk, taken);
	F(gantry_doormem_desk, notice_posted);
	F(gantry_doormem_desk, bell_vector);
	F(gantry_doormem_desk, segment_off);
	F(gantry_doormem_desk, host_wake);
	F(gantry_doormem_desk, pad2);
	F(gantry_doormem_desk, pad3);
	F(gantry_doormem_desk, guest_box);
	F(gantry_doormem_desk, host_box);
	F(gantry_doormem_desk, notice_box);
	F(gantry_doormem_desk, pad4);
	end_struct();
}

int main(void)
{
	printf("# The wire format, versions %u to %u. A change here is a new version: see SPEC.md.\n",
	       GANTRY_WIRE_VERSION_MIN, GANTRY_WIRE_VERSION_MAX);
	print_numbers();
	print_words();
	print_header();
	print_ring();
	print_replies();
	print_hello_and_welcome();
	print_other_messages();
	print_operations();
	print_doormem();
	return holes;
}
