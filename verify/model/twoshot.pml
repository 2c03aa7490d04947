/* SPDX-License-Identifier: Apache-2.0
 * twoshot: each column chunk of a rank's rows goes to its owner, which sums it over the ranks and hands the sum to every rank.
 */
#define SUMMED 2
#define sum_at(other, row, half) at(SUMMED, other, slot_of(epoch), rank, row, block, half)
#include "wave.pml"
