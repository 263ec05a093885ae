// A 3×3 convolution in steps of 1 with fewer products: Winograd's minimal filtering F(4×4, 3×3) (Lavin and Gray 2016,
// https://arxiv.org/abs/1509.09308). A block of 4×4 places of the output comes from 6×6 of the input. Both are
// transformed, and so are the weights, so that 36 products of numbers do the work of 144. Rounding grows a little,
// which is why gradients do without it.
#pragma once

#include <cstdint>

#include "vectors.h"

namespace mann::winograd {

constexpr int64_t kOut = 4, kIn = 6, kPoints = kIn * kIn;  // places per side of a block; points of its transform

inline int64_t blocks(int64_t places) { return (places + kOut - 1) / kOut; }  // per side

// The three transforms along one axis, whose numbers are `step` apart: Bᵀ d, G g and Aᵀ m of the paper.
inline void transform_input(const Vec* d, Vec* to, int64_t step) {
  const Vec d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
  const Vec near = d4 - 4 * d2, far = d3 - 4 * d1, even = d4 - d2, odd = 2 * (d3 - d1);
  to[0] = 4 * d0 - 5 * d2 + d4;
  to[step] = near + far, to[2 * step] = near - far;
  to[3 * step] = even + odd, to[4 * step] = even - odd;
  to[5 * step] = 4 * d1 - 5 * d3 + d5;
}

inline void transform_weights(Vec g0, Vec g1, Vec g2, Vec* to, int64_t step) {
  const Vec sixth = -(g0 + g2) / 6, middle = g1 / 6, outer = g0 / 24 + g2 / 6, half = g1 / 12;
  to[0] = g0 / 4;
  to[step] = sixth - middle, to[2 * step] = sixth + middle;
  to[3 * step] = outer + half, to[4 * step] = outer - half;
  to[5 * step] = g2;
}

inline void transform_output(const Vec* m, Vec* to, int64_t step) {
  const Vec m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step];
  const Vec near = m1 + m2, apart = m1 - m2, far = m3 + m4, wide = m3 - m4;
  to[0] = m[0] + near + far;
  to[step] = apart + 2 * wide;
  to[2 * step] = near + 4 * far;
  to[3 * step] = apart + 8 * wide + m[5 * step];
}

// weights (9, from, maps) to (points, from, maps).
inline void prepare_weights(int64_t from, int64_t maps, const float* weights, float* to) {
  const int64_t size = from * maps;
  Vec rows[3 * kIn], points[kPoints];
  for (int64_t i = 0; i < size; i += kLanes) {
    for (int64_t x = 0; x < 3; ++x)
      transform_weights(load(weights + x * size + i), load(weights + (3 + x) * size + i),
                        load(weights + (6 + x) * size + i), rows + x, 3);
    for (int64_t y = 0; y < kIn; ++y)
      transform_weights(rows[3 * y], rows[3 * y + 1], rows[3 * y + 2], points + kIn * y, 1);
    for (int64_t p = 0; p < kPoints; ++p) store(to + p * size + i, points[p]);
  }
}

// What a line of blocks of the output sees of x (side, side, N, from): to (points, blocks, N, from).
inline void prepare_line(int64_t line, int64_t side, int64_t N, int64_t from, const float* x, float* to) {
  const int64_t across = blocks(side), size = across * N * from;
  Vec seen[kPoints], half[kPoints];
  for (int64_t block = 0; block < across; ++block) {
    const int64_t top = line * kOut - 1, left = block * kOut - 1;
    for (int64_t i = 0; i < N * from; i += kLanes) {
      for (int64_t p = 0; p < kPoints; ++p) {
        const int64_t row = top + p / kIn, column = left + p % kIn;
        const bool inside = row >= 0 && row < side && column >= 0 && column < side;
        seen[p] = inside ? load(x + (row * side + column) * N * from + i) : Vec{};
      }
      for (int64_t c = 0; c < kIn; ++c) transform_input(seen + c, half + c, kIn);
      for (int64_t r = 0; r < kIn; ++r) transform_input(half + kIn * r, seen + kIn * r, 1);
      for (int64_t p = 0; p < kPoints; ++p) store(to + p * size + block * N * from + i, seen[p]);
    }
  }
}

// The products (points, blocks, N, maps) of a line of blocks to z (side, side, N, maps).
inline void finish_line(int64_t line, int64_t side, int64_t N, int64_t maps, const float* products, float* z) {
  const int64_t across = blocks(side), size = across * N * maps;
  Vec seen[kPoints], half[kOut * kIn], out[kOut * kOut];
  for (int64_t block = 0; block < across; ++block)
    for (int64_t i = 0; i < N * maps; i += kLanes) {
      for (int64_t p = 0; p < kPoints; ++p) seen[p] = load(products + p * size + block * N * maps + i);
      for (int64_t c = 0; c < kIn; ++c) transform_output(seen + c, half + c, kIn);
      for (int64_t r = 0; r < kOut; ++r) transform_output(half + kIn * r, out + kOut * r, 1);
      for (int64_t r = 0; r < kOut; ++r)
        for (int64_t c = 0; c < kOut; ++c) {
          const int64_t row = line * kOut + r, column = block * kOut + c;
          if (row < side && column < side) store(z + (row * side + column) * N * maps + i, out[kOut * r + c]);
        }
    }
}

}  // namespace mann::winograd
