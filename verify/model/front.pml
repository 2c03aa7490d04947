/* SPDX-License-Identifier: Apache-2.0
 * front: one launch publishes, polls, hands out its columns of the output and re-arms.
 */
#define LATENT 0
#define SHARED 1
#define REGIONS 2

#ifdef MOETAIL_WITHOUT_CONSUMER_ORDER
#define TAIL_AFTER(rank, call) (tails[rank] >= BLOCKS * ((call) - 1))
#else
#define TAIL_AFTER(rank, call) (taken[rank] >= (call) - 1)
#endif
#define TAKE_AFTER(rank, call) (tails[rank] >= BLOCKS * (call))

#include "mailbox.pml"

#define my_latent(source, row, line) at(LATENT, rank, slot_of(epoch), source, row, line, 0)

/* This block's line of the latent row to every rank, and of the shared partial to each owner of its columns; block 0's header. */
inline publish_all() {
  for (peer : 0 .. RANKS - 1) {
    for (half : 0 .. HALVES - 1) {
      for (row : 0 .. rows - 1) {
        publish(at(LATENT, peer, slot_of(epoch), rank, row, block, half), call);
        publish(at(SHARED, peer, slot_of(epoch), rank, row, block, half), call)
      }
      if
      :: block == 0 -> publish(header_at(peer, slot_of(epoch), rank, half), call)
      :: else
      fi
    }
  }
}

/* The same words in the previous call's slot, of every source. */
inline rearm_all() {
  for (source : 0 .. RANKS - 1) {
    for (half : 0 .. HALVES - 1) {
      for (row : 0 .. old_rows - 1) {
        rearm(at(LATENT, rank, rearm_slot_of(epoch), source, row, block, half), call - 1);
        rearm(at(SHARED, rank, rearm_slot_of(epoch), source, row, block, half), call - 1)
      }
      if
      :: block == 0 && old_rows > 0 -> rearm(header_at(rank, rearm_slot_of(epoch), source, half), call - 1)
      :: else
      fi
    }
  }
}

inline end_tail() {
  if
  :: is_reduced && flying == 0 -> is_reduced = false; epoch = 0; rows = 0; old_rows = 0; ends(tails[rank])
  :: else
  fi;
  value = 0
}

proctype Tail(byte rank; byte block) {
  byte call, epoch, rows, old_rows, value, flying;
  bool is_reduced;
  do
  :: call == CALLS && rows == 0 -> break
  :: d_step {
      call < CALLS && rows == 0 && TAIL_AFTER(rank, call + 1) ->
      begins(tails[rank]);
      call++;
      rows = rows_of(rank, call);
      epoch = control[rank].epoch;
      old_rows = rows_to_rearm(rank, epoch, rows);
      in_rows(expect, my_latent);
      in_line(expect, my_shared, block);
      in_headers(expect);
      publish_all();
      rearm_all();
      finish_early();
      printf("rank %d, block %d, call %d: tail begins, epoch %d, %d rows, re-arms %d\n", rank, block, call, epoch, rows, old_rows)
    }
  :: d_step {
      rows > 0 && !is_reduced && rows_here(my_latent) && line_here(my_shared, block) && headers_here() ->
      is_reduced = true;
      value = call;
      in_rows(take, my_latent);
      in_line(take, my_shared, block);
      in_headers(take);
      finish_late();
      publish_out();
      printf("rank %d, block %d, call %d: its polls are over\n", rank, block, call);
      end_tail()
    }
  :: d_step { flying -> named = rows_to_rearm(rank, epoch, rows); arrive(call - 1); end_tail() }
#ifdef MISMATCH
  :: d_step {
      rows > 0 && block == 0 && !poison[rank] && headers_differ(call) && from_all(my_header, 0, 0) ->
      poison_all();
      printf("rank %d, call %d: the headers differ\n", rank, call)
    }
  :: d_step { poison[rank] && !flying -> rows = 0; old_rows = 0; epoch = 0; is_reduced = false; call = 0 }; break
#endif
  od
}

init {
  byte r, b;
  atomic {
    select(watched : 0 .. WORDS - 1);
    choose_batches();
    announce_watched();
    for (r : 0 .. is_watchable * RANKS - 1) {
      for (b : 0 .. BLOCKS - 1) { run Tail(r, b) }
      run Take(r)
    }
  }
}
