/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hand-shakes of a share page (host-agent/shared/share.c), with store buffers as in ring.pml.
 *
 *   want:  wants = 1;  FENCE_WANT;  is the lane free?          give: lane = 0;  FENCE_GIVE; who wants? call
 *   sleep: asleep = 1; FENCE_SLEEP; futex on wake, the ticket  call: wake += 1; FENCE_CALL; asleep? futex wake
 *   leave: wants = 0;  FENCE_LEAVE; is the lane free? who wants? call
 *
 *   take:  wants = 0;  FENCE_TAKE;  is another lane free? who wants? call   (with -DNLANES=2)
 *
 * Two workers; each has work TURNS times, and may find, when it is refused, that it has none after
 * all. Worker 0 comes first: worker 1 stands back from a last free lane for it and calls it. Neither may
 * sleep for ever (an invalid end: patience does not exist here), nor may both hold one lane. With two lanes
 * a holder may also keep its own for ever, and the other must still not sleep.
 *
 * Only the compare-and-swap that takes the lane is a locked instruction here. That giving and calling are
 * locked too, on x86, is not relied on. With -DNO_FENCE_... a fence is left out: each of these must fail.
 */
#ifndef TURNS
#define TURNS 2
#endif
#ifndef NLANES
#define NLANES 1
#endif

#define FENCE empty(buffer[me])
#ifdef NO_FENCE_WANT
#define FENCE_WANT skip
#else
#define FENCE_WANT FENCE
#endif
#ifdef NO_FENCE_SLEEP
#define FENCE_SLEEP skip
#else
#define FENCE_SLEEP FENCE
#endif
#ifdef NO_FENCE_GIVE
#define FENCE_GIVE skip
#else
#define FENCE_GIVE FENCE
#endif
#ifdef NO_FENCE_CALL
#define FENCE_CALL skip
#else
#define FENCE_CALL FENCE
#endif
#ifdef NO_FENCE_LEAVE
#define FENCE_LEAVE skip
#else
#define FENCE_LEAVE FENCE
#endif

#ifdef NO_FENCE_TAKE
#define FENCE_TAKE skip
#else
#define FENCE_TAKE FENCE
#endif

/* Words of memory: two lanes, and for each worker three. A lane: 0, or the holder + 1. */
#define LANE(lane) (lane)
#define WANTS(worker) (2 + (worker))
#define WAKE(worker) (4 + (worker))
#define ASLEEP(worker) (6 + (worker))
#define NWORDS 8
#define AT(word) (me * NWORDS + (word))

byte memory[NWORDS];
byte own[16];       /* what each worker stored last, a row of words each ... */
byte nbuffered[16]; /* ... and how often it is still in its buffer */
chan buffer[2] = [4] of { byte, byte };
bool sleeps[2];
byte nholders[2];

inline store(word, value)
{
	atomic {
		nfull(buffer[me]) -> buffer[me]!word, value;
		own[AT(word)] = value;
		nbuffered[AT(word)]++
	}
}

#define load(word) (nbuffered[AT(word)] > 0 -> own[AT(word)] : memory[word])

/* The memory system: takes one store out of a buffer at any time. */
proctype flush(byte me)
{
	byte word, value;

end:
	do
	:: atomic {
		buffer[me]?word, value ->
		memory[word] = value;
		nbuffered[AT(word)]--
	   }
	od
}

/* gantry_share_nudge(): @calls counts, so that each call changes the word; nobody else writes it. */
inline call()
{
	calls++;
	store(WAKE(other), calls);
	FENCE_CALL;
	if
	:: load(ASLEEP(other)) -> atomic { FENCE -> sleeps[other] = false }
	:: else
	fi
}

/* One look at each lane, with whatever happens in between. */
inline count_free()
{
	nfree = 0;
	if
	:: load(LANE(0)) == 0 -> nfree++
	:: else
	fi;
#if NLANES == 2
	if
	:: load(LANE(1)) == 0 -> nfree++
	:: else
	fi
#endif
}

/* call_waiters() */
inline pass_on()
{
	count_free();
	if
	:: nfree > 0 && load(WANTS(other)) -> call()
	:: else
	fi
}

inline futex_wait()
{
	if
	:: atomic { memory[WAKE(me)] == ticket -> sleeps[me] = true };
	   !sleeps[me]
	:: memory[WAKE(me)] != ticket
	fi
}

/* Runs a task, or tasks without end where the other has a lane of its own. */
inline hold()
{
	nholders[lane]++;
	assert(nholders[lane] == 1);
#if NLANES == 2
	store(WANTS(me), 0);
	FENCE_TAKE;
	pass_on();
	if
	:: skip
	:: goto end
	fi;
#else
	store(WANTS(me), 0);
#endif
	nholders[lane]--;
	store(LANE(lane), 0);
	FENCE_GIVE
}

proctype worker(byte me)
{
	byte other = 1 - me;
	byte turns = 0;
	byte calls = 0;
	byte ticket, nfree, lane;

	do
	:: turns == TURNS -> break
	:: else ->
		turns++;
		store(WANTS(me), 1);
		FENCE_WANT;
again:
		ticket = load(WAKE(me));
		count_free();
		if
		:: nfree == 0 -> goto refused
		:: nfree == 1 && other < me && load(WANTS(other)) ->
			call();
			goto refused
		:: else
		fi;
		/* The compare-and-swap of each lane in turn. */
		lane = 0;
		do
		:: lane == NLANES -> goto refused
		:: atomic {
			lane < NLANES && FENCE && memory[LANE(lane)] == 0 ->
			memory[LANE(lane)] = me + 1
		   };
		   break
		:: atomic { lane < NLANES && FENCE && memory[LANE(lane)] != 0 -> lane++ }
		od;
		hold();
		pass_on();
		goto next;
refused:
		if
		:: /* nothing to do after all */
			store(WANTS(me), 0);
			FENCE_LEAVE;
			pass_on()
		:: 	store(ASLEEP(me), 1);
			FENCE_SLEEP;
			futex_wait();
			store(ASLEEP(me), 0);
			goto again
		fi;
next:
		skip
	od;
	goto done;
end:
	false; /* keeps its lane for ever */
done:
	skip
}

init
{
	atomic {
		run flush(0);
		run flush(1);
		run worker(0);
		run worker(1)
	}
}
