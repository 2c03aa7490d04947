// SPDX-License-Identifier: Apache-2.0
// A rank of a group of processes: does what the lines on its standard input say, one JSON object each, and answers each with one.
// tests/process_team.hpp is the other side.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "transport/shared_memory.hpp"

namespace moetail::testing {
namespace {

using nlohmann::json;

/// Sends this process a signal at a site, once.
class Signal : public cpu::Hooks {
 public:
  Signal(Where where, int signal) : where_(where), signal_(signal) {}
  bool at(const cpu::SiteEvent& event) override {
    if (where_.matches(event) && !sent_.exchange(true)) raise(signal_);
    return true;
  }

 private:
  const Where where_;
  const int signal_;
  std::atomic<bool> sent_ = false;
};

protocol::Site site_named(const std::string& name) {
  for (int i = 0; i < protocol::kSites; ++i)
    if (name == protocol::site_name(static_cast<protocol::Site>(i))) return static_cast<protocol::Site>(i);
  base::bad_argument("site", name, "a site's name");
}

Shape shape_of(const json& given) {
  Shape shape;
  shape.hidden = given.at("hidden");
  shape.latent = given.at("latent");
  shape.ranks = given.at("ranks");
  shape.top_k = given.at("top_k");
  shape.capacity = given.at("capacity");
  shape.poll_capacity = given.at("poll_capacity");
  shape.eps = given.at("eps");
  return shape;
}

class RankProgram {
 public:
  json answer(const json& order) {
    const std::string what = order.at("do");
    if (what == "begin") return json::object();  // only to say that the program runs
    if (what == "join") return join(order);
    if (what == "boxes") return make_boxes(order);
    if (what == "call") return call(order);
    if (what == "recover") return recover();
    if (what == "hook") return set_hook(order);
    if (what == "limit") return limit(order);
    if (what == "segment") return make_segment();
    if (what == "abort") return abort_later(order);
    if (what == "leave") return leave();
    base::bad_argument("do", what, "an order that this program knows");
  }

 private:
  json join(const json& order) {
    ProcessGroup group;
    group.token = order.at("token");
    group.rank = order.at("rank");
    group.ranks = order.at("ranks");
    group.setup_deadline = std::chrono::milliseconds(order.value("setup_ms", 20'000));
    WorldOptions options;
    options.deadline = std::chrono::milliseconds(order.value("deadline_ms", 10'000));
    options.first_deadline = std::chrono::milliseconds(order.value("first_ms", 20'000));
    options.threads = order.value("threads", 0);
    options.policy_file = order.value("policy_file", "");
    rank_ = group.rank;
    world_ = World::processes(group, options);
    return {{"ranks", world_->ranks()}, {"local", world_->local_ranks()}, {"first", world_->first_rank()}};
  }
  json make_boxes(const json& order) {
    harness_.reset();
    HarnessOptions options;
    options.layers = 2;
    options.own_copies = order.value("own_copies", false);
    harness_ = std::make_unique<Harness>(*world_, shape_of(order.at("shape")), options);
    return {{"bytes", harness_->boxes().front().bytes()}};
  }
  json call(const json& order) {
    CallOptions options;
    options.mode = static_cast<Mode>(order.at("mode").get<int>());
    options.inputs.form = static_cast<Form>(order.value("form", 0));
    options.inputs.residual = order.value("residual", false);
    options.seed = order.value("seed", 1);
    options.layer = order.value("layer", 0);
    options.side_push = order.value("side_push", false);
    options.consume_in_place = order.value("consume_in_place", false);
    const int batch = order.at("batch");
    const auto& inputs = harness_->make_inputs(batch, options);
    json answer;
    Outputs* outputs = nullptr;
    try {
      if (order.value("alone", false)) {  // the other door to the same call
        const RankCall one = harness_->prepare_rank(rank_, batch, inputs, options);
        outputs = &harness_->consume({one.tail->run(one.call)}, options);
      } else {
        outputs = &harness_->enqueue(batch, inputs, options);
      }
      world_->synchronize();
    } catch (const Error& error) {
      answer = {{"code", static_cast<int>(error.code())}, {"error", error.what()}};
    }
    if (outputs != nullptr) {
      const auto& rows = outputs->front();
      std::string text;
      for (const Bf16 value : rows) text += fmt::format("{:04x}", value);
      answer["rows"] = text;
      answer["all_nan"] = all_nan(rows);
    }
    if (const auto report = harness_->boxes().front().status()) {
      const auto& record = report->record;
      answer["fault"] = {{"kind", protocol::fault_kind_name(record.kind)},
                         {"site", protocol::site_name(record.site)},
                         {"field", protocol::header_field_name(record.field)},
                         {"rank", record.rank},
                         {"peer", record.peer},
                         {"layer", record.layer},
                         {"epoch", record.epoch},
                         {"elapsed_ms", static_cast<double>(record.elapsed_ns) * 1e-6},
                         {"text", report->text()}};
    }
    return answer;
  }
  json recover() {
    world_->recover(harness_->boxes());
    return json::object();
  }
  json set_hook(const json& order) {
    const std::string act = order.at("act");
    harness_->set_hooks(nullptr);
    if (act == "none") return json::object();
    Where where;
    where.site = site_named(order.at("site"));
    where.epoch = order.value("epoch", Where::kAnyEpoch);
    hook_ = std::make_unique<Signal>(where, act == "kill" ? SIGKILL : SIGSTOP);
    harness_->set_hooks(hook_.get());
    return json::object();
  }
  static json limit(const json& order) {
    if (order.contains("file_bytes")) {
      const rlimit now{order.at("file_bytes"), RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &now);
      return json::object();
    }
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit now{
        pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + order.at("more_addresses").get<rlim_t>(),
        RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &now);
    return json::object();
  }
  /// A segment that nobody will take the name away from, once this process is killed.
  json make_segment() {
    segment_.emplace(transport::SharedSegment::create(4096));
    return {{"name", segment_->name()}};
  }
  json abort_later(const json& order) {
    std::thread([box = harness_->boxes().front(), ms = order.at("after_ms").get<int>()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      box.abort();
    }).detach();
    return json::object();
  }
  json leave() {
    harness_.reset();
    world_.reset();
    return json::object();
  }

  int rank_ = 0;
  std::optional<transport::SharedSegment> segment_;
  std::optional<World> world_;
  std::unique_ptr<Signal> hook_;
  std::unique_ptr<Harness> harness_;
};

int serve() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  RankProgram program;
  std::string line;
  while (std::getline(std::cin, line)) {
    json answer;
    try {
      answer = program.answer(json::parse(line));
    } catch (const Error& error) {
      answer = {{"code", static_cast<int>(error.code())}, {"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace moetail::testing

int main() {
  return moetail::testing::serve();
}
