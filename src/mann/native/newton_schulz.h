// Newton–Schulz iterations: the matrix G = U S Vᵀ becomes about U Vᵀ (training/muon.py).
//
// With X = G / |G|, turned so that it has n rows and m ≥ n columns, an iteration is X ← P X with
// P = a + b S + c S², S = X Xᵀ. P and S commute and are symmetric, so that X itself is needed only at either end:
//
//     S ← P² S,  Q ← P Q,  and at last X ← Q X.
//
// All products but the last are of n × n matrices, and only the half above the diagonal is computed. P and Q are
// held without their multiple of the identity, which would lose the small entries to rounding in bfloat16. In
// bfloat16 the singular values near 1 come out least exact, by up to a fifth for a matrix of rank one, because
// there Q cancels most of that multiple; the rest is good to about a hundredth.
#pragma once

#include "tiles.h"

namespace mann {

struct Iterations {
  int64_t steps;
  float a, b, c;
};

template <class Precision>
class NewtonSchulz {
  static constexpr bool kTiled = std::is_same_v<Precision, Tiled>;

  // A matrix as the left factor of a product and as the right one. They are the same words of two rows, for a left
  // factor is taken transposed, and symmetric matrices are their own transpose; but tiles want rows.
  struct Factor {
    const float *left, *right;
  };

 public:
  // For blocks of up to this many rows and columns.
  NewtonSchulz(int64_t rows, int64_t columns)
      : n(std::min(rows, columns)), m(std::max(rows, columns)), tall(rows > columns), n_(padded(n)), m_(padded(m)),
        deep(words_of(n)), scaled(rows * padded(columns), false), x(room(words_of(m)), false),
        ends(tall ? m * deep : deep * m_, false), s(n_ * n_, false), p(n_ * n_, false), q(n_ * n_, false),
        t(n_ * n_, false), packed_s(room(deep), false), packed_p(room(deep), false), packed(room(deep), false) {
    for (float* matrix : {&s[0], &p[0], &q[0], &t[0]})  // columns that pad the rows
      for (int64_t i = 0; i < n; ++i) std::fill(matrix + i * n_ + n, matrix + (i + 1) * n_, 0.0f);
  }

  // `from` (rows × columns, with `row` numbers from one row to the next) to `to`, without gaps.
  void operator()(const Iterations& iterations, const float* from, int64_t row, float* to) {
    const int64_t rows = tall ? m : n, columns = tall ? n : m, width = tall ? n_ : m_;
    const auto [steps, a, b, c] = iterations;
    normalise(rows, columns, from, row, width);
    square(words_of(m), pack_x(), s);
    float identity = a;  // Q's multiple of it
    for (int64_t step = 0; step < steps; ++step) {
      const Factor words_s = pack(s, packed_s);
      square(deep, words_s, p);
      combine(p, c, s, b);
      const Factor words_p = pack(p, packed_p);
      if (step == 0) {
        std::copy_n(static_cast<float*>(p), n * n_, static_cast<float*>(q));
      } else {  // (a + P)(identity + Q)
        square(deep, {words_p.left, pack(q, packed).right}, t);
        combine(q, a, p, identity);
        combine(q, 1, t, 1);
        identity *= a;
      }
      if (step + 1 == steps) break;
      square(deep, {words_p.left, words_s.right}, t);  // (a + P)² S
      combine(t, 1, s, a);
      square(deep, {words_p.left, pack(t, packed).right}, s);
      combine(s, 1, t, a);
    }

    const Factor words_q = pack(q, packed);
    Buffer result(rows * width, false);
    if (tall) {  // Gᵀ = Q X: G = Xᵀ Q
      pack_rows<Precision>(m, n, scaled, n_, ends, deep);
      if constexpr (kTiled)
        multiply_in_tiles(m, 1, &whole, deep, n_, ends, 0, deep, words_q.right, 0, n_, result, n_, false);
      else
        multiply<Precision>(m, deep, n_, ends, deep, 1, words_q.right, n_, result, n_, false);
    } else {
      interleave<Precision>(n, m_, scaled, ends, deep);
      if constexpr (kTiled)
        multiply_in_tiles(n, 1, &whole, deep, m_, words_q.left, 0, deep, ends, 0, m_, result, m_, false);
      else
        multiply<Precision>(n, deep, m_, words_q.left, 1, n_, ends, m_, result, m_, false);
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        to[i * columns + j] = identity * scaled[i * width + j] + result[i * width + j];
  }

 private:
  static int64_t padded(int64_t columns) { return round_up(columns, kTiled ? kTile : kLanes); }
  static int64_t words_of(int64_t depth) {
    return kTiled ? round_up(words<Precision>(depth), kTile) : words<Precision>(depth);
  }
  // For the factors of a product of so many words; in tiles for both of them.
  int64_t room(int64_t depth) const { return depth * (kTiled ? n + n_ : n_); }

  void normalise(int64_t rows, int64_t columns, const float* from, int64_t row, int64_t width) {
    float sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += dot(columns, from + i * row, from + i * row);
    const float scale = 1 / (std::sqrt(sum) + 1e-7f);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) scaled[i * width + j] = from[i * row + j] * scale;
      std::fill(scaled + i * width + columns, scaled + (i + 1) * width, 0.0f);
    }
  }

  // X and Xᵀ, for X Xᵀ.
  Factor pack_x() {
    const int64_t rows = tall ? m : n, rows_ = tall ? m_ : n_, columns_ = tall ? n_ : m_, deep_m = words_of(m);
    if (tall && !kTiled) {
      interleave<Precision>(m, n_, scaled, x);
      return {x, x};
    }
    Buffer turned(columns_ * rows_, false);
    for (int64_t i = 0; i < rows_; i += kLanes)
      for (int64_t j = 0; j < columns_; j += kLanes)
        transpose_block(std::min<int64_t>(rows - i, kLanes), scaled + i * columns_ + j, columns_,
                        turned + j * rows_ + i, rows_);
    interleave<Precision>(m, n_, tall ? scaled : turned, x, deep_m);
    if constexpr (!kTiled) return {x, x};
    float* left = x + deep_m * n_;
    pack_rows<Precision>(n, m, tall ? turned : scaled, m_, left, deep_m);
    return {left, x};
  }

  // The words of a symmetric matrix, of which the half from the diagonal on is there: the matrix itself in single
  // precision.
  Factor pack(float* matrix, float* to) {
    mirror(matrix);
    if constexpr (Precision::kDepth == 1) return {matrix, matrix};
    interleave<Precision>(n, n_, matrix, to, deep);
    if constexpr (!kTiled) return {to, to};
    pack_rows<Precision>(n, n, matrix, n_, to + deep * n_, deep);
    return {to + deep * n_, to};
  }

  // to = factor to + other_factor other, from the diagonal on.
  void combine(float* to, float factor, const float* other, float other_factor) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = i * n_ + i / kLanes * kLanes; k < (i + 1) * n_; k += kLanes)
        store(to + k, factor * load(to + k) + other_factor * load(other + k));
  }

  // What is before the diagonal is what is beyond it.
  void mirror(float* matrix) {
    for (int64_t i = 0; i < n_; i += kLanes) {
      for (int64_t r = i + 1; r < std::min(i + kLanes, n); ++r)
        for (int64_t k = i; k < r; ++k) matrix[r * n_ + k] = matrix[k * n_ + r];
      for (int64_t j = i + kLanes; j < n_; j += kLanes)
        transpose_block(std::clamp<int64_t>(n - i, 0, kLanes), matrix + i * n_ + j, n_, matrix + j * n_ + i, n_);
    }
  }

  // A product that is known to be symmetric (n × n), from the diagonal on.
  void square(int64_t depth, const Factor& factors, float* to) {
    constexpr int64_t kHigh = kTiled ? kTile : kRows;
    for (int64_t i = 0; i < n; i += kHigh) {
      const int64_t columns = padded(n - i), first = std::min(i, n_ - columns), high = std::min(n - i, kHigh);
      if constexpr (kTiled)
        multiply_in_tiles(high, 1, &whole, depth, columns, factors.left + i * depth, 0, depth, factors.right + first, 0,
                          n_, to + i * n_ + first, n_, false);
      else
        multiply<Precision>(high, depth, columns, factors.left + i, 1, n_, factors.right + first, n_,
                            to + i * n_ + first, n_, false);
    }
  }

  static constexpr Pair whole{0, 0};
  const int64_t n, m;
  const bool tall;
  const int64_t n_, m_, deep;
  Buffer scaled;  // G / |G|, with rows padded
  Buffer x;       // the words of X and Xᵀ
  Buffer ends;    // those of the last product: of the rows of Xᵀ if tall, else of X
  Buffer s, p, q, t;
  Buffer packed_s, packed_p, packed;
};

}  // namespace mann
