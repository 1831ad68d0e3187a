/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wake-ups of a ring (proto/ring.h), on a machine with store buffers as x86 has them (TSO).
 *
 * Each side's stores wait in a buffer of its own and reach memory later, in order, one by one; its loads
 * see its own buffered stores and else memory. A fence or a read-modify-write waits until its side's
 * buffer is empty. This is the model of Owens, Sarkar and Sewell (x86-TSO, 2009).
 *
 *   guest: fill, tail; FENCE_PUT;  read parked: ring the bell?       wait: waiters++; FENCE_WAIT; futex on done
 *   host:  take, done; FENCE_WAKE; read waiters: futex wake?         park: parked; FENCE_PARK; read tail; sleep
 *
 * The guest puts TASKS tasks, one after the other, and waits for each; a second thread of it waits for the last. The host takes, finishes and parks. If
 * either can sleep for ever with the other asleep or gone, the end is invalid and the search reports it
 * (no time-outs here: the real waits have them, and should never need them).
 *
 * The futex compares and sleeps as one step, against memory; a wake-up before the sleep is lost, as in the kernel.
 * The bell is an eventfd: a ring is kept until it is read. Compiled with -DNO_FENCE_..., a fence is left out:
 * each of these must fail.
 */
#ifndef TASKS
#define TASKS 2
#endif

#ifdef NO_FENCE_PUT
#define FENCE_PUT skip
#else
#define FENCE_PUT fence(GUEST)
#endif
#ifdef NO_FENCE_PARK
#define FENCE_PARK skip
#else
#define FENCE_PARK fence(HOST)
#endif
#ifdef NO_FENCE_WAKE
#define FENCE_WAKE skip
#else
#define FENCE_WAKE fence(HOST)
#endif

#define GUEST 0
#define HOST 1

/* Words of memory. waiters is changed by locked instructions only. */
#define TAIL 0
#define DONE 1
#define PARKED 2
#define WAITERS 3

byte memory[4];

/* One store buffer a side. Three are more than either side ever has waiting between fences. */
#define DEPTH 4
chan buffer_guest = [DEPTH] of { byte, byte };
chan buffer_host = [DEPTH] of { byte, byte };

bool bell;            /* the eventfd's count is not 0 */
bool guest_sleeps;    /* on the futex word done */
bool waiter_sleeps;   /* the other thread, on the same */

/* Where a side's own latest store of a word is still buffered, what it would read. */
byte own_guest[4];
byte nbuffered_guest[4];
byte own_host[4];
byte nbuffered_host[4];

inline fence(side)
{
	if
	:: side == GUEST -> empty(buffer_guest)
	:: else -> empty(buffer_host)
	fi
}

inline store_guest(word, value)
{
	atomic {
		nfull(buffer_guest) -> buffer_guest!word, value;
		own_guest[word] = value;
		nbuffered_guest[word]++
	}
}

inline store_host(word, value)
{
	atomic {
		nfull(buffer_host) -> buffer_host!word, value;
		own_host[word] = value;
		nbuffered_host[word]++
	}
}

#define load_guest(word) (nbuffered_guest[word] > 0 -> own_guest[word] : memory[word])
#define load_host(word) (nbuffered_host[word] > 0 -> own_host[word] : memory[word])

/* The memory system: takes one store out of a buffer at any time. */
active proctype flush_guest()
{
	byte word, value;

end:
	do
	:: atomic {
		buffer_guest?word, value ->
		memory[word] = value;
		nbuffered_guest[word]--
	   }
	od
}

active proctype flush_host()
{
	byte word, value;

end:
	do
	:: atomic {
		buffer_host?word, value ->
		memory[word] = value;
		nbuffered_host[word]--
	   }
	od
}

/*
 * gantry_ring_wait_enter() and _leave(): a locked add, which waits for the buffer as a fence does. The broken variant
 * stores instead; the guest's first thread is then the only one that is counted.
 */
#ifdef NO_FENCE_WAIT
#define WAIT_ENTER store_guest(WAITERS, 1)
#define WAIT_LEAVE store_guest(WAITERS, 0)
#else
#define WAIT_ENTER atomic { empty(buffer_guest) -> memory[WAITERS] = memory[WAITERS] + 1 }
#define WAIT_LEAVE atomic { empty(buffer_guest) -> memory[WAITERS] = memory[WAITERS] - 1 }
#endif

/* The kernel compares and goes to sleep in one step. Entering it fences nothing. */
inline futex_wait(expected, sleeps)
{
	if
	:: atomic { memory[DONE] == expected -> sleeps = true };
	   !sleeps
	:: memory[DONE] != expected
	fi
}

active proctype guest()
{
	byte put = 0;
	byte seen;

	do
	:: put < TASKS ->
		/* gantry_ring_publish(), gantry_ring_must_kick() */
		put++;
		store_guest(TAIL, put);
		FENCE_PUT;
		if
		:: load_guest(PARKED) -> atomic { empty(buffer_guest) -> bell = true }
		:: else
		fi;
		/* gantry_ring_wait_sleep() until it is done */
		WAIT_ENTER;
		do
		:: seen = load_guest(DONE);
		   if
		   :: seen >= put -> break
		   :: else -> futex_wait(seen, guest_sleeps)
		   fi
		od;
		WAIT_LEAVE
	:: else -> break
	od
}

#ifndef NO_FENCE_WAIT
/* Another thread of the guest waits for the last task. It stores nothing but by locked adds. */
active proctype waiter()
{
	byte seen;

	atomic { memory[WAITERS] = memory[WAITERS] + 1 };
	do
	:: seen = memory[DONE];
	   if
	   :: seen >= TASKS -> break
	   :: else -> futex_wait(seen, waiter_sleeps)
	   fi
	od;
	atomic { memory[WAITERS] = memory[WAITERS] - 1 }
}
#endif

active proctype host()
{
	byte head = 0;

	do
	:: load_host(TAIL) > head ->
		/* take, gantry_ring_complete(), gantry_ring_wake() */
		head++;
		store_host(DONE, head);
		FENCE_WAKE;
		if
		:: load_host(WAITERS) > 0 ->
			/* The kernel's wake-up is a locked operation: what was stored before is visible after. */
			atomic {
				empty(buffer_host) ->
				guest_sleeps = false;
				waiter_sleeps = false
			}
		:: else
		fi
	:: load_host(TAIL) == head ->
		/* gantry_ring_park(), a last look, sleep, gantry_ring_unpark() */
		store_host(PARKED, 1);
		FENCE_PARK;
		if
		:: load_host(TAIL) == head ->
end:			atomic { bell -> bell = false }
		:: else
		fi;
		store_host(PARKED, 0)
	od
}
