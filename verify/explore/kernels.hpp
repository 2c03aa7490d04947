// SPDX-License-Identifier: Apache-2.0
// The launches of a call as the engines make them (src/engine/cpu/tails.cpp, src/kernels), with mixing in place of arithmetic: the
// protocol's own functions in the engines' order.
#pragma once

#include <array>

#include "protocol/numerics.hpp"
#include "verify/explore/model_memory.hpp"
#include "verify/explore/values.hpp"

namespace moetail::explore {

using protocol::BoxView;
using protocol::lines_of;
using protocol::part_of;
using protocol::Region;
using protocol::Site;
using protocol::Spot;

inline constexpr int kMaxLines = 16;

/// One part of one launch of one rank's call.
class Kernel {
 public:
  Kernel(const Config& config, const BoxView& view, ModelMemory mem)
      : config_(config),
        view_(view),
        mem_(mem),
        plan_(config.calls[static_cast<std::size_t>(mem.call())]),
        batch_(config.batch_of(view.rank, mem.call())),
        latent_lines_(lines_of(view.layout.shape.latent)),
        shard_lines_(lines_of(view.layout.shape.shard())) {}

  void push();
  void publish();
  void fill();
  void tail();
  void take();

 private:
  bool begin();
  Line partial_line(int token, int line, bool& there);
  void publish_latents(bool& there);
  void push_shards(bool& there);
  bool check_headers();
  bool owns_sum(int token) const;
  bool reduce();
  bool sum_latents(int token, std::array<Line, kMaxLines>& sum);
  bool sum_chunks();
  bool project();
  void rearm(const protocol::Record& present);
  protocol::Header header() const;
  protocol::Record record() const;
  bool wait(Spot spot, protocol::Runs& runs) { return protocol::wait_runs(mem_, spot, runs); }
  int sender(int i) const { return protocol::sum_source(i, view_.rank, config_.ranks); }
  void add(Line& sum, const Line& line) const {
    for (int i = 0; i < 4; ++i) sum.word[i] = mixed(sum.word[i], line.word[i]);
  }

  const Config& config_;
  const BoxView& view_;
  ModelMemory mem_;
  const CallPlan& plan_;
  const int batch_;
  const int latent_lines_;
  const int shard_lines_;
  u64 epoch_ = 0;
  int slot_ = 0;
  std::array<u32, 8> norm_{};  // [token] of the summed row
};

inline bool Kernel::begin() {
  if (mem_.is_poisoned()) return false;
  mem_.at(Site::epoch);
  epoch_ = mem_.load(view_.control(protocol::Control::epoch));
  slot_ = protocol::slot_of(epoch_);
  return true;
}

inline protocol::Header Kernel::header() const {
  const auto& shape = view_.layout.shape;
  return {static_cast<u32>(batch_), static_cast<u32>(plan_.mode), 1,
          protocol::hash_shape(shape, protocol::bits_from_float(shape.eps))};
}

inline protocol::Record Kernel::record() const {
  const bool polls = plan_.mode == Mode::front_poll;
  return {batch_, protocol::dirtied_regions(plan_.mode, plan_.shares_reduced, polls, polls)};
}

// --- publish ---------------------------------------------------------------------------------------------

inline Line Kernel::partial_line(int token, int line, bool& there) {
  if (plan_.mode != Mode::front_poll) {
    const Line given = sent_line(Sent::partial, view_.rank, config_.ranks, mem_.call(), token, line);
    Line clean;
    protocol::clean_run(&clean, &given, 1);
    return clean;
  }
  mem_.at(Site::rows_poll);
  Spot spot{Site::rows_poll, view_.rank, token, 0};
  const u32* weights = view_.mine<u32>(Region::weights, slot_, 0, token);
  const Line* row = view_.mine<Line>(Region::rows, slot_, 0, token);
  u32 weight = 0;
  there = protocol::wait_until(mem_, spot, [&](Spot&) {
    weight = mem_.load(weights);
    return protocol::is_empty(weight) ? 1 : 0;
  });
  there = there && protocol::wait_run(mem_, spot, row, line, line + 1);
  if (!there) return {};
  Line latent = mem_.use(row + line);
  for (u32& word : latent.word) word = weighted(word, weight);
  return latent;
}

inline void Kernel::publish_latents(bool& there) {
  const auto lines = part_of(static_cast<u64>(latent_lines_), mem_.part(), mem_.parts());
  const int chunk = latent_lines_ / config_.ranks;
  for (int token = 0; token < batch_; ++token) {
    for (int line = static_cast<int>(lines.begin); line < static_cast<int>(lines.end); ++line) {
      const Line latent = partial_line(token, line, there);
      if (!there) return;
      if (plan_.mode == Mode::twoshot) {
        mem_.at(Site::twoshot_push);
        Line* mailbox = view_.at<Line>(line / chunk, Region::recv, slot_, view_.rank, token);
        protocol::store_run(mem_, mailbox + line % chunk, &latent, 1);
      } else {
        mem_.at(Site::latent_publish);
        protocol::put_run(mem_, view_, Region::latent, slot_, view_.rank, token, line, &latent, 1);
      }
    }
  }
}

inline void Kernel::push_shards(bool& there) {
  const auto lines = part_of(static_cast<u64>(shard_lines_), mem_.part(), mem_.parts());
  const bool by_owner = config_.cuts_push_by_owner && plan_.side_push;
  const int begin = by_owner ? 0 : static_cast<int>(lines.begin);
  const int end = by_owner ? shard_lines_ : static_cast<int>(lines.end);
  for (int token = 0; token < batch_; ++token) {
    for (int i = 0; i < config_.ranks; ++i) {
      const int peer = (view_.rank + i) % config_.ranks;
      if (by_owner && peer % mem_.parts() != mem_.part()) continue;
      Line* mailbox = view_.at<Line>(peer, Region::shared, slot_, view_.rank, token);
      for (int line = begin; line < end; ++line) {
        const int column = peer * shard_lines_ + line;
        if (plan_.mode == Mode::front_poll) {
          mem_.at(Site::rows_poll);
          const Line* polled = view_.mine<Line>(Region::polled_shared, slot_, 0, token);
          Spot spot{Site::rows_poll, view_.rank, token};
          there = protocol::wait_run(mem_, spot, polled, column, column + 1);
          if (!there) return;
          const Line given = mem_.use(polled + column);
          mem_.at(Site::shared_push);
          protocol::store_run(mem_, mailbox + line, &given, 1);
        } else {
          mem_.at(Site::shared_push);
          const Line given = sent_line(Sent::shared, view_.rank, config_.ranks, mem_.call(), token, column);
          protocol::store_cleaned_run(mem_, mailbox + line, &given, 1);
        }
      }
    }
  }
}

inline void Kernel::push() {
  if (!begin()) return;
  mem_.at(Site::header_publish);
  if (mem_.part() == 0) protocol::publish_header(mem_, view_, slot_, header());
  bool there = true;
  push_shards(there);
}

inline void Kernel::publish() {
  bool there = begin();
  if (there) publish_latents(there);
}

inline void Kernel::fill() {
  if (!begin()) return;
  mem_.at(Site::rows_fill);
  for (int token = 0; token < batch_; ++token) {
    const auto sent = [&](Sent what, int line) {
      return sent_line(what, view_.rank, config_.ranks, mem_.call(), token, line);
    };
    for (int line = 0; line < latent_lines_; ++line) {
      const Line row = sent(Sent::row, line);
      protocol::store_cleaned_run(mem_, view_.mine<Line>(Region::rows, slot_, 0, token) + line, &row, 1);
    }
    mem_.store(
        view_.mine<u32>(Region::weights, slot_, 0, token),
        protocol::weight_word(sent_word(Sent::weight, view_.rank, config_.ranks, mem_.call(), token, 0)));
    for (int line = 0; line < shard_lines_ * config_.ranks; ++line) {
      const Line shared = sent(Sent::shared, line);
      protocol::store_cleaned_run(mem_, view_.mine<Line>(Region::polled_shared, slot_, 0, token) + line,
                                  &shared, 1);
    }
  }
}

// --- reduce ----------------------------------------------------------------------------------------------

inline bool Kernel::check_headers() {
  mem_.at(Site::header_poll);
  return mem_.part() != 0 || protocol::check_headers(mem_, view_, slot_, header());
}

/// x of one token out of every rank's latents.
inline bool Kernel::sum_latents(int token, std::array<Line, kMaxLines>& sum) {
  mem_.at(Site::latent_poll);
  protocol::Runs runs;
  runs.count = config_.ranks;
  runs.want(latent_lines_);
  for (int i = 0; i < runs.count; ++i) runs.from[i] = view_.mine<Line>(Region::latent, slot_, i, token);
  const int own = config_.sums_own && plan_.mode == Mode::front ? view_.rank : -1;
  if (own >= 0) runs.done[own] = latent_lines_;
  if (!wait({Site::latent_poll, -1, token}, runs)) return false;
  for (int line = 0; line < latent_lines_; ++line) {
    sum[static_cast<std::size_t>(line)] = {};
    bool there = true;
    for (int i = 0; i < runs.count; ++i)
      add(sum[static_cast<std::size_t>(line)],
          sender(i) == own ? partial_line(token, line, there) : mem_.use(runs.from[sender(i)] + line));
  }
  return true;
}

/// Two-shot: the chunk that this rank owns, summed and handed to every rank.
inline bool Kernel::sum_chunks() {
  const int chunk = latent_lines_ / config_.ranks;
  for (int token = mem_.part(); token < batch_; token += mem_.parts()) {
    mem_.at(Site::twoshot_sum);
    protocol::Runs runs;
    runs.count = config_.ranks;
    runs.want(chunk);
    for (int i = 0; i < runs.count; ++i) runs.from[i] = view_.mine<Line>(Region::recv, slot_, i, token);
    if (!wait({Site::twoshot_sum, -1, token}, runs)) return false;
    for (int line = 0; line < chunk; ++line) {
      Line sum{};
      for (int i = 0; i < runs.count; ++i) add(sum, mem_.use(runs.from[sender(i)] + line));
      mem_.at(Site::gather_publish);
      protocol::put_run(mem_, view_, Region::gather, slot_, 0, token, view_.rank * chunk + line, &sum, 1);
    }
  }
  return true;
}

/// Whole rows here, where the CPU engine cuts them by lines: what is in a row decides nothing.
inline bool Kernel::owns_sum(int token) const {
  if (!view_.is_common(Region::reduced)) return token % mem_.parts() == mem_.part();
  return token % (config_.ranks * mem_.parts()) == mem_.part() * config_.ranks + view_.rank;
}

inline bool Kernel::reduce() {
  if (plan_.mode == Mode::twoshot && !sum_chunks()) return false;
  const bool shares = plan_.shares_reduced;
  std::array<Line, kMaxLines> sum{};
  // A shared row is fp32 and twice as long: its second half says the same here.
  if (shares)
    for (int token = 0; token < batch_; ++token) {
      if (!owns_sum(token)) continue;
      if (!sum_latents(token, sum)) return false;
      mem_.at(Site::reduced_publish);
      Line* row = view_.mine<Line>(Region::reduced, slot_, 0, token);
      protocol::store_run(mem_, row, sum.data(), latent_lines_);
      protocol::store_run(mem_, row + latent_lines_, sum.data(), latent_lines_);
    }
  for (int token = 0; token < batch_; ++token) {
    if (shares || plan_.mode == Mode::twoshot) {
      const Site site = shares ? Site::reduced_poll : Site::gather_poll;
      mem_.at(site);
      const Line* row = view_.mine<Line>(shares ? Region::reduced : Region::gather, slot_, 0, token);
      Spot spot{site, view_.rank, token};
      if (!protocol::wait_run(mem_, spot, row, 0, shares ? 2 * latent_lines_ : latent_lines_)) return false;
      for (int line = 0; line < latent_lines_; ++line)
        sum[static_cast<std::size_t>(line)] = mem_.use(row + line);
    } else if (!sum_latents(token, sum)) {
      return false;
    }
    u32& norm = norm_[static_cast<std::size_t>(token)] = 0;
    for (int line = 0; line < latent_lines_; ++line)
      for (u32 word : sum[static_cast<std::size_t>(line)].word) norm = mixed(norm, word);
  }
  return true;
}

inline bool Kernel::project() {
  const auto part = part_of(static_cast<u64>(shard_lines_), mem_.part(), mem_.parts());
  const int begin = static_cast<int>(part.begin), lines = static_cast<int>(part.end) - begin;
  for (int token = 0; token < batch_ && lines > 0; ++token) {
    mem_.at(Site::shared_poll);
    protocol::Runs runs;
    runs.count = config_.ranks;
    runs.want(lines);
    for (int i = 0; i < runs.count; ++i)
      runs.from[i] = view_.mine<Line>(Region::shared, slot_, i, token) + begin;
    if (!wait({Site::shared_poll, -1, token}, runs)) return false;
    for (int line = 0; line < lines; ++line) {
      Line out{};
      for (int i = 0; i < runs.count; ++i) add(out, mem_.use(runs.from[sender(i)] + line));
      for (u32& word : out.word) word = mixed(norm_[static_cast<std::size_t>(token)], word);
      mem_.at(Site::out_publish);
      protocol::put_run(mem_, view_, Region::out, 0, 0, token, view_.rank * shard_lines_ + begin + line, &out,
                        1);
    }
  }
  return true;
}

// --- the launches ----------------------------------------------------------------------------------------

inline void Kernel::rearm(const protocol::Record& present) {
  mem_.at(Site::rearm);
  protocol::rearm_previous(mem_, view_, epoch_, protocol::record_to_rearm(mem_, view_, epoch_, present),
                           mem_.part(), mem_.parts());
}

inline void Kernel::tail() {
  bool there = begin();
  if (there && (plan_.mode == Mode::front || plan_.mode == Mode::front_poll)) {
    mem_.at(Site::header_publish);
    if (mem_.part() == 0) protocol::publish_header(mem_, view_, slot_, header());
    if (!config_.rearms_early) publish_latents(there);
    if (there) push_shards(there);
  }
  if (!there) return;
  if (config_.rearms_early) {
    rearm(record());
    if (plan_.mode == Mode::front || plan_.mode == Mode::front_poll) publish_latents(there);
    if (!there) return;
  }
  // A kernel compares the headers beside the work: nothing of it waits for that but the end.
  if (!config_.is_kernel() && !check_headers()) return;
  if (!reduce() || !project()) return;
  if (config_.is_kernel() && !check_headers()) return;
  if (!config_.rearms_early) rearm(record());
  mem_.at(Site::epoch);
  protocol::finish_call(mem_, view_, epoch_, record(), mem_.parts());
}

inline void Kernel::take() {
  if (mem_.is_poisoned()) return;
  const int lines = shard_lines_ * config_.ranks;
  for (int token = 0; token < batch_; ++token) {
    mem_.at(Site::consume);
    Line* out = view_.mine<Line>(Region::out, 0, 0, token);
    protocol::Runs runs;
    runs.count = config_.ranks;
    runs.want(shard_lines_);
    for (int i = 0; i < runs.count; ++i) runs.from[i] = out + i * shard_lines_;
    if (!wait({Site::consume, -1, token}, runs)) return;
    for (int line = 0; line < lines; ++line) {
      const Line row = mem_.use(out + line);
      for (int i = 0; i < 4; ++i)
        if (row.word[i] != expected_word(config_, mem_.call(), token, 4 * line + i))
          mem_.fail("word " + std::to_string(4 * line + i) + " of row " + std::to_string(token) +
                    " is not what every rank has to see");
    }
    mem_.at(Site::consume_rearm);
    protocol::arm_lines(mem_, out, {0, static_cast<u64>(lines)});
  }
}

}  // namespace moetail::explore
