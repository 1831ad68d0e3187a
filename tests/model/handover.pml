/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hand-over of work from a source to a sink, around the commit of migration/migrate.h: two processes that each may
 * die at any step and come back with what they had written down, over a link that may lose messages.
 *
 *   sink:   ready:   write READY; say READY to the source
 *   source: release: stop (nobody takes from the ring any more); write GIVEN; only then say GO
 *   sink:   adopt:   on GO: write MINE; run
 *
 *   A source that comes back runs again unless GIVEN is written; without GIVEN it has presumed the abort, and answers NO
 *   for ever. A sink that has READY written and hears nothing asks: GO where GIVEN is written, NO where the source has turned
 *   back (a source that is asked while it has not decided decides: it turns back). A sink that comes back runs only if MINE
 *   is written.
 *
 * Never do both run. And when nobody dies any more and the link works, one runs: the end states say which. With a -D of
 * check_models.py one rule is left out: each of these must fail.
 */
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef LOSSES
#define LOSSES 2
#endif

mtype = { NOTHING, READY, GIVEN, BACK, MINE, GO, NO, ASK };

/* What is written down outlives a process. */
mtype source_wrote = NOTHING;
mtype sink_wrote = NOTHING;
bool source_runs = true;
bool sink_runs = false;
byte deaths = 0;
byte losses = 0;
chan to_sink = [2] of { mtype };
chan to_source = [2] of { mtype };

/* A message that does not fit is lost as well: whoever waits for an answer asks again. */
inline send(link, what)
{
	if
	:: losses < LOSSES -> losses++
	:: nfull(link) -> link!what
	:: full(link) -> skip
	fi
}

#define DIES(where) :: deaths < DEATHS -> deaths++; goto where

/* Everything that only memory held is gone; what runs is what the journal says. */
inline source_returns()
{
	atomic {
		source_runs = false;
#ifdef RETURNS_ANYWAY
		source_runs = true
#else
		if
		:: source_wrote != GIVEN -> source_runs = true
		:: else
		fi
#endif
	}
	if
	:: source_wrote == NOTHING -> source_wrote = BACK /* the migration died with its process */
	:: else
	fi
}

active proctype source()
{
	mtype what;

	do
	:: to_source?what ->
		if
		:: what == READY && source_wrote == NOTHING ->
			/* Copied, drained: release. */
#ifndef RUNS_ON
			source_runs = false;
#endif
			if
			:: skip
			:: source_wrote = BACK; source_runs = true /* cancelled, or it failed */
			DIES(dead)
			fi;
			if
			:: source_wrote == NOTHING ->
#ifdef COMMIT_UNWRITTEN
				send(to_sink, GO);
				if
				:: skip
				DIES(dead)
				fi;
				source_wrote = GIVEN
#else
				source_wrote = GIVEN;
				if
				:: skip
				DIES(dead)
				fi;
				send(to_sink, GO)
#endif
			:: else -> send(to_sink, NO)
			fi
		:: what == READY && source_wrote == GIVEN -> send(to_sink, GO)
		:: what == READY && source_wrote == BACK -> send(to_sink, NO)
		:: what == ASK ->
			if
			:: source_wrote == NOTHING ->
				source_wrote = BACK;
				source_runs = true
			:: else
			fi;
			if
			:: source_wrote == GIVEN -> send(to_sink, GO)
			:: else -> send(to_sink, NO)
			fi
		fi
	:: deaths < DEATHS -> deaths++;
dead:		source_runs = false;
		source_returns()
	:: timeout -> break
	od;
	/* Nothing moves any more. */
	assert(source_runs + sink_runs == 1)
}

/* The source's and its sink's journal never let both run, whatever is in memory. */
active proctype watcher()
{
end:	do
	:: atomic { source_runs && sink_runs -> assert(false) }
	od
}

active proctype sink()
{
	mtype what;

	if
	:: goto end_refused /* prepare() failed, before it wrote anything: the source turns back on its own */
	:: skip
	fi;
#ifndef FORGETS_READY
	sink_wrote = READY;
#endif
	send(to_source, READY);
	do
	:: sink_wrote == READY || sink_wrote == NOTHING ->
		if
		:: to_sink?what ->
			if
			:: what == GO ->
				sink_wrote = MINE;
				if
				:: skip
				DIES(dead)
				fi;
				sink_runs = true
			:: what == NO -> sink_wrote = BACK; goto end_refused
			fi
		:: empty(to_sink) && empty(to_source) -> /* no word: ask */
#ifdef EAGER
			sink_wrote = MINE;
			sink_runs = true
#else
			send(to_source, ASK)
#endif
		:: deaths < DEATHS -> deaths++; goto dead
		fi
	:: sink_wrote == MINE && !sink_runs -> sink_runs = true
	:: sink_wrote == MINE && sink_runs ->
end_runs:	if
		:: to_sink?what
		:: deaths < DEATHS -> deaths++; goto dead
		fi
	:: sink_wrote == BACK -> goto end_refused;
	   /* It comes back: what it had in memory is gone. */
dead:	   sink_runs = false;
#ifdef FORGETS_READY
	   if
	   :: sink_wrote == NOTHING -> goto end_refused
	   :: else
	   fi
#endif
	od;
end_refused:
	do
	:: to_sink?what
	od
}
