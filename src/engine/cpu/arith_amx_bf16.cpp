// SPDX-License-Identifier: Apache-2.0
// The amx_bf16 target: a dot of tdpbf16ps, so that up to 32 tokens cost no more than the weights' way from memory.
#include "engine/cpu/arith_targets.hpp"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "engine/cpu/arith_amx_pack.hpp"

namespace moetail::cpu {
namespace {

// The order of this dot: one fp32 sum a (row, token), over steps of 32 columns in ascending order, each one tdpbf16ps; a
// last step of fewer than 32 columns is filled with zeros. The instruction sums the even and the odd columns of a step
// apart, takes subnormal inputs for zero and flushes subnormal results to zero; NaN and Inf come out as in fp32. What
// it computes for a (row, token) does not depend on the other rows and tokens of its tiles.
//
// Weights are the A tiles, loaded from where they lie: 16 rows by 32 columns, one cache line a row. A block of 32 rows
// reads 32 streams of memory side by side, which is what gives the hardware prefetchers the most lines in flight. The
// operand is repacked once a call: a B tile holds 16 pairs of columns by 16 tokens.
using amx::kStep;
using amx::kStepBytes;
using amx::kTileTokens;
using amx::PackedOperand;
constexpr int kBlockRows = 2 * amx::kTileRows;
constexpr int kPassTokens = 2 * kTileTokens;

// Tiles 0..3 are the sums (row tile * 2 + token tile), 4 and 5 the weights, 6 and 7 the operand.
constexpr int kFirstA = 4;
constexpr int kFirstB = 6;

constexpr int kAheadSteps = kAheadBytes / static_cast<int>(kStepBytes);
constexpr std::size_t kPackedBytes = 1024 * 1024;  // of the operand at a time, half of a 2 MB L2

/// Lines to prefetch beside one step: `rows` lines `pitch` bytes apart, one line further at each step.
struct Ahead {
  const char* from;
  std::size_t pitch;
  int rows;
};

/// `num_steps` steps of a block: `a` walks along its rows, `b` over the tiles of one or two groups of tokens.
template <int kRowTiles, int kTokenTiles>
MOETAIL_AMX void multiply(const char* a, std::size_t a_pitch, const PackedOperand& packed, const char* b,
                          int num_steps, Ahead ahead) {
  const std::size_t b_pitch = static_cast<std::size_t>(packed.width) * 4;
  for (int step = 0; step < num_steps; ++step) {
    const char* line = ahead.from;
    for (int i = 0; i < ahead.rows; ++i, line += ahead.pitch) _mm_prefetch(line, _MM_HINT_T0);
    ahead.from += kStepBytes;
    amx::load<kFirstB>(b, b_pitch);
    amx::load<kFirstA>(a, a_pitch);
    amx::multiply_add<0, kFirstA, kFirstB>();
    if constexpr (kTokenTiles > 1) {
      amx::load<kFirstB + 1>(b + packed.group_bytes, b_pitch);
      amx::multiply_add<1, kFirstA, kFirstB + 1>();
    }
    if constexpr (kRowTiles > 1) {
      amx::load<kFirstA + 1>(a + amx::kTileRows * a_pitch, a_pitch);
      amx::multiply_add<2, kFirstA + 1, kFirstB>();
      if constexpr (kTokenTiles > 1) amx::multiply_add<3, kFirstA + 1, kFirstB + 1>();
    }
    a += kStepBytes;
    b += packed.tile_bytes;
  }
}

class AmxDot {
 public:
  AmxDot(const Bf16* weights, const PackedOperand& packed, int latent, int num_rows, int num_tokens,
         float* dot, int dot_pitch)
      : weights_(reinterpret_cast<const char*>(weights)),
        packed_(packed),
        row_bytes_(static_cast<std::size_t>(latent) * sizeof(Bf16)),
        full_steps_(latent / kStep),
        tail_bytes_(static_cast<std::size_t>(latent % kStep) * sizeof(Bf16)),
        num_rows_(num_rows),
        num_tokens_(num_tokens),
        dot_(dot),
        dot_pitch_(static_cast<std::size_t>(dot_pitch)) {}

  MOETAIL_AMX void run() const {
    const int full_rows = num_rows_ / kBlockRows * kBlockRows;
    if (full_rows > 0) {
      configure(kBlockRows);
      for (int row = 0; row < full_rows; row += kBlockRows) block<2>(row, kBlockRows);
    }
    const int rest = num_rows_ - full_rows;
    if (rest > 0) configure(rest);
    if (rest > amx::kTileRows) block<2>(full_rows, rest);
    if (rest > 0 && rest <= amx::kTileRows) block<1>(full_rows, rest);
    amx::release();
  }

 private:
  MOETAIL_AMX void configure(int rows) const {
    amx::TileConfig config;
    const auto width_bytes = static_cast<std::uint16_t>(packed_.width * 4);
    for (int tile = 0; tile < amx::kNumTiles; ++tile) {
      const bool is_second = tile == kFirstA + 1 || tile == 2 || tile == 3;  // of the two row tiles
      const bool is_operand = tile >= kFirstB;
      const int tile_rows = is_second ? std::max(rows - amx::kTileRows, 1) : std::min(rows, amx::kTileRows);
      config.rows[tile] = static_cast<std::uint8_t>(is_operand ? amx::kTileRows : tile_rows);
      const bool is_weight = tile == kFirstA || tile == kFirstA + 1;
      config.row_bytes[tile] = is_weight ? std::uint16_t{amx::kTileRowBytes} : width_bytes;
    }
    amx::configure(config);
  }

  /// All tokens of rows [row, row + rows).
  template <int kRowTiles>
  MOETAIL_AMX void block(int row, int rows) const {
    const char* a = weights_ + static_cast<std::size_t>(row) * row_bytes_;
    alignas(64) char a_tail[kBlockRows * amx::kTileRowBytes];
    if (tail_bytes_ != 0) copy_tail(a, rows, a_tail);
    const int next_rows = std::min(kBlockRows, num_rows_ - row - rows);
    const Block block = {row, rows, a, a_tail, a + static_cast<std::size_t>(rows) * row_bytes_, next_rows};
    for (int token = 0; token < num_tokens_; token += kPassTokens) {
      if (num_tokens_ - token > kTileTokens) {
        sweep<kRowTiles, 2>(block, token);
      } else {
        sweep<kRowTiles, 1>(block, token);
      }
    }
  }

  struct Block {
    int row;
    int rows;
    const char* a;
    const char* a_tail;
    const char* next;  ///< the block after this one, of `next_rows` rows
    int next_rows;
  };

  MOETAIL_AMX void copy_tail(const char* a, int rows, char* a_tail) const {
    std::memset(a_tail, 0, kBlockRows * amx::kTileRowBytes);
    const char* from = a + static_cast<std::size_t>(full_steps_) * kStepBytes;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
      std::memcpy(a_tail + i * amx::kTileRowBytes, from + i * row_bytes_, tail_bytes_);
    }
  }

  /// One pass over the block: 16 or 32 tokens from `token` on. The first one takes the weights from memory, with a
  /// prefetch a few lines ahead along the block's rows and, in the last steps, along those of the next block; later ones
  /// find them in L2.
  template <int kRowTiles, int kTokenTiles>
  MOETAIL_AMX void sweep(const Block& block, int token) const {
    zero_sums();
    const char* b = packed_.tiles + static_cast<std::size_t>(token / kTileTokens) * packed_.group_bytes;
    const int own = std::max(0, full_steps_ - kAheadSteps);
    Ahead along = {block.a + kAheadSteps * kStepBytes, row_bytes_, block.rows};
    Ahead across = {block.next, row_bytes_, block.next_rows};
    if (token != 0) along.rows = across.rows = 0;
    multiply<kRowTiles, kTokenTiles>(block.a, row_bytes_, packed_, b, own, along);
    b += static_cast<std::size_t>(own) * packed_.tile_bytes;
    multiply<kRowTiles, kTokenTiles>(block.a + static_cast<std::size_t>(own) * kStepBytes, row_bytes_,
                                     packed_, b, full_steps_ - own, across);
    if (tail_bytes_ != 0) {
      const Ahead none = {block.a, row_bytes_, 0};
      b += static_cast<std::size_t>(full_steps_ - own) * packed_.tile_bytes;
      multiply<kRowTiles, kTokenTiles>(block.a_tail, amx::kTileRowBytes, packed_, b, 1, none);
    }
    put_sums<kRowTiles, kTokenTiles>(block, token);
  }

  MOETAIL_AMX static void zero_sums() {
    amx::zero<0>();
    amx::zero<1>();
    amx::zero<2>();
    amx::zero<3>();
  }

  template <int kRowTiles, int kTokenTiles>
  MOETAIL_AMX void put_sums(const Block& block, int token) const {
    const int first_rows = std::min(block.rows, amx::kTileRows);
    put<0>(block.row, first_rows, token);
    if constexpr (kTokenTiles > 1) put<1>(block.row, first_rows, token + kTileTokens);
    if constexpr (kRowTiles > 1) {
      put<2>(block.row + amx::kTileRows, block.rows - amx::kTileRows, token);
      if constexpr (kTokenTiles > 1)
        put<3>(block.row + amx::kTileRows, block.rows - amx::kTileRows, token + kTileTokens);
    }
  }

  /// Stores a tile of sums [rows, tokens] as dot[token][row].
  template <int kSum>
  MOETAIL_AMX void put(int row, int rows, int token) const {
    float* to = dot_ + static_cast<std::size_t>(token) * dot_pitch_ + static_cast<std::size_t>(row);
    if (packed_.width == 1) return amx::store<kSum>(to, sizeof(float));
    alignas(64) char tile[amx::kTileBytes];
    amx::store<kSum>(tile, amx::kTileRowBytes);
    __m512i word[16];
    for (std::size_t i = 0; i < 16; ++i) word[i] = _mm512_load_si512(tile + i * amx::kTileRowBytes);
    amx::transpose(word);
    const auto mask = static_cast<__mmask16>((1u << rows) - 1u);
    const int tokens = std::min(num_tokens_ - token, kTileTokens);
    for (std::size_t t = 0; t < 16; ++t) {
      if (t < static_cast<std::size_t>(tokens)) _mm512_mask_storeu_epi32(to + t * dot_pitch_, mask, word[t]);
    }
  }

  const char* weights_;
  const PackedOperand& packed_;
  std::size_t row_bytes_;
  int full_steps_;
  std::size_t tail_bytes_;
  int num_rows_;
  int num_tokens_;
  float* dot_;
  std::size_t dot_pitch_;
};

void dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens, float* dot,
         int dot_pitch) {
  thread_local std::vector<amx::CacheLine> scratch;
  // A batch whose packed operand would push the weights out of L2 reads the weights once more.
  const auto padded = static_cast<std::size_t>((latent + kStep - 1) / kStep) * kStepBytes;
  const int fitting = static_cast<int>(kPackedBytes / padded) / kPassTokens * kPassTokens;
  const int chunk = std::max(fitting, kPassTokens);
  for (int token = 0; token < num_tokens; token += chunk) {
    const int tokens = std::min(chunk, num_tokens - token);
    const PackedOperand packed =
        amx::pack(operand + static_cast<std::size_t>(token) * static_cast<std::size_t>(latent), latent,
                  tokens, scratch);
    AmxDot(weights, packed, latent, num_rows, tokens,
           dot + static_cast<std::size_t>(token) * static_cast<std::size_t>(dot_pitch), dot_pitch)
        .run();
  }
}

MOETAIL_AMX double spin(long rounds) {
  amx::TileConfig config;
  std::fill_n(config.rows, amx::kNumTiles, std::uint8_t{amx::kTileRows});
  std::fill_n(config.row_bytes, amx::kNumTiles, std::uint16_t{amx::kTileRowBytes});
  amx::configure(config);  // all tiles are zero now; the speed does not depend on the values
  for (long round = 0; round < rounds; ++round) {
    amx::multiply_add<0, kFirstA, kFirstB>();
    amx::multiply_add<1, kFirstA, kFirstB>();
    amx::multiply_add<2, kFirstA, kFirstB>();
    amx::multiply_add<3, kFirstA, kFirstB>();
  }
  amx::release();
  return 4.0 * 2.0 * amx::kTileRows * kTileTokens * kStep * static_cast<double>(rounds);
}

bool has_amx_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAmxBf16 = 1u << 22;
  constexpr unsigned kAmxTile = 1u << 24;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  // ARCH_REQ_XCOMP_PERM for XTILEDATA; the names are missing in older headers. Linux from 5.16 on; others refuse.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Target* amx_bf16_target() {
  static const std::optional<Target> target = has_amx_bf16() ? on_avx3("amx_bf16", dot, spin) : std::nullopt;
  return target ? &*target : nullptr;
}

}  // namespace moetail::cpu

#else

namespace moetail::cpu {
const Target* amx_bf16_target() {
  return nullptr;
}
}  // namespace moetail::cpu

#endif
