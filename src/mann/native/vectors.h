// Small dense products and fast elementwise functions: what the kernel is made of.
//
// Vectors are the compiler's own (GCC and Clang), as wide as the machine's registers, so that one source
// serves AVX-512, AVX2, SSE and NEON. Arrays that are read a vector at a time are padded with zeros.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace mann {

// Lanes of a vector; rows and vectors of the tile that `tile` keeps in registers.
#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 8, kVecs = 3;  // 24 of 32 registers
#elif defined(__AVX__)
constexpr int kLanes = 8, kRows = 4, kVecs = 3;  // 12 of 16
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRows = 8, kVecs = 3;
#else
constexpr int kLanes = 4, kRows = 4, kVecs = 3;
#endif
constexpr int kPanel = kLanes * kVecs;
#ifndef MANN_AHEAD  // benchmarks/tried.py compares some
#define MANN_AHEAD 16
#endif
constexpr int kAhead = MANN_AHEAD;  // rows of a weight matrix to fetch ahead: not all are in the L2 cache

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef float Unaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline Vec load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void store(float* to, Vec value) { *reinterpret_cast<Unaligned*>(to) = value; }

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// What this thread has used as scratch before. Fresh memory of this size costs a page fault for every 4 KiB, which
// took a third of the time of Newton–Schulz iterations.
class Kept {
 public:
  using Block = std::pair<int64_t, std::unique_ptr<float[]>>;

  static Block take(int64_t size) {
    auto& kept = blocks();
    auto best = kept.end();
    for (auto block = kept.begin(); block != kept.end(); ++block)
      if (block->first >= size && block->first <= 2 * size && (best == kept.end() || block->first < best->first))
        best = block;
    if (best == kept.end()) return {size, std::unique_ptr<float[]>(new float[size])};
    Block block = std::move(*best);
    kept.erase(best);
    return block;
  }

  static void give(Block block) {
    auto& kept = blocks();
    if (kept.size() == kMost) kept.erase(kept.begin());
    if (block.first <= kLargest) kept.push_back(std::move(block));
  }

 private:
  static constexpr size_t kMost = 64;              // blocks,
  static constexpr int64_t kLargest = 1 << 20;     // of so many numbers
  static std::vector<Block>& blocks() {
    static thread_local std::vector<Block> kept;
    return kept;
  }
};

// Scratch, aligned to a cache line; zeroed unless asked otherwise. It must be given back by the thread that took it.
class Buffer {
 public:
  explicit Buffer(int64_t size, bool zeroed = true) : block_(Kept::take(size + 16)) {
    data_ = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(block_.second.get()) + 63) & ~uintptr_t{63});
    if (zeroed) std::fill_n(data_, size, 0.0f);
  }
  ~Buffer() { Kept::give(std::move(block_)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator float*() { return data_; }
  operator const float*() const { return data_; }

 private:
  Kept::Block block_;
  float* data_;
};

// --- products ------------------------------------------------------------------------------------------

// A precision of matrix products is how many numbers along the depth make a 32-bit word, how they are packed, and
// sum + a · b for a word a and a vector of words b. Everything else is the same code. Sums are single precision.

typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));

struct Float32 {
  static constexpr int kDepth = 1;
  static float word(const float* numbers, int64_t /*next*/, bool /*last*/) { return *numbers; }
  static Vec words(Vec numbers, Vec /*next*/) { return numbers; }
  static void row(int64_t depth, const float* from, float* to) { std::copy_n(from, depth, to); }
  static Vec add(Vec sum, float a, Vec b) { return sum + a * b; }
};

// Two numbers in bfloat16, the first one in the low half: rounded to nearest, ties to even. With AVX512-BF16 one
// instruction multiplies and adds them; elsewhere they are taken apart, which is right but slower than Float32.
struct Bfloat16 {
  static constexpr int kDepth = 2;
  static float word(const float* numbers, int64_t next, bool last) {
    const uint32_t low = half(numbers[0]), high = last ? 0 : half(numbers[next]);
    return __builtin_bit_cast(float, low | high << 16);
  }
#if defined(__AVX512BF16__) && !defined(MANN_PORTABLE)
  static Vec words(Vec numbers, Vec next) {
    const auto wide = [](Vec v) { return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v))); };
    return reinterpret_cast<Vec>(_mm512_or_si512(wide(numbers), _mm512_slli_epi32(wide(next), 16)));
  }
  static void row(int64_t depth, const float* from, float* to) {
    int64_t k = 0;
    for (; k + 16 <= depth; k += 16, to += 8)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(from + k))));
    for (; k < depth; k += 2) *to++ = word(from + k, 1, k + 1 == depth);
  }
  static Vec add(Vec sum, float a, Vec b) {
    const auto all = _mm512_set1_epi32(__builtin_bit_cast(int32_t, a));
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(all), reinterpret_cast<__m512bh>(b));
  }
#else
  static Vec words(Vec numbers, Vec next) {
    const auto rounded = [](Vec v) {
      const Bits bits = reinterpret_cast<Bits>(v);
      return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    };
    return reinterpret_cast<Vec>(rounded(numbers) | rounded(next) << 16);
  }
  static void row(int64_t depth, const float* from, float* to) {
    for (int64_t k = 0; k < depth; k += 2) *to++ = word(from + k, 1, k + 1 == depth);
  }
  static Vec add(Vec sum, float a, Vec b) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, a);
    const float low = __builtin_bit_cast(float, bits << 16), high = __builtin_bit_cast(float, bits & 0xffff0000u);
    const Bits words = reinterpret_cast<Bits>(b);
    return sum + low * reinterpret_cast<Vec>(words << 16) + high * reinterpret_cast<Vec>(words & 0xffff0000u);
  }
#endif

 private:
  static uint32_t half(float number) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, number);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
};

// Words along a depth.
template <class Precision>
constexpr int64_t words(int64_t depth) {
  return (depth + Precision::kDepth - 1) / Precision::kDepth;
}

// One tile of C (+)= A B, with the depth in words: A(r, k) is at a[r a_row + k a_col], B(k, :) at b[k b_row], C(r, :)
// at c[r c_row].
template <class Precision, int Rows, int Vecs>
void tile(int64_t depth, const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row,
          float* c, int64_t c_row, bool accumulate) {
  Vec sum[Rows][Vecs];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vecs; ++v) sum[r][v] = accumulate ? load(c + r * c_row + v * kLanes) : Vec{};
  for (int64_t k = 0; k < depth; ++k, a += a_col, b += b_row) {
    Vec row[Vecs];
    for (int v = 0; v < Vecs; ++v) row[v] = load(b + v * kLanes);
    for (int v = 0; v < Vecs; ++v) __builtin_prefetch(b + kAhead * b_row + v * kLanes);
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vecs; ++v) sum[r][v] = Precision::add(sum[r][v], a[r * a_row], row[v]);
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vecs; ++v) store(c + r * c_row + v * kLanes, sum[r][v]);
}

template <class Precision, int Rows = kRows, int Vecs = kVecs, class... Rest>
void any_tile(int64_t rows, int64_t vecs, Rest... rest) {
  if constexpr (Rows > 1)
    if (rows < Rows) return any_tile<Precision, Rows - 1, Vecs>(rows, vecs, rest...);
  if constexpr (Vecs > 1)
    if (vecs < Vecs) return any_tile<Precision, Rows, Vecs - 1>(rows, vecs, rest...);
  tile<Precision, Rows, Vecs>(rest...);
}

// The width of the next panel of so many columns: as many vectors as a tile has, but none is left alone, since a tile of
// one vector is half as fast.
constexpr int64_t panel_width(int64_t columns) {
  return columns == kPanel + kLanes ? 2 * kLanes : std::min<int64_t>(columns, kPanel);
}

// C (rows × columns) (+)= A (rows × depth) B (depth × columns); whole vectors of columns, the depth in words.
template <class Precision = Float32>
void multiply(int64_t rows, int64_t depth, int64_t columns, const float* a, int64_t a_row, int64_t a_col,
              const float* b, int64_t b_row, float* c, int64_t c_row, bool accumulate) {
  for (int64_t j = 0, width; j < columns; j += width) {
    width = panel_width(columns - j);
    for (int64_t i = 0; i < rows; i += kRows)
      any_tile<Precision>(std::min<int64_t>(rows - i, kRows), width / kLanes, depth, a + i * a_row, a_row, a_col,
                          b + j, b_row, c + i * c_row + j, c_row, accumulate);
  }
}

// A matrix (depth × columns, whole vectors of them) to words, and zeros up to `deep` rows of them.
template <class Precision>
void interleave(int64_t depth, int64_t columns, const float* from, float* to, int64_t deep = 0) {
  std::fill(to + words<Precision>(depth) * columns, to + std::max(deep, words<Precision>(depth)) * columns, 0.0f);
  constexpr int64_t D = Precision::kDepth;
  for (int64_t k = 0; k < depth; k += D, from += D * columns, to += columns)
    for (int64_t j = 0; j < columns; j += kLanes) {
      const Vec numbers = load(from + j);
      store(to + j, Precision::words(numbers, k + D > depth ? Vec{} : load(from + (D - 1) * columns + j)));
    }
}

// Lane by lane: a(l) where l has bit S clear, b(l ^ S) where it is set; and the other halves of both.
template <int S, int... L>
inline __attribute__((always_inline)) void exchange(Vec& a, Vec& b, std::integer_sequence<int, L...>) {
  const Vec first = __builtin_shufflevector(a, b, ((L & S) ? kLanes + (L ^ S) : L)...);
  b = __builtin_shufflevector(a, b, ((L & S) ? kLanes + L : (L ^ S))...);
  a = first;
}

// Exchanges lines i and i + S in halves of S lanes, then of S / 2, and so on: at last lines and lanes have changed places.
template <int S = kLanes / 2>
inline __attribute__((always_inline)) void exchange_all(Vec* lines) {
  for (int i = 0; i < kLanes; ++i)
    if (!(i & S)) exchange<S>(lines[i], lines[i | S], std::make_integer_sequence<int, kLanes>{});
  if constexpr (S > 1) exchange_all<S / 2>(lines);
}

// A block of kLanes × kLanes numbers, of which the first `rows` rows are there and the others 0, transposed.
inline void transpose_block(int64_t rows, const float* from, int64_t from_row, float* to, int64_t to_row) {
  Vec lines[kLanes];
  for (int i = 0; i < kLanes; ++i) lines[i] = i < rows ? load(from + i * from_row) : Vec{};
  exchange_all(lines);
  for (int i = 0; i < kLanes; ++i) store(to + i * to_row, lines[i]);
}

// The rows of a matrix (rows × depth) as words, one row after the other, each with zeros up to `deep` words.
template <class Precision>
void pack_rows(int64_t rows, int64_t depth, const float* from, int64_t row, float* to, int64_t deep) {
  for (int64_t i = 0; i < rows; ++i, from += row, to += deep) {
    Precision::row(depth, from, to);
    std::fill(to + words<Precision>(depth), to + deep, 0.0f);
  }
}

// A matrix (depth × columns) in the order in which `multiply` streams it from the cache: panels of kPanel columns,
// of which the last may have fewer vectors. B(k, j) = from[k row + j column]: give the strides the other way round
// for the transpose. `to` has room for words(depth) × round_up(columns, kLanes).
template <class Precision>
void pack_panels(int64_t depth, int64_t columns, const float* from, int64_t row, int64_t column, float* to) {
  constexpr int64_t kBlock = 16;  // words at a time, so that a transpose uses all of a cache line at once
  constexpr int D = Precision::kDepth;
  const int64_t padded = round_up(columns, kLanes), deep = words<Precision>(depth);
  for (int64_t j = 0; j < padded; j += kPanel) {
    float* panel = to + j * deep;
    const int64_t width = std::min<int64_t>(padded - j, kPanel), used = std::min(columns - j, width);
    for (int64_t first = 0; first < deep; first += kBlock)
      for (int64_t k = first; k < std::min(first + kBlock, deep); ++k) {
        const float* source = from + k * D * row + j * column;
        const bool last = (k + 1) * D > depth;
        int64_t lane = 0;
        if (column == 1 && !last)
          for (; lane + kLanes <= used; lane += kLanes)
            store(panel + k * width + lane,
                  Precision::words(load(source + lane), load(source + (D - 1) * row + lane)));
        for (; lane < used; ++lane)
          panel[k * width + lane] = Precision::word(source + lane * column, row, last);
        std::fill_n(panel + k * width + used, width - used, 0.0f);
      }
  }
}

// Lane by lane: a(l) + a(l ^ S) where l has bit S clear, b(l) + b(l ^ S) where it is set.
template <int S, int... L>
Vec fold(Vec a, Vec b, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, b, ((L & S) ? kLanes + L : L)...) +
         __builtin_shufflevector(a, b, ((L & S) ? kLanes + (L ^ S) : (L ^ S))...);
}

// The sums of N vectors: lane l holds the sum of vector l mod N (N = kLanes: one sum a lane).
template <int N>
Vec sums(const Vec* vectors) {
  if constexpr (N == 1)
    return vectors[0];
  else
    return fold<N / 2>(sums<N / 2>(vectors), sums<N / 2>(vectors + N / 2),
                       std::make_integer_sequence<int, kLanes>{});
}

// C(r, j) = Σ_i A(r, i) B(j, i), with a whole number of vectors in `depth` and a multiple of 4 in `columns`.
inline void multiply_transposed(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
                                const float* b, int64_t b_row, float* c, int64_t c_row) {
  constexpr int kHeads = 4, kColumns = 4;
  for (int64_t first = 0; first < rows; first += kHeads) {
    const float* row[kHeads];
    for (int r = 0; r < kHeads; ++r) row[r] = a + std::min(first + r, rows - 1) * a_row;
    for (int64_t j = 0; j < columns; j += kColumns) {
      Vec sum[kHeads * kColumns] = {};
      for (int64_t i = 0; i < depth; i += kLanes)
        for (int s = 0; s < kColumns; ++s) {
          const Vec x = load(b + (j + s) * b_row + i);
          for (int r = 0; r < kHeads; ++r) sum[r * kColumns + s] += load(row[r] + i) * x;
        }
      alignas(64) float result[kHeads * kColumns];
      for (int n = 0; n < kHeads * kColumns; n += kLanes) store(result + n, sums<kLanes>(sum + n));
      for (int64_t r = 0; r < std::min<int64_t>(kHeads, rows - first); ++r)
        std::copy_n(result + r * kColumns, kColumns, c + (first + r) * c_row + j);
    }
  }
}

// --- elementwise functions: plain arithmetic, so that the compiler vectorises the loops that use them ---

// e^x to about 1e-7 relative: 2^n times a polynomial on [−ln 2 / 2, ln 2 / 2].
inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 · 2^23: the low bits hold n
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + exponent);
}

// ln x of a positive normal number to about 1e-7: the polynomial of Cephes on [√½, √2].
inline float fast_log(float x) {
  const int32_t bits = __builtin_bit_cast(int32_t, x), exponent = (bits - 0x3f3504f3) >> 23;
  const float r = __builtin_bit_cast(float, bits - exponent * 0x800000) - 1.0f, y = r * r;
  const float n = static_cast<float>(exponent);
  float p = 7.0376836292e-2f;
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  return (p * r * y - 2.12194440e-4f * n - 0.5f * y + r) + 0.693359375f * n;
}

inline float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

// The rational approximation of Eigen and XLA; no cancellation near zero.
inline float fast_tanh(float x) {
  x = x < -7.90531f ? -7.90531f : x;
  x = x > 7.90531f ? 7.90531f : x;
  const float y = x * x;
  float p = -2.76076847742355e-16f;
  p = p * y + 2.00018790482477e-13f;
  p = p * y - 8.60467152213735e-11f;
  p = p * y + 5.12229709037114e-08f;
  p = p * y + 1.48572235717979e-05f;
  p = p * y + 6.37261928875436e-04f;
  p = p * y + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * y + 1.18534705686654e-04f;
  q = q * y + 2.26843463243900e-03f;
  q = q * y + 4.89352518554385e-03f;
  return x * p / q;
}

inline float dot(int64_t n, const float* a, const float* b) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace mann
