/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Door memory: the shared memory of a virtual machine's ivshmem device, by which all processes of that
 * machine reach their agent. It stands in for the socket of containers: the messages are door.h's, the
 * segments are wire.h's. SPEC.md section 13 is normative.
 *
 *   0                          struct gantry_doormem_header
 *   desks_off + i * 4096       struct gantry_doormem_desk i, one guest process each, i < ndesks
 *   data_off                   segments of sessions, where the host places them; 2 MiB aligned
 *
 * A desk belongs to the guest process that holds a write lock (F_OFD_SETLK) on byte i of the file that the
 * memory is mapped from. The guest's kernel frees it when the process dies, however it dies: whoever gets
 * the lock finds what a dead one left, and a new claim, or a cleared one, tells the host that the old
 * session is over. A machine that is paused, or slow, holds its locks, and no clock of the host's ends it.
 *
 * Trust: the host believes nothing here, its own fields included, and copies each message once. A guest
 * bounds what it reads. All processes of a machine are one tenant; its kernel keeps them apart, not we.
 * Order: every line has one writing side. Words that say that something else is ready are stored with
 * release and loaded with acquire; no word is the target of a read-modify-write by both sides.
 */
#ifndef GANTRY_PROTO_DOORMEM_H
#define GANTRY_PROTO_DOORMEM_H

#include "proto/door.h"

#define GANTRY_DOORMEM_MAGIC	   0x314d444e41474e47ull
#define GANTRY_DOORMEM_VERSION	   1u
#define GANTRY_DOORMEM_DESKS	   64u
#define GANTRY_DOORMEM_DESK_BYTES  4096u
#define GANTRY_DOORMEM_MIN_BYTES   (4ull << 20) /* a power of two: it is a PCI BAR */
#define GANTRY_DOORMEM_MAX_BYTES   (64ull << 30)
#define GANTRY_DOORMEM_MESSAGE	   256u
#define GANTRY_DOORMEM_HOST_PEER   1u /* the host's ivshmem id; a guest reads it from the header */
#define GANTRY_DOORMEM_OWN_PEER	   0u /* the machine's: QEMU migrates the device of no other */
#define GANTRY_DOORMEM_BELL_VECTOR 0u /* of the host's: a desk has news. Sessions' bells: WELCOME */
#define GANTRY_DOORMEM_MAX_VECTORS 16u
#define GANTRY_DOORMEM_NO_VECTOR   0xffffffffu

enum gantry_doormem_state {
	GANTRY_DOORMEM_ABSENT = 0, /* what an unplugged device reads as */
	GANTRY_DOORMEM_OPEN = 1,
	GANTRY_DOORMEM_DRAIN = 2,  /* no new claims are served; the device is about to go */
	GANTRY_DOORMEM_CLOSED = 3, /* for good; a device attached later has other memory */
};

struct gantry_doormem_header {
	/* line 0, host, constant */
	uint64_t magic;
	uint32_t version;
	uint32_t ndesks;
	uint64_t desks_off;
	uint64_t data_off;
	uint64_t bytes;	   /* of the whole */
	uint64_t epoch;	   /* never the same for two door memories of an agent's host */
	uint32_t nvectors; /* of the host's peer: doorbells 0 to nvectors - 1 may be rung */
	uint32_t
		host_peer; /* whose doorbells those are; 0 where an older host made the memory, and the machine is 1 there */
	uint8_t pad0[8];
	/* line 1, host */
	uint32_t state; /* enum gantry_doormem_state */
	uint32_t
		heartbeat; /* grows about once a second while an agent serves; for diagnosis, ends nothing */
	uint8_t pad1[56];
	/*
	 * line 2, guests. Whoever holds the device by vfio adds 1 before it lets go because the device is unplugged: the kernel then
	 * switches the memory off and on again, and what others read and write in that moment is lost. Their sessions are over.
	 */
	uint32_t departures;
	uint8_t pad2[60];
};
static_assert(sizeof(struct gantry_doormem_header) == 192, "gantry_doormem_header is wire format");

/* How a guest process is woken; it says so in its claim, the host in its answer. */
enum gantry_doormem_wake {
	GANTRY_WAKE_POLL = 0, /* not at all: it polls, with pauses that grow */
	GANTRY_WAKE_MSIX = 1, /* by an interrupt of the ivshmem device that reaches it (vfio) */
	GANTRY_WAKE_BYTE =
		2, /* by a byte on a channel beside (a virtio-serial port, a vsock stream) */
};

/*
 * A channel: a stream of bytes beside the memory, a virtio-serial port for one. Its guest says hello once it is its own; the
 * host answers with a number, which the claim names, and from then on sends bytes to wake by, of any value.
 */
#define GANTRY_WAKE_PORT_NAME "org.gantry.wake" /* a port's name begins so */
#define GANTRY_WAKE_MAGIC     0x4b574e47u	/* no byte to wake by looks like its beginning */
#define GANTRY_WAKE_BYTE_SENT 1u

struct gantry_wake_hello {
	uint32_t magic;
	uint32_t reserved;
	uint64_t epoch; /* of the door memory that is woken for */
	uint64_t nonce; /* anything; the answer repeats it */
};
static_assert(sizeof(struct gantry_wake_hello) == 24, "gantry_wake_hello is wire format");

struct gantry_wake_welcome {
	uint32_t magic;
	uint32_t number; /* for wake_vector of the claim; not 0 */
	uint64_t nonce;
};
static_assert(sizeof(struct gantry_wake_welcome) == 16, "gantry_wake_welcome is wire format");

/* How a guest process has the memory mapped; for administrators. */
enum gantry_doormem_mapping {
	GANTRY_MAPPING_UNKNOWN = 0,
	GANTRY_MAPPING_RESOURCE =
		1, /* sysfs resource2: uncached, unless the hypervisor overrules the guest */
	GANTRY_MAPPING_RESOURCE_WC = 2, /* sysfs resource2_wc: write-combining */
	GANTRY_MAPPING_DEVMEM = 3,	/* /dev/mem: write-back */
	GANTRY_MAPPING_VFIO = 4,
};

/*
 * The claim, and two boxes of one message each. A box is full while its posted differs from the reader's
 * taken of it; the writer fills the message, then stores posted + 1. The reader copies the message, then
 * stores taken = posted. Numbers start at what the claim found and never repeat within a claim.
 */
struct gantry_doormem_desk {
	/* line 0, guest: the claim. Written first, generation last; 0: nobody's */
	uint64_t generation; /* odd for a claim; grows by at least 2 with each claim of this desk */
	uint8_t boot_id[16]; /* of the guest's kernel: claims of another boot are dead */
	uint32_t pid;	     /* as the guest sees itself; for the administrator's eyes only */
	uint32_t uid;
	uint32_t wake;		 /* enum gantry_doormem_wake */
	uint32_t mapping;	 /* enum gantry_doormem_mapping; from WELCOME on */
	uint32_t read_mib_per_s; /* 0: not measured */
	uint32_t write_mib_per_s;
	uint32_t
		wake_vector; /* MSIX: of the guest's own, that the host is to signal; BYTE: the channel */
	uint8_t pad0[4];
	uint64_t lock_space; /* st_dev of the locked file; others cannot judge this claim */
	/* line 1, guest */
	uint64_t
		progress; /* grows while the process uses its session; for diagnosis, ends nothing */
	uint32_t posted;  /* messages put into guest_box */
	uint32_t host_taken; /* messages taken out of host_box */
	uint32_t notice_taken;
	uint8_t pad1[44];
	/* line 2, host */
	uint64_t
		served; /* the generation that the host has seen, or 0: all below is about that one; 0 again at its end */
	uint32_t host_posted;
	uint32_t taken; /* messages taken out of guest_box */
	uint32_t notice_posted;
	uint32_t bell_vector; /* of the session's bell at the host's peer; valid with WELCOME */
	uint64_t segment_off; /* of the session's segment in the door memory; valid with WELCOME */
	uint32_t host_wake;   /* what the host uses of what the claim offered */
	uint8_t pad2[28];
	uint8_t pad3[64];
	/* from 256 */
	uint8_t guest_box[GANTRY_DOORMEM_MESSAGE];  /* guest: HELLO, SHARE, ADOPT */
	uint8_t host_box[GANTRY_DOORMEM_MESSAGE];   /* host: WELCOME, REFUSE, SHARED, ADOPTED */
	uint8_t notice_box[GANTRY_DOORMEM_MESSAGE]; /* host: NOTICE */
	uint8_t pad4[GANTRY_DOORMEM_DESK_BYTES - 256 - 3 * GANTRY_DOORMEM_MESSAGE];
};
static_assert(sizeof(struct gantry_doormem_desk) == GANTRY_DOORMEM_DESK_BYTES,
	      "gantry_doormem_desk is wire format");
static_assert(offsetof(struct gantry_doormem_desk, progress) == 64, "lines have one writer");
static_assert(offsetof(struct gantry_doormem_desk, served) == 128, "lines have one writer");
static_assert(offsetof(struct gantry_doormem_desk, guest_box) == 256, "boxes follow the lines");

#endif
