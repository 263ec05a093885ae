// The controllers: one step of one episode. z is the recurrent part of the pre-activations.
#pragma once

#include "config.h"

namespace mann {

struct Lstm {
  static int64_t cells(const Config& c) { return c.H; }
  static int64_t gates(const Config& c) { return 4 * c.H; }

  // previous = c_{t−1}
  static void forward(const Config& c, const float* z, const float* projected, const float* previous,
                      const Step& step, float* hidden) {
    const int64_t H = c.H;
    float *gates = step.gates, *cell = step.cell;
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      const float f = sigmoid(z[j] + projected[j] + 1.0f);
      const float i = sigmoid(z[H + j] + projected[H + j]);
      const float o = sigmoid(z[2 * H + j] + projected[2 * H + j]);
      const float u = fast_tanh(z[3 * H + j] + projected[3 * H + j]);
      const float next = f * previous[j] + i * u;
      gates[j] = f, gates[H + j] = i, gates[2 * H + j] = o, gates[3 * H + j] = u;
      cell[j] = next;
      hidden[j] = o * fast_tanh(next);
    }
  }

  // dh: the gradient of h_t. dc: that of c_t, replaced by that of c_{t−1}.
  static void backward(const Config& c, const Step& step, const float* previous, const float* /*hidden*/,
                       const float* dh, float* dc, float* dz) {
    const int64_t H = c.H;
    const float *gates = step.gates, *cell = step.cell;
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      const float f = gates[j], i = gates[H + j], o = gates[2 * H + j], u = gates[3 * H + j];
      const float squashed = fast_tanh(cell[j]);
      const float d = dc[j] + dh[j] * o * (1 - squashed * squashed);
      dz[j] = d * previous[j] * f * (1 - f);
      dz[H + j] = d * u * i * (1 - i);
      dz[2 * H + j] = dh[j] * squashed * o * (1 - o);
      dz[3 * H + j] = d * i * (1 - u * u);
      dc[j] = d * f;
    }
  }
};

// One layer of tanh units: it has no cell, and only the reads connect its steps.
struct FeedForward {
  static int64_t cells(const Config&) { return 0; }
  static int64_t gates(const Config& c) { return c.H; }

  static void forward(const Config& c, const float* z, const float* projected, const float* /*previous*/,
                      const Step& /*step*/, float* hidden) {
#pragma omp simd
    for (int64_t j = 0; j < c.H; ++j) hidden[j] = fast_tanh(z[j] + projected[j]);
  }

  static void backward(const Config& c, const Step& /*step*/, const float* /*previous*/, const float* hidden,
                       const float* dh, float* /*dc*/, float* dz) {
#pragma omp simd
    for (int64_t j = 0; j < c.H; ++j) dz[j] = dh[j] * (1 - hidden[j] * hidden[j]);
  }
};

}  // namespace mann
