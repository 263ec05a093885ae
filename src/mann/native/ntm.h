// The access module of the Neural Turing Machine (Graves et al. 2014, whose equations are meant here by "NTM
// eq"): memory/ntm.py. Its writes cannot be undone safely, so that there is a checkpoint of M before every step.
#pragma once

#include "addressing.h"

namespace mann {

// The heads' parameters are keys (N, W) | addressing (N, 6) | erase (W) | add (W), with N = R + 1 and the write
// head last. They are recorded after their activations, except those of the addressing.
class Ntm {
 public:
  static void options(Attributes& attributes, Config& c) { c.strength = attributes.number("strength"); }
  static int64_t parameters(const Config& c) { return c.N * (c.W + 6) + 2 * c.W; }
  static int64_t extra(const Config& c) { return c.N * c.M_(); }
  static int64_t usage(const Config&) { return 0; }

  explicit Ntm(const Config& config)
      : c(config), M_(c.M_()), W_(c.W_()), content(c, c.N), gated(M_ + 2), shifted(M_), dshifted(M_ + 2),
        dkeys(c.N * W_) {}

  // In: memory = M_{t−1}, previous = w_{t−1}, step.heads before their activations.
  // Out: memory = M_t, reads = r_t, the rest of the step. An NTM keeps no usage.
  void forward(const Step& step, const float* previous, float* memory, float* /*usage*/, float* reads,
               float* /*written*/) {
    float* heads = step.heads;
#pragma omp simd
    for (int64_t j = 0; j < addressing(0); ++j) heads[j] = fast_tanh(heads[j]);
#pragma omp simd
    for (int64_t j = 0; j < c.W; ++j) {
      heads[erase() + j] = sigmoid(heads[erase() + j]);
      heads[add() + j] = fast_tanh(heads[add() + j]);
    }
    address(c.R, 1, step, previous, memory);
    const float *w = step.weights + c.R * M_, *e = heads + erase(), *a = heads + add();
    for (int64_t j = 0; j < c.W; ++j)  // NTM eqs 3, 4
#pragma omp simd
      for (int64_t i = 0; i < M_; ++i)
        memory[j * M_ + i] = memory[j * M_ + i] * (1 - w[i] * e[j]) + w[i] * a[j];
    address(0, c.R, step, previous, memory);
    content.read(c.R, step.weights, memory, reads);  // NTM eq 2
  }

  // In: memory = M_t, checkpoint = M_{t−1}, previous = w_{t−1}, and the gradients dmemory (of M_t), dreads,
  // dweights (of w_t). Out: memory = M_{t−1}, dmemory (of M_{t−1}), dprevious (of w_{t−1}), dheads (of the
  // pre-activations).
  void backward(const Step& step, const float* previous, const float* checkpoint, float* memory,
                float* dmemory, const float* dreads, float* dweights, const float* /*dwritten*/,
                float* dprevious, float* dheads) {
    const float* heads = step.heads;
    backward_address(0, c.R, step, previous, memory, dreads, dmemory, dweights, dprevious, dheads);

    const float *w = step.weights + c.R * M_, *e = heads + erase(), *a = heads + add();
    float* dw = dweights + c.R * M_;
    for (int64_t j = 0; j < c.W; ++j) {  // NTM eqs 3, 4
      const float *before = checkpoint + j * M_, e_j = e[j], a_j = a[j];
      float *now = memory + j * M_, *d = dmemory + j * M_, erased = 0, added = 0;
#pragma omp simd reduction(+ : erased, added)
      for (int64_t i = 0; i < M_; ++i) {
        erased -= d[i] * w[i] * before[i];
        added += d[i] * w[i];
        dw[i] += d[i] * (a_j - e_j * before[i]);
        d[i] *= 1 - w[i] * e_j;
        now[i] = before[i];
      }
      dheads[erase() + j] = erased * e_j * (1 - e_j);
      dheads[add() + j] = added * (1 - a_j * a_j);
    }
    backward_address(c.R, 1, step, previous, memory, nullptr, dmemory, dweights, dprevious, dheads);
    for (int64_t h = 0; h < c.N; ++h)
      for (int64_t j = 0; j < c.W; ++j) {
        const int64_t k = h * c.W + j;
        dheads[k] = dkeys[h * W_ + j] * (1 - heads[k] * heads[k]);
      }
  }

 private:
  // Where the parameters of each kind begin.
  int64_t addressing(int64_t head) const { return c.N * c.W + 6 * head; }
  int64_t erase() const { return addressing(c.N); }
  int64_t add() const { return erase() + c.W; }

  // What a head's six parameters for addressing mean.
  struct Location {
    float strength, gate, moves[3], exponent;

    Location(const Config& c, const float* raw)
        : strength(softplus(raw[0] + c.strength)), gate(sigmoid(raw[1])), exponent(1 + softplus(raw[5])) {
      const float largest = std::max({raw[2], raw[3], raw[4]});
      for (int m = 0; m < 3; ++m) moves[m] = fast_exp(raw[2 + m] - largest);
      const float sum = moves[0] + moves[1] + moves[2];
      for (float& move : moves) move /= sum;
    }
  };

  Location location(const Step& step, int64_t h) const { return Location(c, step.heads + addressing(h)); }

  // The content weights (to step.extra) and the weights of `heads` heads, from `first` on (NTM eqs 5–9).
  void address(int64_t first, int64_t heads, const Step& step, const float* previous, const float* memory) {
    content.address(heads, step.heads + first * c.W,
                    [&](int64_t h) { return location(step, first + h).strength; }, memory,
                    step.extra + first * M_);
    for (int64_t h = first; h < first + heads; ++h) {
      const Location at = location(step, h);
      const float scale = 1 / shift(at, step.extra + h * M_, previous + h * M_);
      float *weight = step.weights + h * M_, *shifted_ = shifted, sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < c.M; ++i) {
        weight[i] = fast_exp(at.exponent * fast_log(shifted_[i] * scale + kEpsilon));
        sum += weight[i];
      }
      for (int64_t i = 0; i < c.M; ++i) weight[i] *= 1 / sum;
      std::fill(weight + c.M, weight + M_, 0.0f);
    }
  }

  // Weights after the gate to `gated`, from its second entry on, between copies of the last and the first;
  // after the shift to `shifted`. Returns the largest of these (NTM eqs 7, 8).
  float shift(const Location& at, const float* content_weights, const float* previous) {
    float *gated_ = gated, *shifted_ = shifted, peak = 0;
#pragma omp simd
    for (int64_t i = 0; i < c.M; ++i)
      gated_[i + 1] = at.gate * content_weights[i] + (1 - at.gate) * previous[i];
    gated_[0] = gated_[c.M], gated_[c.M + 1] = gated_[1];
    const float back = at.moves[0], stay = at.moves[1], on = at.moves[2];
#pragma omp simd reduction(max : peak)
    for (int64_t i = 0; i < c.M; ++i) {
      shifted_[i] = back * gated_[i + 2] + stay * gated_[i + 1] + on * gated_[i];
      peak = shifted_[i] > peak ? shifted_[i] : peak;
    }
    return peak;
  }

  // The gradient of `address` and of the reads, if dreads is not null. dweights is used up.
  void backward_address(int64_t first, int64_t heads, const Step& step, const float* previous,
                        const float* memory, const float* dreads, float* dmemory, float* dweights,
                        float* dprevious, float* dheads) {
    const float* keys = step.heads + first * c.W;
    content.backward_read(heads, keys, memory, dreads, dweights + first * M_);
    for (int64_t h = first; h < first + heads; ++h) {
      const float* raw = step.heads + addressing(h);
      const Location at = location(step, h);
      float *draw = dheads + addressing(h), *d = dweights + h * M_;
      backward_location(at, step.extra + h * M_, previous + h * M_, step.weights + h * M_, d,
                        dprevious + h * M_, draw);
      draw[5] *= sigmoid(raw[5]);
      draw[0] = sigmoid(raw[0] + c.strength) *
                content.backward_weights(h - first, step.extra + h * M_, at.strength, d);
    }
    content.backward_keys(heads, keys, dreads ? step.weights + first * M_ : nullptr, memory, dmemory,
                          dkeys + first * W_);
  }

  // From the gradient d of a head's weights to that of its content weights, in d; draw[1] to draw[4] of the
  // pre-activations, draw[5] of the exponent (NTM eqs 7–9).
  void backward_location(const Location& at, const float* content_weights, const float* previous,
                         const float* weight, float* d, float* dprevious, float* draw) {
    const float scale = 1 / shift(at, content_weights, previous), mean = dot(c.M, weight, d);
    float *gated_ = gated, *shifted_ = shifted, *dshifted_ = dshifted;
    float dexponent = 0, dback = 0, dstay = 0, don = 0, dgate = 0;
#pragma omp simd reduction(+ : dexponent, dback, dstay, don)
    for (int64_t i = 0; i < c.M; ++i) {
      const float base = shifted_[i] * scale + kEpsilon, dlog = weight[i] * (d[i] - mean);
      dexponent += dlog * fast_log(base);
      const float moved = dlog * at.exponent / base * scale;  // the peak has no gradient
      dshifted_[i + 1] = moved;
      dback += moved * gated_[i + 2];
      dstay += moved * gated_[i + 1];
      don += moved * gated_[i];
    }
    dshifted_[0] = dshifted_[c.M], dshifted_[c.M + 1] = dshifted_[1];
    const float back = at.moves[0], stay = at.moves[1], on = at.moves[2], gate = at.gate;
#pragma omp simd reduction(+ : dgate)
    for (int64_t i = 0; i < c.M; ++i) {
      const float dgated = back * dshifted_[i] + stay * dshifted_[i + 1] + on * dshifted_[i + 2];
      dgate += dgated * (content_weights[i] - previous[i]);
      dprevious[i] = dgated * (1 - gate);
      d[i] = dgated * gate;
    }
    const float expected = back * dback + stay * dstay + on * don;
    draw[1] = dgate * gate * (1 - gate);
    draw[2] = back * (dback - expected);
    draw[3] = stay * (dstay - expected);
    draw[4] = on * (don - expected);
    draw[5] = dexponent;
  }

  const Config& c;
  const int64_t M_, W_;
  Content content;
  Buffer gated;     // (M + 2)
  Buffer shifted;   // (M)
  Buffer dshifted;  // (M + 2)
  Buffer dkeys;     // (N, W')
};

}  // namespace mann
