/* SPDX-License-Identifier: Apache-2.0
 * The launches of publish.pml and twoshot.pml: publish on the main stream, push on the side stream, then the wave, which polls,
 * hands out its columns of the output and re-arms. The side stream is joined behind the wave, so push and wave overlap.
 *
 * PUSHERS: blocks of a push. EARLY: the wave starts when publish has triggered, and passes its dependency wait after its polls.
 * INPUT: the region that publish fills. SUMMED: a region in which blocks hand their sums on, if the mode has one.
 */
#ifndef PUSHERS
#define PUSHERS 1
#endif

#define INPUT 0
#define SHARED 1
#ifdef SUMMED
#define REGIONS 3
#else
#define REGIONS 2
#endif

byte pushed[RANKS];
byte published[RANKS];
byte triggered[RANKS];

/* What a launch that opens a call waits for. */
#ifdef MOETAIL_WITHOUT_CONSUMER_ORDER
#define CALL_AFTER(rank, call) (tails[rank] >= BLOCKS * ((call) - 1))
#else
#define CALL_AFTER(rank, call) (taken[rank] >= (call) - 1)
#endif
#ifdef MOETAIL_WITHOUT_PUSH_ORDER
#define PUSH_AFTER(rank, call) true
#else
#define PUSH_AFTER(rank, call) CALL_AFTER(rank, call)
#endif
#ifdef EARLY
#define WAVE_AFTER(rank, call) (triggered[rank] >= (call))
#else
#define WAVE_AFTER(rank, call) (published[rank] >= (call))
#endif
#define TAKE_AFTER(rank, call) (tails[rank] >= BLOCKS * (call) && pushed[rank] >= PUSHERS * (call))

#include "mailbox.pml"

#define my_input(source, row, line) at(INPUT, rank, slot_of(epoch), source, row, line, 0)
#ifdef SUMMED
#define my_sums(source, row, line) at(SUMMED, rank, slot_of(epoch), source, row, line, 0)
#else
#define my_sums(source, row, line) my_input(source, row, line)
#endif

inline end_producer(counter) {
  if
  :: flying == 0 -> ends(counter)
  :: else
  fi;
  rows = 0
}

/* --- publish: this rank's rows into INPUT of every rank ----------------------------------------------------- */

proctype Publish(byte rank) {
  byte call, epoch, rows, flying, block;
  do
  :: call == CALLS && flying == 0 -> break
  :: d_step {
      call < CALLS && flying == 0 && CALL_AFTER(rank, call + 1) ->
      begins(published[rank]);
      call++;
      triggered[rank]++;
      rows = rows_of(rank, call);
      epoch = control[rank].epoch;
      for (peer : 0 .. RANKS - 1) {
        for (half : 0 .. HALVES - 1) {
          for (line : 0 .. BLOCKS - 1) {
            for (row : 0 .. rows - 1) { publish(at(INPUT, peer, slot_of(epoch), rank, row, line, half), call) }
          }
        }
      }
      printf("rank %d, call %d: publish begins, epoch %d, %d rows\n", rank, call, epoch, rows);
      epoch = 0;
      end_producer(published[rank])
    }
  :: d_step { flying -> arrive(0); end_producer(published[rank]) }
  od
}

/* --- push: this rank's shared partial to the owners of its columns, and the header --------------------------- */

/* Which part of a push's stores a block has. PUSH_BY_OWNER: each has other owners' columns, so that it may store to peers alone. */
#if PUSHERS == 1
#define is_pushed_here(peer, line) true
#elif defined(PUSH_BY_OWNER)
#define is_pushed_here(peer, line) (peer % PUSHERS == block)
#else
#define is_pushed_here(peer, line) (line % PUSHERS == block)
#endif

proctype Push(byte rank; byte block) {
  byte call, epoch, rows, flying;
  do
  :: call == CALLS && flying == 0 -> break
  :: d_step {
      call < CALLS && flying == 0 && PUSH_AFTER(rank, call + 1) ->
      begins(pushed[rank]);
      call++;
      rows = rows_of(rank, call);
      epoch = control[rank].epoch;
      for (peer : 0 .. RANKS - 1) {
        for (half : 0 .. HALVES - 1) {
          for (line : 0 .. BLOCKS - 1) {
            for (row : 0 .. is_pushed_here(peer, line) * rows - 1) {
              publish(at(SHARED, peer, slot_of(epoch), rank, row, line, half), call)
            }
          }
          if
          :: block == 0 -> publish(header_at(peer, slot_of(epoch), rank, half), call)
          :: else
          fi
        }
      }
      printf("rank %d, block %d, call %d: push begins, epoch %d, %d rows\n", rank, block, call, epoch, rows);
      epoch = 0;
      end_producer(pushed[rank])
    }
  :: d_step { flying -> arrive(0); end_producer(pushed[rank]) }
  od
}

/* --- wave ---------------------------------------------------------------------------------------------------- */

/* This block's line of every source, in the previous call's slot. */
inline rearm_all() {
  for (source : 0 .. RANKS - 1) {
    for (half : 0 .. HALVES - 1) {
      for (row : 0 .. old_rows - 1) {
        for (i : 0 .. REGIONS - 1) { rearm(at(i, rank, rearm_slot_of(epoch), source, row, block, half), call - 1) }
      }
      if
      :: block == 0 && old_rows > 0 -> rearm(header_at(rank, rearm_slot_of(epoch), source, half), call - 1)
      :: else
      fi
    }
  }
}

#ifdef SUMMED
/* This block's line of the sums, to whoever is handed it. */
inline publish_sums() {
  for (peer : 0 .. RANKS - 1) {
    for (half : 0 .. HALVES - 1) {
      for (row : 0 .. rows - 1) { publish(sum_at(peer, row, half), value) }
    }
  }
}
#endif

inline end_wave() {
  if
  :: is_reduced && flying == 0 ->
    is_summed = false; is_reduced = false; epoch = 0; rows = 0; old_rows = 0;
    ends(tails[rank])
  :: else
  fi;
  value = 0
}

proctype Wave(byte rank; byte block) {
  byte call, epoch, rows, old_rows, value, flying;
  bool is_summed, is_reduced;
  do
  :: call == CALLS && rows == 0 -> break
  :: d_step {
      call < CALLS && rows == 0 && WAVE_AFTER(rank, call + 1) ->
      begins(tails[rank]);
      call++;
      rows = rows_of(rank, call);
      epoch = control[rank].epoch;
      old_rows = rows_to_rearm(rank, epoch, rows);
#ifdef SUMMED
      in_line(expect, my_input, block);
      in_rows(expect, my_sums);
#else
      is_summed = true;
      in_rows(expect, my_input);
#endif
      in_line(expect, my_shared, block);
      in_headers(expect);
      rearm_all();
      finish_early();
      printf("rank %d, block %d, call %d: wave begins, epoch %d, %d rows, re-arms %d\n", rank, block, call, epoch, rows, old_rows)
    }
#ifdef SUMMED
  :: d_step {
      rows > 0 && !is_summed && line_here(my_input, block) ->
      is_summed = true;
      value = call;
      in_line(take, my_input, block);
      publish_sums();
      printf("rank %d, block %d, call %d: hands its sums on\n", rank, block, call);
      value = 0
    }
#endif
  :: d_step {
      is_summed && !is_reduced && rows_here(my_sums) && line_here(my_shared, block) && headers_here() &&
          published[rank] >= call ->
      is_reduced = true;
      value = call;
      in_rows(take, my_sums);
      in_line(take, my_shared, block);
      in_headers(take);
      finish_late();
      publish_out();
      printf("rank %d, block %d, call %d: its polls are over\n", rank, block, call);
      end_wave()
    }
  :: d_step { flying -> named = rows_to_rearm(rank, epoch, rows); arrive(call - 1); end_wave() }
  od
}

init {
  byte r, b;
  atomic {
    select(watched : 0 .. WORDS - 1);
    choose_batches();
    announce_watched();
    for (r : 0 .. is_watchable * RANKS - 1) {
      run Publish(r);
      for (b : 0 .. PUSHERS - 1) { run Push(r, b) }
      for (b : 0 .. BLOCKS - 1) { run Wave(r, b) }
      run Take(r)
    }
  }
}
