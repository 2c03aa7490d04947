// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/soak_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

constexpr std::uint64_t kInFlight = 32;  // calls that the host enqueues before it looks
constexpr int kLayersUnderSoak = 2;
constexpr Bf16 kUntouched = 0xABCD;  // no row of the pool is made of it

HarnessOptions harness_options(const SoakOptions& options) {
  HarnessOptions made;
  made.layers = kLayersUnderSoak;
  made.policy = kSharePolicy;
  made.seed = options.seed;
  made.own_copies = options.own_copies;
  made.world.threads = options.threads;
  made.world.deadline = made.world.first_deadline = options.deadline;
  return made;
}

}  // namespace

bool SoakHooks::at(const cpu::SiteEvent& event) {
  if (event.rank == 0 && event.epoch == deadly_epoch_.load(std::memory_order_relaxed)) return false;
  const auto place = static_cast<std::uint64_t>(event.rank) << 32 |
                     static_cast<std::uint64_t>(event.cluster) << 16 | static_cast<std::uint64_t>(event.site);
  const std::uint64_t hash = verify::mix64(verify::mix64(seed_ ^ place) + event.epoch);
  if (hash % 128 != 0) return true;
  stalls_.fetch_add(1, std::memory_order_relaxed);
  const int longest_us = hash >> 7 & 63 ? 200 : 5000;
  std::this_thread::sleep_for(
      std::chrono::microseconds(longest_us * static_cast<int>(hash >> 32 & 0xFF) / 255));
  return true;
}

SoakGroup::SoakGroup(const SoakOptions& options)
    : hooks_(options.seed),
      harness_(small_shape(options.ranks), harness_options(options)),
      random_state_(options.seed << 32),
      flights_(kInFlight) {
  for (std::uint64_t i = 0; i < options.pool; ++i) make_entry();
  harness_.set_hooks(&hooks_);
}

SoakGroup::~SoakGroup() {
  try {
    harness_.world().synchronize();
  } catch (const Error&) {  // a control's
  }
  harness_.set_hooks(nullptr);
}

void SoakGroup::make_entry() {
  constexpr Mode kModes[] = {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot};
  constexpr Form kGivenForms[] = {Form::expanded, Form::permuted, Form::partial};
  Entry entry;
  entry.options.mode = kModes[pool_.size() % 4];
  entry.options.seed = random();
  entry.options.layer = static_cast<int>(random() % kLayersUnderSoak);
  entry.options.inputs.form = kGivenForms[random() % 3];
  entry.options.inputs.residual = random() % 2 == 0;
  entry.options.inputs.weight_type = random() % 2 == 0 ? WeightType::bf16 : WeightType::fp32;
  entry.batch = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(harness_.shape().capacity));
  entry.inputs = &harness_.make_inputs(entry.batch, entry.options);
  auto& spoilt = harness_.make_inputs(entry.batch, entry.options);
  spoilt.arrays[0].shared[0] ^= 0x0100;
  entry.spoilt = &spoilt;
  const Outputs& outputs = harness_.enqueue(entry.batch, *entry.inputs, entry.options);
  harness_.world().synchronize();
  const std::string wrong = harness_.judge(entry.batch, *entry.inputs, entry.options, outputs);
  if (!wrong.empty())
    throw std::runtime_error(fmt::format("soak: a call of the pool is wrong: T={} {} {} B={}: {}",
                                         harness_.shape().ranks, protocol::mode_name(entry.options.mode),
                                         protocol::form_name(entry.options.inputs.form), entry.batch, wrong));
  entry.rows = outputs[0];
  pool_.push_back(std::move(entry));
}

void SoakGroup::enqueue(Flight& flight, const verify::CallInputs& inputs) {
  CallOptions options = flight.entry->options;
  options.side_push = random() % 2 == 0;
  const bool in_place = random() % 2 == 0;
  flight.outputs.resize(static_cast<std::size_t>(harness_.shape().ranks));
  for (auto& rows : flight.outputs) rows.assign(flight.entry->rows.size(), kUntouched);
  const auto views = harness_.world().run(harness_.prepare(flight.entry->batch, inputs, options));
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    auto& rows = flight.outputs[rank];
    const TailBox& box = harness_.boxes()[rank];
    if (!in_place) {
      box.take(views[rank], rows);
      continue;
    }
    const OutConsumer consumer = box.consumer(views[rank]);
    const auto hidden = static_cast<std::size_t>(views[rank].hidden);
    harness_.world().main_stream(static_cast<int>(rank)).launch([consumer, hidden, to = rows.data()] {
      for (int token = 0; token < consumer.batch; ++token)
        consume_row(consumer, token, {to + static_cast<std::size_t>(token) * hidden, hidden});
    });
  }
}

void SoakGroup::judge(std::uint64_t flights) {
  std::string fault;
  try {
    harness_.world().synchronize();
  } catch (const Error& error) {
    fault = error.what();
    ++count_.faults;
  }
  for (std::uint64_t i = 0; i < flights; ++i) {
    const Flight& flight = flights_[i];
    const auto lost = std::find_if(flight.outputs.begin(), flight.outputs.end(),
                                   [&](const auto& rows) { return rows != flight.entry->rows; });
    if (lost == flight.outputs.end()) continue;
    ++count_.lost;
    if (count_.first_loss.empty())
      count_.first_loss =
          fmt::format("T={} call {} {} B={} rank {}: {}", harness_.shape().ranks, flight.number,
                      protocol::mode_name(flight.entry->options.mode), flight.entry->batch,
                      lost - flight.outputs.begin(), fault.empty() ? "wrong bits" : fault);
  }
  if (!fault.empty()) harness_.world().recover(harness_.boxes());
  count_.stalls = hooks_.stalls();
}

void SoakGroup::run(std::uint64_t calls, Plant plant) {
  for (std::uint64_t done = 0; done < calls;) {
    const std::uint64_t flights = std::min(kInFlight, calls - done);
    const bool holds_plant = plant != Plant::none && done <= calls / 2 && calls / 2 < done + flights;
    if (holds_plant && plant == Plant::death)
      hooks_.kill_in_epoch(*harness_.state(0).view.control(protocol::Control::epoch) + (calls / 2 - done));
    std::uint64_t enqueued = 0;
    try {
      for (; enqueued < flights; ++enqueued) {
        Flight& flight = flights_[enqueued];
        flight.entry = &pool_[random() % pool_.size()];
        flight.number = count_.calls + done + enqueued;
        const bool is_spoilt = holds_plant && plant == Plant::bit && done + enqueued == calls / 2;
        enqueue(flight, is_spoilt ? *flight.entry->spoilt : *flight.entry->inputs);
      }
    } catch (const Error&) {
      ++enqueued;  // the box has faulted meanwhile: what judge finds, this call included
    }
    judge(enqueued);
    if (holds_plant) hooks_.kill_in_epoch(~std::uint64_t{0});
    done += flights;
    count_.lost += flights - enqueued;  // never enqueued: lost too
  }
  count_.calls += calls;
}

}  // namespace moetail::testing
