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

#include "vectors.h"

namespace mann {

struct Iterations {
  int64_t steps;
  float a, b, c;
};

template <class Precision>
class NewtonSchulz {
 public:
  // For blocks of up to this many rows and columns.
  NewtonSchulz(int64_t rows, int64_t columns)
      : n(std::min(rows, columns)), m(std::max(rows, columns)), tall(rows > columns), n_(round_up(n, kLanes)),
        m_(round_up(m, kLanes)), deep(words<Precision>(n)), scaled(rows * round_up(columns, kLanes), false),
        x(words<Precision>(m) * n_, false), right(tall ? m * deep : deep * m_, false), s(n_ * n_, false),
        p(n_ * n_, false), q(n_ * n_, false), t(n_ * n_, false), packed_s(deep * n_, false),
        packed_p(deep * n_, false), packed(deep * n_, false) {
    for (float* matrix : {&s[0], &p[0], &q[0], &t[0]})  // columns that pad the rows
      for (int64_t i = 0; i < n; ++i) std::fill(matrix + i * n_ + n, matrix + (i + 1) * n_, 0.0f);
  }

  // `from` (rows × columns, with `row` numbers from one row to the next) to `to`, without gaps.
  void operator()(const Iterations& iterations, const float* from, int64_t row, float* to) {
    const int64_t rows = tall ? m : n, columns = tall ? n : m, width = tall ? n_ : m_;
    const auto [steps, a, b, c] = iterations;
    normalise(rows, columns, from, row, width);
    if (tall) {
      interleave<Precision>(m, n_, scaled, x);
    } else {  // Xᵀ
      Buffer turned(m_ * n_, false);
      for (int64_t i = 0; i < n_; i += kLanes)
        for (int64_t j = 0; j < m_; j += kLanes)
          transpose_block(std::min<int64_t>(n - i, kLanes), scaled + i * m_ + j, m_, turned + j * n_ + i, n_);
      interleave<Precision>(m, n_, turned, x);
    }
    square(words<Precision>(m), x, x, s);
    float identity = a;  // Q's multiple of it
    for (int64_t step = 0; step < steps; ++step) {
      const float* words_s = pack(s, packed_s);
      square(deep, words_s, words_s, p);
      combine(p, c, s, b);
      const float* words_p = pack(p, packed_p);
      if (step == 0) {
        std::copy_n(static_cast<float*>(p), n * n_, static_cast<float*>(q));
      } else {  // (a + P)(identity + Q)
        square(deep, words_p, pack(q, packed), t);
        for (int64_t i = 0; i < n * n_; ++i) q[i] = a * q[i] + identity * p[i] + t[i];
        identity *= a;
      }
      if (step + 1 == steps) break;
      square(deep, words_p, words_s, t);  // (a + P)² S
      combine(t, 1, s, a);
      square(deep, words_p, pack(t, packed), s);
      combine(s, 1, t, a);
    }

    const float* words_q = pack(q, packed);
    Buffer result(rows * width, false);
    if (tall) {  // Gᵀ = Q X: G = Xᵀ Q
      for (int64_t i = 0; i < m; ++i) Precision::row(n, scaled + i * n_, right + i * deep);
      multiply<Precision>(m, deep, n_, right, deep, 1, words_q, n_, result, n_, false);
    } else {
      interleave<Precision>(n, m_, scaled, right);
      multiply<Precision>(n, deep, m_, words_q, 1, n_, right, m_, result, m_, false);
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        to[i * columns + j] = identity * scaled[i * width + j] + result[i * width + j];
  }

 private:
  void normalise(int64_t rows, int64_t columns, const float* from, int64_t row, int64_t width) {
    float sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += dot(columns, from + i * row, from + i * row);
    const float scale = 1 / (std::sqrt(sum) + 1e-7f);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) scaled[i * width + j] = from[i * row + j] * scale;
      std::fill(scaled + i * width + columns, scaled + (i + 1) * width, 0.0f);
    }
  }

  // The words of a symmetric matrix: the matrix itself in single precision.
  const float* pack(const float* matrix, float* to) {
    if constexpr (Precision::kDepth == 1) return matrix;
    interleave<Precision>(n, n_, matrix, to);
    return to;
  }

  // to = factor to + other_factor other.
  void combine(float* to, float factor, const float* other, float other_factor) {
#pragma omp simd
    for (int64_t i = 0; i < n * n_; ++i) to[i] = factor * to[i] + other_factor * other[i];
  }

  // A product AᵀB that is known to be symmetric, of two matrices (depth × n): tiles from the diagonal on, and their
  // mirror image.
  void square(int64_t depth, const float* left, const float* right_, float* to) {
    for (int64_t i = 0; i < n; i += kRows) {
      const int64_t columns = round_up(n - i, kLanes), first = std::min(i, n_ - columns);
      multiply<Precision>(std::min<int64_t>(n - i, kRows), depth, columns, left + i, 1, n_, right_ + first, n_,
                          to + i * n_ + first, n_, false);
    }
    for (int64_t i = 0; i < n_; i += kLanes) {
      for (int64_t r = i + 1; r < std::min(i + kLanes, n); ++r)
        for (int64_t k = i; k < r; ++k) to[r * n_ + k] = to[k * n_ + r];
      for (int64_t j = i + kLanes; j < n_; j += kLanes)
        transpose_block(std::min<int64_t>(n - i, kLanes), to + i * n_ + j, n_, to + j * n_ + i, n_);
    }
  }

  const int64_t n, m;
  const bool tall;
  const int64_t n_, m_, deep;
  Buffer scaled;  // G / |G|, with rows padded
  Buffer x;       // the words of Xᵀ
  Buffer right;   // those of its rows if tall, else of X
  Buffer s, p, q, t;
  Buffer packed_s, packed_p, packed;
};

}  // namespace mann
