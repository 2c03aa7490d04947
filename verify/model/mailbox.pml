/* SPDX-License-Identifier: Apache-2.0
 * The mailboxes of src/protocol, the ring, the consumer and the properties: what every mode shares. docs/proof.md says what this
 * covers and what it leaves out.
 *
 * Data is abstracted to call numbers: a word holds ARMED, or the number of the call that wrote it. Calls count from 1, so call n
 * finds epoch n - 1. A row has one line a block of the tail, a line HALVES words, which arrive one by one.
 *
 * One word is watched, any one: the search begins with the choice. A store to it arrives at any time between its issue and the end
 * of its launch, in no order with the launch's other stores, which arrive at once. That is enough: each property speaks of one
 * word, and all that a wait wants of the others is that they are there.
 */
#ifndef ROWS
#define ROWS 1 /* of the largest batch */
#endif
#ifndef HALVES
#define HALVES 1
#endif
#ifdef MOETAIL_WITHOUT_THIRD_SLOT
#define SLOTS 2
#else
#define SLOTS 3
#endif

/* Properties. "Every call ends" is the fifth: when nothing moves any more, every process is at its end. */
#define STALE 1   /* no stale word is taken for new */
#define ERASED 2  /* no fresh word is erased */
#define REARMED 4 /* a word is armed before it is published */
#define SAME 8    /* all ranks see the same output rows */
#ifndef CHECKS
#define CHECKS 15
#endif
#define property(kind, condition) assert(!(CHECKS & (kind)) || (condition))

/* Loop variables: not part of the state, since no loop outlives a step. */
hidden byte i, row, half, line, source, peer, named;

/* --- boxes ----------------------------------------------------------------------------------------------- */

#define ARMED 0
#define WRONG 255 /* the output of a sum that took a word of another call */

/* Where a word is: in the mailbox of `source` on `rank`. */
#define at(region, rank, slot, source, row, line, half) \
  (((((((region) * RANKS + (rank)) * SLOTS + (slot)) * RANKS + (source)) * ROWS + (row)) * BLOCKS + (line)) * HALVES + (half))
#define HEADERS_AT (REGIONS * RANKS * SLOTS * RANKS * ROWS * BLOCKS * HALVES)
#define header_at(rank, slot, source, half) (HEADERS_AT + (((rank) * SLOTS + (slot)) * RANKS + (source)) * HALVES + (half))
#define OUT_AT (HEADERS_AT + RANKS * SLOTS * RANKS * HALVES)
#define out_at(rank, source, row, line, half) \
  (OUT_AT + ((((rank) * RANKS + (source)) * ROWS + (row)) * BLOCKS + (line)) * HALVES + (half))
#define WORDS (OUT_AT + RANKS * RANKS * ROWS * BLOCKS * HALVES)
#define row_of(where) ((where) < HEADERS_AT -> (where) / (BLOCKS * HALVES) % ROWS : 0)

byte word[WORDS];
short watched;
inline announce_watched() {
  if
  :: watched < HEADERS_AT ->
    printf("watched: region %d of rank %d, slot %d, from rank %d, row %d, line %d, word %d\n",
           watched / (HEADERS_AT / REGIONS), watched / (HEADERS_AT / REGIONS / RANKS) % RANKS,
           watched / (RANKS * ROWS * BLOCKS * HALVES) % SLOTS, watched / (ROWS * BLOCKS * HALVES) % RANKS,
           row_of(watched), watched / HALVES % BLOCKS, watched % HALVES)
  :: watched >= HEADERS_AT && watched < OUT_AT ->
    printf("watched: header of rank %d, slot %d, from rank %d, word %d\n", (watched - HEADERS_AT) / (SLOTS * RANKS * HALVES),
           (watched - HEADERS_AT) / (RANKS * HALVES) % SLOTS, (watched - HEADERS_AT) / HALVES % RANKS,
           (watched - HEADERS_AT) % HALVES)
  :: watched >= OUT_AT ->
    printf("watched: out of rank %d, from rank %d, row %d, line %d, word %d\n",
           (watched - OUT_AT) / (RANKS * ROWS * BLOCKS * HALVES), (watched - OUT_AT) / (ROWS * BLOCKS * HALVES) % RANKS,
           (watched - OUT_AT) / (BLOCKS * HALVES) % ROWS, (watched - OUT_AT) / HALVES % BLOCKS, (watched - OUT_AT) % HALVES)
  fi
}

typedef Control { byte epoch; byte arrivals; byte record[2] }
Control control[RANKS];
byte digest[CALLS + 1]; /* 1 + that of each call's output rows as their first consumer saw them */

/* Ranks are alike, so it is enough to watch the words of rank 0's box, unless one of the ranks strays. */
#ifdef MISMATCH
#define is_watchable true
#else
#define is_watchable                                                                          \
  ((watched < HEADERS_AT -> watched / (HEADERS_AT / REGIONS / RANKS) % RANKS :                \
    (watched < OUT_AT -> (watched - HEADERS_AT) / (SLOTS * RANKS * HALVES) :                  \
     (watched - OUT_AT) / (RANKS * ROWS * BLOCKS * HALVES))) == 0)
#endif

/* --- batches --------------------------------------------------------------------------------------------- */

/* Bit n - 1: call n has two rows. */
#ifdef ALL_BATCHES
byte batches;
#elif ROWS == 2
#ifndef BATCHES
#define BATCHES 9 /* 2, 1, 1, 2 rows: the fourth call meets the slot of the first */
#endif
#define batches BATCHES
#else
#define batches 0
#endif
inline choose_batches() {
#ifdef ALL_BATCHES
  select(batches : 0 .. (1 << CALLS) - 1)
#else
  skip
#endif
}
#define agreed_rows(call) (1 + (batches >> ((call) - 1) & 1))

/* MISMATCH: the last rank passes another batch in this call. The headers tell, and their check ends the call on every rank. */
#ifdef MISMATCH
bool poison[RANKS];
#define rows_of(rank, call) ((rank) == RANKS - 1 && (call) == MISMATCH -> 3 - agreed_rows(call) : agreed_rows(call))
#ifdef MOETAIL_WITHOUT_HEADER_CHECK
#define headers_differ(call) false
#else
#define headers_differ(call) ((call) == MISMATCH)
#endif
inline poison_all() {
  for (peer : 0 .. RANKS - 1) { poison[peer] = true }
}
#else
#define rows_of(rank, call) agreed_rows(call)
#define headers_differ(call) false
#endif

/* --- ring, record, epoch --------------------------------------------------------------------------------- */

#define slot_of(epoch) ((epoch) % SLOTS)
#ifdef MOETAIL_WITHOUT_REARM_SLOT
#define rearm_slot_of(epoch) (((epoch) + 1) % SLOTS)
#else
#define rearm_slot_of(epoch) (((epoch) + SLOTS - 1) % SLOTS)
#endif

#ifdef MOETAIL_WITHOUT_TWO_RECORDS
#define record_of(epoch) 0
#define previous_record_of(epoch) 0
#else
#define record_of(epoch) ((epoch) % 2)
#define previous_record_of(epoch) (((epoch) + 1) % 2)
#endif

/* Rows that a call re-arms. 0: there was no call before. */
#define recorded_rows(rank, epoch) control[rank].record[previous_record_of(epoch)]
#ifdef MOETAIL_WITHOUT_REARM_SIZE
#define rows_to_rearm(rank, epoch, rows) (recorded_rows(rank, epoch) > rows -> rows : recorded_rows(rank, epoch))
#else
#define rows_to_rearm(rank, epoch, rows) recorded_rows(rank, epoch)
#endif

/* A block arrives when its polls are over; with ARRIVES_EARLY as soon as it has read the control words, which is right where no other launch
 * of its call reads them. The first to arrive leaves the record, the last one advances the epoch. */
inline finish_call() {
  if
  :: control[rank].arrivals == 0 -> control[rank].record[record_of(epoch)] = rows
  :: else
  fi;
  control[rank].arrivals++;
#ifndef MOETAIL_WITHOUT_EPOCH_ADVANCE
  if
#ifdef MOETAIL_WITHOUT_LAST_ARRIVAL
  :: control[rank].arrivals == 1 -> control[rank].epoch = epoch + 1
#else
  :: control[rank].arrivals == BLOCKS -> control[rank].epoch = epoch + 1
#endif
  :: else
  fi;
#endif
  control[rank].arrivals = control[rank].arrivals % BLOCKS
}

#ifdef ARRIVES_EARLY
#define finish_early() finish_call()
#define finish_late() skip
#else
#define finish_early() skip
#define finish_late() finish_call()
#endif

/* --- stores ---------------------------------------------------------------------------------------------- */

#define REARM 254 /* what is on its way to the watched word, if not data */

inline put(where, what) {
  property(REARMED, word[where] == ARMED);
  word[where] = what
}
inline publish(where, what) {
  if
  :: where == watched -> assert(flying == 0); flying = what
  :: else -> put(where, what)
  fi
}

/* `newest`: the last call whose words may go. */
inline clear(where, newest) {
  property(ERASED, word[where] <= newest || word[where] == WRONG);
  word[where] = ARMED
}
inline rearm(where, newest) {
  if
  :: where == watched -> assert(flying == 0); flying = REARM
  :: else -> clear(where, newest)
  fi
}

/* The store to the watched word arrives. A re-arm may have read the record as late as now: `named` rows are to be re-armed. */
inline arrive(newest) {
  if
  :: flying == REARM && row_of(watched) < named ->
    printf("rank %d, block %d, call %d: re-arms the watched word, which holds %d\n", rank, block, call, word[watched]);
    clear(watched, newest)
  :: flying == REARM && row_of(watched) >= named ->
    printf("rank %d, block %d, call %d: the record does not name the watched word\n", rank, block, call)
  :: flying != REARM ->
    printf("rank %d, block %d, call %d: writes %d into the watched word, which holds %d\n", rank, block, call, flying, word[watched]);
    put(watched, flying)
  fi;
  flying = 0
}

/* --- polls ----------------------------------------------------------------------------------------------- */

/* What a poll may find from the start of its launch on: it may look then, and will take what is not ARMED. */
inline expect(where) { property(STALE, word[where] == ARMED || word[where] == call) }

inline take(where) {
  property(STALE, word[where] == call);
  if
  :: word[where] != call -> value = WRONG
  :: else
  fi
}

#if HALVES == 2 && !defined(MOETAIL_WITHOUT_EVERY_WORD)
#define here(where) (word[where] != ARMED && word[(where) + 1] != ARMED)
#else
#define here(where) (word[where] != ARMED)
#endif

/* WHERE(source, row, line) has come from every rank, in all rows of the batch, for one line; for all lines. */
#if RANKS == 3
#define from_all(WHERE, row, line) (here(WHERE(0, row, line)) && here(WHERE(1, row, line)) && here(WHERE(2, row, line)))
#else
#define from_all(WHERE, row, line) (here(WHERE(0, row, line)) && here(WHERE(1, row, line)))
#endif
#if ROWS == 2
#define line_here(WHERE, line) (from_all(WHERE, 0, line) && (rows < 2 || from_all(WHERE, 1, line)))
#else
#define line_here(WHERE, line) from_all(WHERE, 0, line)
#endif
#if BLOCKS == 2
#define rows_here(WHERE) (line_here(WHERE, 0) && line_here(WHERE, 1))
#else
#define rows_here(WHERE) line_here(WHERE, 0)
#endif

/* The same words, one by one. */
#define in_line(DO, WHERE, line)             \
  for (source : 0 .. RANKS - 1) {            \
    for (row : 0 .. rows - 1) {              \
      for (half : 0 .. HALVES - 1) {         \
        DO(WHERE(source, row, line) + half)  \
      }                                      \
    }                                        \
  }
#define in_rows(DO, WHERE) \
  for (line : 0 .. BLOCKS - 1) { in_line(DO, WHERE, line) }

#define my_shared(source, row, line) at(SHARED, rank, slot_of(epoch), source, row, line, 0)
#define my_out(source, row, line) out_at(rank, source, row, line, 0)

/* Headers are block 0's to wait for and to compare. */
#define my_header(source, row, line) header_at(rank, slot_of(epoch), source, 0)
#define headers_here() (block != 0 || (from_all(my_header, 0, 0) && !headers_differ(call)))
#define in_headers(DO)                                                                     \
  for (source : 0 .. (block == 0 -> RANKS : 0) - 1) {                                      \
    for (half : 0 .. HALVES - 1) { DO(header_at(rank, slot_of(epoch), source, half)) }     \
  }

/* This block's columns of the output, to every rank. */
inline publish_out() {
  for (peer : 0 .. RANKS - 1) {
    for (half : 0 .. HALVES - 1) {
      for (row : 0 .. rows - 1) { publish(out_at(peer, rank, row, block, half), value) }
    }
  }
}

/* --- launches -------------------------------------------------------------------------------------------- */

/* How many blocks of each kind of launch are complete, over all calls: what a successor in the stream waits for. Without the
 * dependency wait it goes on as soon as every block has triggered, and a block may do that first of all. A block ends as early as
 * it can: nobody sees its end but a successor, and that may begin as late as it likes. */
byte taken[RANKS];
byte tails[RANKS];
#ifdef MOETAIL_WITHOUT_DEPENDENCY_WAIT
#define begins(counter) counter++
#define ends(counter) skip
#else
#define begins(counter) skip
#define ends(counter) counter++
#endif

/* The consumer: copies the output rows and re-arms them. */
#define digest_of(where) take(where); seen = (seen * 5 + value) % 251
#define rearm_out(where) rearm(where, call)

inline end_take() {
  if
  :: flying == 0 -> ends(taken[rank])
  :: else
  fi;
  value = 0
}

proctype Take(byte rank) {
  byte call, rows, flying, value, seen, block;
  do
  :: call == CALLS && rows == 0 && flying == 0 -> break
  :: d_step {
      call < CALLS && rows == 0 && flying == 0 && TAKE_AFTER(rank, call + 1) ->
      begins(taken[rank]);
      call++;
      rows = rows_of(rank, call);
      in_rows(expect, my_out);
      printf("rank %d, call %d: the consumer begins, %d rows\n", rank, call, rows)
    }
  :: d_step {
      rows > 0 && rows_here(my_out) ->
      value = call;
      in_rows(digest_of, my_out);
      property(SAME, digest[call] == 0 || digest[call] == seen + 1);
      digest[call] = seen + 1;
      in_rows(rearm_out, my_out);
      printf("rank %d, call %d: the consumer takes its rows\n", rank, call);
      seen = 0; rows = 0;
      end_take()
    }
  :: d_step { flying -> named = ROWS; arrive(call); end_take() }
#ifdef MISMATCH
  :: d_step { poison[rank] && !flying -> rows = 0; call = 0 }; break
#endif
  od
}
