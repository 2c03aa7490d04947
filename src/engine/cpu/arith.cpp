// SPDX-License-Identifier: Apache-2.0
// Chooses the CPU engine's dispatch target, once a process.
#include "engine/cpu/arith.hpp"

#include "base/env.hpp"
#include "base/error.hpp"
#include "engine/cpu/arith_targets.hpp"

namespace moetail::cpu {

std::optional<Target> on_avx3(const char* name, decltype(Arith::dot) dot, decltype(Target::spin) spin) {
  const std::vector<const Target*> base = highway_targets();
  if (base.empty() || std::string_view(base.front()->arith.name) != "avx3") return std::nullopt;
  Target target = *base.front();
  target.arith.name = name;
  target.arith.dot = dot;
  target.spin = spin;
  return target;
}

const std::vector<const Target*>& runnable_targets() {
  static const std::vector<const Target*> targets = [] {
    std::vector<const Target*> found;
    if (const Target* target = amx_bf16_target()) found.push_back(target);
    if (const Target* target = avx512_bf16_target()) found.push_back(target);
    for (const Target* target : highway_targets()) found.push_back(target);
    found.push_back(scalar_target());
    return found;
  }();
  return targets;
}

const Target& choose_target(const std::optional<std::string>& name,
                            const std::vector<const Target*>& runnable) {
  if (!name) return *runnable.front();
  std::string accepted;
  for (const Target* target : runnable) {
    if (*name == target->arith.name) return *target;
    accepted += accepted.empty() ? "" : ", ";
    accepted += target->arith.name;
  }
  base::fail(Code::unsupported, "{} = {}: accepted on this machine is {}", base::kCpuTarget.name, *name,
             accepted);
}

const Target& chosen_target() {
  static const Target& target = choose_target(base::read_env(base::kCpuTarget), runnable_targets());
  return target;
}

const Arith& arith() {
  return chosen_target().arith;
}

std::vector<const Arith*> runnable_arith_targets() {
  std::vector<const Arith*> tables;
  for (const Target* target : runnable_targets()) tables.push_back(&target->arith);
  return tables;
}

}  // namespace moetail::cpu
