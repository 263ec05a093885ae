// Addressing by content and reading (eqs 2–4): what the memories have in common. One episode at a time, with its
// memory transposed and padded, (W', M').
#pragma once

#include <cmath>

#include "config.h"

namespace mann {

constexpr float kEpsilon = 1e-6f;  // addressing.EPSILON

class Content {
 public:
  // With scratch for up to `most` heads.
  Content(const Config& config, int64_t most)
      : c(config), M_(c.M_()), W_(c.W_()), s(2 * most * M_), inverse(M_), diagonal(M_), keys(2 * most * W_),
        padded(most * W_) {}

  // eqs 2, 3: the weights (heads, M') of the keys k (heads, W), each with its strength β.
  template <class Strength>
  void address(int64_t heads, const float* k, const Strength& beta_of, const float* memory, float* weights) {
    similarity(heads, k, memory, heads);
    for (int64_t h = 0; h < heads; ++h) {
      const float *row = s + h * M_, beta = beta_of(h);
      float* weight = weights + h * M_;
      float largest = row[0], sum = 0;
#pragma omp simd reduction(max : largest)
      for (int64_t i = 0; i < c.M; ++i) largest = row[i] > largest ? row[i] : largest;
#pragma omp simd
      for (int64_t i = 0; i < M_; ++i) weight[i] = fast_exp(beta * (row[i] - largest));
      std::fill(weight + c.M, weight + M_, 0.0f);
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < M_; ++i) sum += weight[i];
      for (int64_t i = 0; i < M_; ++i) weight[i] *= 1 / sum;
    }
  }

  // eq 4: the reads (heads, W).
  void read(int64_t heads, const float* weights, const float* memory, float* reads) {
    multiply_transposed(heads, W_, M_, weights, M_, memory, M_, padded, W_);
    for (int64_t h = 0; h < heads; ++h) std::copy_n(padded + h * W_, c.W, reads + h * c.W);
  }

  // The gradient goes through `backward_read`, `backward_weights` for each head, and `backward_keys`.
  //
  // eq 4: adds the part of the reads to the gradient of the weights. Without dreads (null) there is none; the
  // similarities of the keys are made ready in any case.
  void backward_read(int64_t heads, const float* k, const float* memory, const float* dreads,
                     float* dweights) {
    if (dreads)
      for (int64_t h = 0; h < heads; ++h) std::copy_n(dreads + h * c.W, c.W, keys + (heads + h) * W_);
    similarity(heads, k, memory, dreads ? 2 * heads : heads);
    if (dreads)
      for (int64_t i = 0; i < heads * M_; ++i) dweights[i] += s[heads * M_ + i];
    std::fill_n(static_cast<float*>(diagonal), M_, 0.0f);
  }

  // eq 3, then the slots' norms in eq 2, for head h. d: the gradient of its content weights; it is used up.
  // Returns the gradient of β.
  float backward_weights(int64_t h, const float* weight, float beta, float* d) {
    float *cosine = s + h * M_, *inverse_ = inverse, *diagonal_ = diagonal;
    const float mean = dot(M_, weight, d);
    for (int64_t i = 0; i < M_; ++i) d[i] = weight[i] * (d[i] - mean);
    const float dbeta = dot(M_, d, cosine);
#pragma omp simd
    for (int64_t i = 0; i < M_; ++i) {
      const float dproduct = beta * d[i] * inverse_[i];  // of the product of unit key and slot
      diagonal_[i] -= dproduct * cosine[i] * inverse_[i];
      cosine[i] = dproduct;
    }
    return dbeta;
  }

  // eqs 2, 4: adds to the gradient of the memory; that of the keys to dkeys (heads, W'). read_weights are those
  // of eq 4, or null if nothing was read.
  void backward_keys(int64_t heads, const float* k, const float* read_weights, const float* memory,
                     float* dmemory, float* dkeys) {
    multiply_transposed(heads, W_, M_, s, M_, memory, M_, dkeys, W_);
    if (read_weights) std::copy_n(read_weights, heads * M_, s + heads * M_);
    multiply(c.W, read_weights ? 2 * heads : heads, M_, keys, 1, W_, s, M_, dmemory, M_, true);
    const float* diagonal_ = diagonal;
    for (int64_t j = 0; j < c.W; ++j)
#pragma omp simd
      for (int64_t i = 0; i < M_; ++i) dmemory[j * M_ + i] += diagonal_[i] * memory[j * M_ + i];
    for (int64_t h = 0; h < heads; ++h) {  // through the keys' norms
      const float *key = k + h * c.W, *unit = keys + h * W_;
      float* d = dkeys + h * W_;
      const float scale = 1 / std::sqrt(dot(c.W, key, key) + kEpsilon), along = dot(c.W, unit, d);
      for (int64_t j = 0; j < c.W; ++j) d[j] = scale * (d[j] - along * unit[j]);
    }
  }

 private:
  // Unit keys to `keys`, K(k, M(i)) to `s` (eq 2) and the slots' inverse norms to `inverse`. Further rows of
  // `keys`, up to `rows`, are multiplied with M too, but not scaled.
  void similarity(int64_t heads, const float* k, const float* memory, int64_t rows) {
    for (int64_t h = 0; h < heads; ++h, k += c.W) {
      const float scale = 1 / std::sqrt(dot(c.W, k, k) + kEpsilon);
      for (int64_t j = 0; j < c.W; ++j) keys[h * W_ + j] = k[j] * scale;
    }
    multiply(rows, c.W, M_, keys, W_, 1, memory, M_, s, M_, false);
    std::fill_n(static_cast<float*>(inverse), M_, kEpsilon);
    for (const float* row = memory; row < memory + W_ * M_; row += 4 * M_) {
      const float *second = row + M_, *third = second + M_, *fourth = third + M_;
#pragma omp simd
      for (int64_t i = 0; i < M_; ++i)
        inverse[i] += row[i] * row[i] + second[i] * second[i] + third[i] * third[i] + fourth[i] * fourth[i];
    }
    for (int64_t i = 0; i < M_; ++i) inverse[i] = 1 / std::sqrt(inverse[i]);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < M_; ++i) s[h * M_ + i] *= inverse[i];
  }

  const Config& c;
  const int64_t M_, W_;
  Buffer s;         // (2 most, M') cosines, then their gradients; in the backward pass also those of the reads
  Buffer inverse;   // (M')         1 / |M(i)|
  Buffer diagonal;  // (M')         the gradient through |M(i)|
  Buffer keys;      // (2 most, W') unit keys; in the backward pass also the gradients of the reads
  Buffer padded;    // (most, W')
};

}  // namespace mann
