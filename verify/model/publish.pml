/* SPDX-License-Identifier: Apache-2.0
 * publish: every rank's rows go to every rank. SHARING: each block sums its lines over the ranks and hands them to the rank's
 * other blocks through `reduced`, where a line of fp32 sums is as long as RANKS lines here.
 */
#ifdef SHARING
#define SUMMED 2
#define sum_at(other, row, half) at(SUMMED, rank, slot_of(epoch), other, row, block, half)
#endif
#include "wave.pml"
