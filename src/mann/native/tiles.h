// Products of bfloat16 by AMX: eight tiles of 16 rows with 16 words each, and one instruction that multiplies two.
//
// A word is two numbers along the depth (vectors.h, `Bfloat16`), and what the tiles want is what `Bfloat16` packs: rows
// of words for the left factor, words of two rows for the right one. Where the processor has no tiles this file is empty
// but for `has_tiles`, and with MANN_EMULATED_TILES the tiles are arrays, so that everything else can be tested anywhere.
#pragma once

#include <cstring>

#include "vectors.h"

#if defined(MANN_EMULATED_TILES) || (defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__))
#define MANN_TILES
#endif
#if defined(MANN_TILES) && !defined(MANN_EMULATED_TILES)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mann {

constexpr int64_t kTile = 16;  // rows of a tile, and words of a row

// Two places of an array: of a left factor and of a right one (convolutions.h).
struct Pair {
  int64_t left, right;
};

// The same factors as `Bfloat16`, for products in tiles.
struct Tiled : Bfloat16 {};

// The words of a matrix (depth × columns), B(k, j) = from[k row + j column], in rows of `width` words. What pads them is
// left alone.
inline void pack_words(int64_t depth, int64_t columns, const float* from, int64_t row, int64_t column, float* to,
                       int64_t width) {
  for (int64_t k = 0; k < depth; k += 2)
    for (int64_t j = 0; j < columns; ++j)
      to[k / 2 * width + j] = Bfloat16::word(from + k * row + j * column, row, k + 1 == depth);
}

#if defined(MANN_TILES)

// Compilers do not see that loading a tile reads memory: what was written there must be there.
inline void written(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

#if defined(MANN_EMULATED_TILES)

struct Unit {
  static bool allowed() { return true; }

  // Tiles 0 to 3 hold sums (rows × 16), 4 a left factor (rows × depth), 5 a right one (depth × 16).
  static void configure(int64_t rows, int64_t depth) { rows_ = rows, depth_ = depth; }
  static void release() {}
  template <int T>
  static void zero() {
    std::memset(tile<T>(), 0, sizeof(Numbers));
  }
  template <int T>
  static void load(const float* from, int64_t row) {
    for (int64_t r = 0; r < (T == 5 ? depth_ : rows_); ++r)
      std::memcpy(tile<T>()[r], from + r * row, 4 * (T == 4 ? depth_ : kTile));
  }
  template <int T>
  static void store(float* to, int64_t row) {
    for (int64_t r = 0; r < rows_; ++r) std::memcpy(to + r * row, tile<T>()[r], 4 * kTile);
  }
  template <int C>
  static void multiply() {  // of tiles 4 and 5
    const auto part = [](float word, bool high) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, word);
      return __builtin_bit_cast(float, high ? bits & 0xffff0000u : bits << 16);
    };
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t k = 0; k < depth_; ++k)
        for (int64_t j = 0; j < kTile; ++j)
          for (const bool high : {false, true})
            tile<C>()[r][j] += part(tile<4>()[r][k], high) * part(tile<5>()[k][j], high);
  }

 private:
  using Numbers = float[kTile][kTile];
  template <int T>
  static Numbers& tile() {
    static thread_local Numbers numbers;
    return numbers;
  }
  static inline thread_local int64_t rows_ = kTile, depth_ = kTile;
};

#else

struct Unit {
  static bool allowed() {
    constexpr long kRequest = 0x1023, kData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequest, kData) == 0;
  }

  static void configure(int64_t rows, int64_t depth) {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int t = 0; t < 6; ++t) {
      config.bytes[t] = static_cast<uint16_t>(4 * (t == 4 ? depth : kTile));
      config.rows[t] = static_cast<uint8_t>(t == 5 ? depth : rows);
    }
    written(&config);
    _tile_loadconfig(&config);
  }
  static void release() { _tile_release(); }

  // The compiler wants the tiles' numbers written out.
  template <int T>
  static void zero() {
    if constexpr (T == 0) _tile_zero(0);
    if constexpr (T == 1) _tile_zero(1);
    if constexpr (T == 2) _tile_zero(2);
    if constexpr (T == 3) _tile_zero(3);
  }
  template <int T>
  static void load(const float* from, int64_t row) {
    if constexpr (T == 0) _tile_loadd(0, from, 4 * row);
    if constexpr (T == 1) _tile_loadd(1, from, 4 * row);
    if constexpr (T == 2) _tile_loadd(2, from, 4 * row);
    if constexpr (T == 3) _tile_loadd(3, from, 4 * row);
    if constexpr (T == 4) _tile_loadd(4, from, 4 * row);
    if constexpr (T == 5) _tile_loadd(5, from, 4 * row);
  }
  template <int T>
  static void store(float* to, int64_t row) {
    if constexpr (T == 0) _tile_stored(0, to, 4 * row);
    if constexpr (T == 1) _tile_stored(1, to, 4 * row);
    if constexpr (T == 2) _tile_stored(2, to, 4 * row);
    if constexpr (T == 3) _tile_stored(3, to, 4 * row);
  }
  template <int C>
  static void multiply() {
    if constexpr (C == 0) _tile_dpbf16ps(0, 4, 5);
    if constexpr (C == 1) _tile_dpbf16ps(1, 4, 5);
    if constexpr (C == 2) _tile_dpbf16ps(2, 4, 5);
    if constexpr (C == 3) _tile_dpbf16ps(3, 4, 5);
  }
};

#endif

// What `multiply_in_tiles` does, for the rows of a tile and 16 columns per T.
template <class U, int... T>
void multiply_block(std::integer_sequence<int, T...>, int64_t count, const Pair* pairs, int64_t depth, int64_t step,
                    const float* a, int64_t a_step, int64_t a_row, const float* b, int64_t b_step, int64_t b_row,
                    float* c, int64_t c_row, bool accumulate) {
  written(a), written(b), written(c);
  if (accumulate)
    (U::template load<T>(c + T * kTile, c_row), ...);
  else
    (U::template zero<T>(), ...);
  for (int64_t n = 0; n < count; ++n) {
    const float *left = a + a_step * pairs[n].left, *right = b + b_step * pairs[n].right;
    for (int64_t k = 0; k < depth; k += step) {
      U::template load<4>(left + k, a_row);
      ((U::template load<5>(right + k * b_row + T * kTile, b_row), U::template multiply<T>()), ...);
    }
  }
  (U::template store<T>(c + T * kTile, c_row), ...);
}

// C (rows × columns) (+)= Σ A B over pairs of blocks: a block of A (rows × depth) begins at a + a_step left, one of B
// (depth × columns) at b + b_step right. The depth is in words, and a multiple of 16 or of 8; so are the columns, of 16.
template <class U = Unit>
void multiply_in_tiles(int64_t rows, int64_t count, const Pair* pairs, int64_t depth, int64_t columns, const float* a,
                       int64_t a_step, int64_t a_row, const float* b, int64_t b_step, int64_t b_row, float* c,
                       int64_t c_row, bool accumulate) {
  const int64_t step = depth % kTile ? kTile / 2 : kTile;
  for (int64_t i = 0; i < rows; i += kTile) {
    if (i == 0 || rows - i < kTile) U::configure(std::min(rows - i, kTile), step);
    for (int64_t j = 0; j < columns; j += 4 * kTile) {
      const auto run = [&](auto tiles) {
        multiply_block<U>(tiles, count, pairs, depth, step, a + i * a_row, a_step, a_row, b + j, b_step, b_row,
                       c + i * c_row + j, c_row, accumulate);
      };
      switch (std::min<int64_t>((columns - j) / kTile, 4)) {
        case 1: run(std::make_integer_sequence<int, 1>{}); break;
        case 2: run(std::make_integer_sequence<int, 2>{}); break;
        case 3: run(std::make_integer_sequence<int, 3>{}); break;
        default: run(std::make_integer_sequence<int, 4>{});
      }
    }
  }
  U::release();
}

// Whether the system lets this process use the tiles, and a product through them is what it is without.
template <class U = Unit>
bool tiles_work() {
  if (!U::allowed()) return false;
  constexpr int64_t kRows = 21, kDepth = 24, kColumns = 80;
  Buffer a(kRows * kDepth), b(kDepth * kColumns), c(kRows * kColumns);
  float numbers[2];
  const auto fill = [&](float* words, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      for (int n = 0; n < 2; ++n) numbers[n] = static_cast<float>((i * 7 + n * 3) % 31 - 15);
      words[i] = Bfloat16::word(numbers, 1, false);
    }
  };
  fill(a, kRows * kDepth), fill(b, kDepth * kColumns);
  const Pair pair{0, 0};
  multiply_in_tiles<U>(kRows, 1, &pair, kDepth, kColumns, a, 0, kDepth, b, 0, kColumns, c, kColumns, false);
  Buffer expected(kRows * kColumns);
  multiply<Bfloat16>(kRows, kDepth, kColumns, a, kDepth, 1, b, kColumns, expected, kColumns, false);
  return std::equal(&c[0], &c[0] + kRows * kColumns, &expected[0]);  // small integers: no sum is rounded
}

inline bool has_tiles() {
  static const bool works = tiles_work<>();
  return works;
}

#else

inline bool has_tiles() { return false; }

inline void multiply_in_tiles(int64_t, int64_t, const Pair*, int64_t, int64_t, const float*, int64_t, int64_t,
                              const float*, int64_t, int64_t, float*, int64_t, bool) {}

#endif

}  // namespace mann
