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
        m_(round_up(m, kLanes)), deep(words<Precision>(n)), x(words<Precision>(m) * n_, false),
        rows_(tall ? m * deep : 0, false), right(tall ? 0 : deep * m_, false), scaled(rows * columns, false),
        result((tall ? m * n_ : n * m_), false), s(n * n_), p(n * n_), q(n * n_), t(n * n_),
        packed_s(deep * n_), packed_p(deep * n_), packed(deep * n_) {}

  // `from` (rows × columns, with `row` numbers from one row to the next) to `to`, without gaps.
  void operator()(const Iterations& iterations, const float* from, int64_t row, float* to) {
    const int64_t rows = tall ? m : n, columns = tall ? n : m;
    const auto [steps, a, b, c] = iterations;
    normalise(rows, columns, from, row);
    const int64_t along = tall ? columns : 1, across = tall ? 1 : columns;  // strides of Xᵀ (m × n) in `scaled`
    pack_panels<Precision>(m, n, scaled, along, across, x);
    square(words<Precision>(m), x, x, s);
    float identity = a;  // Q's multiple of it
    for (int64_t step = 0; step < steps; ++step) {
      pack(s, packed_s);
      square(deep, packed_s, packed_s, p);
      combine(p, c, s, b);
      pack(p, packed_p);
      if (step == 0) {
        std::copy_n(static_cast<float*>(p), n * n_, static_cast<float*>(q));
      } else {  // (a + P)(identity + Q)
        pack(q, packed);
        square(deep, packed_p, packed, t);
        for (int64_t i = 0; i < n * n_; ++i) q[i] = a * q[i] + identity * p[i] + t[i];
        identity *= a;
      }
      if (step + 1 == steps) break;
      square(deep, packed_p, packed_s, t);  // (a + P)² S
      combine(t, 1, s, a);
      pack(t, packed);
      square(deep, packed_p, packed, s);
      combine(s, 1, t, a);
    }

    pack(q, packed);
    const int64_t width = tall ? n_ : m_;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) result[i * width + j] = identity * scaled[i * columns + j];
    if (tall) {  // Gᵀ = Q X: G = Xᵀ Q
      pack_rows<Precision>(m, n, scaled, n, rows_);
      for (int64_t j = 0; j < n_; j += kPanel) {
        const int64_t wide = std::min<int64_t>(n_ - j, kPanel);
        multiply<Precision>(m, deep, wide, rows_, deep, 1, packed + j * deep, wide, result + j, n_, true);
      }
    } else {
      pack_panels<Precision>(n, m, scaled, m, 1, right);
      for (int64_t j = 0; j < m_; j += kPanel) {
        const int64_t wide = std::min<int64_t>(m_ - j, kPanel);
        for (int64_t i = 0; i < n_; i += kPanel) {
          const int64_t high = std::min<int64_t>(n_ - i, kPanel);
          multiply<Precision>(std::min(high, n - i), deep, wide, packed + i * deep, 1, high, right + j * deep, wide,
                              result + i * m_ + j, m_, true);
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i) std::copy_n(result + i * width, columns, to + i * columns);
  }

 private:
  void normalise(int64_t rows, int64_t columns, const float* from, int64_t row) {
    float sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += dot(columns, from + i * row, from + i * row);
    const float scale = 1 / (std::sqrt(sum) + 1e-7f);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) scaled[i * columns + j] = from[i * row + j] * scale;
  }

  void pack(const float* matrix, float* panels) { pack_panels<Precision>(n, n, matrix, n_, 1, panels); }

  // to = factor to + other_factor other.
  void combine(float* to, float factor, const float* other, float other_factor) {
#pragma omp simd
    for (int64_t i = 0; i < n * n_; ++i) to[i] = factor * to[i] + other_factor * other[i];
  }

  // A product AᵀB that is known to be symmetric, of two matrices (depth × n) in panels: tiles from the diagonal
  // on, and their mirror image.
  void square(int64_t depth, const float* left, const float* right_, float* to) {
    for (int64_t j = 0; j < n_; j += kPanel) {
      const int64_t wide = std::min<int64_t>(n_ - j, kPanel);
      for (int64_t i = 0; i < std::min(j + wide, n); i += kRows) {
        const int64_t panel = i / kPanel * kPanel, high = std::min<int64_t>(n_ - panel, kPanel);
        const int64_t skipped = std::max<int64_t>(i - j, 0) / kLanes * kLanes;  // columns before the diagonal
        any_tile<Precision>(std::min<int64_t>(n - i, kRows), (wide - skipped) / kLanes, depth,
                            left + panel * depth + (i - panel), 1, high, right_ + j * depth + skipped, wide,
                            to + i * n_ + j + skipped, n_, false);
      }
    }
    constexpr int64_t kBlock = 16;
    for (int64_t i = 0; i < n; i += kBlock)
      for (int64_t j = 0; j <= i; j += kBlock)
        for (int64_t r = i; r < std::min(i + kBlock, n); ++r)
          for (int64_t k = j; k < std::min(j + kBlock, r); ++k) to[r * n_ + k] = to[k * n_ + r];
  }

  const int64_t n, m;
  const bool tall;
  const int64_t n_, m_, deep;
  Buffer x;       // Xᵀ in panels
  Buffer rows_;   // Xᵀ in rows, if tall
  Buffer right;   // X in panels, if not
  Buffer scaled;  // G / |G|
  Buffer result;
  Buffer s, p, q, t;
  Buffer packed_s, packed_p, packed;
};

}  // namespace mann
