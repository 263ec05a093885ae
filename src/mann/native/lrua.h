// Least Recently Used Access, the memory of the paper: memory/lrua.py.
//
// Writes are reversible: the backward pass rebuilds M_{t−1} from M_t. It takes the slots that were written as
// least used from a copy, and all of M from a checkpoint now and then, so that rounding errors do not add up.
#pragma once

#include "addressing.h"

namespace mann {

// The heads' parameters are keys (R, W) | vectors? (R, W) | gates (R) | strengths? (R). They are recorded after
// their activations, except the strengths.
class Lrua {
 public:
  static void options(Attributes& attributes, Config& c) {
    c.learned = attributes.size("learned");
    c.separate = attributes.size("separate");
    c.write_first = attributes.size("write_first");
    c.erased = attributes.size("erased");
    c.decay = attributes.number("decay");
  }
  // Numbers in the heads' parameters, in what is kept of every step, and in the usage.
  static int64_t parameters(const Config& c) { return c.R * (c.W * (1 + c.separate) + 1 + c.learned); }
  static int64_t extra(const Config& c) { return c.targets * c.W; }
  static int64_t usage(const Config& c) { return c.M; }

  explicit Lrua(const Config& config)
      : c(config), M_(c.M_()), W_(c.W_()), content(c, c.R), w(c.R * M_), undone(c.reads()), dkeys(c.R * W_),
        dvectors(c.R * W_) {}

  // In: memory = M_{t−1}, usage = w^u_{t−1}, previous = w^r_{t−1}, step.heads before their activations.
  // Out: memory = M_t, usage = w^u_t, reads = r_t, the rest of the step; written = w^w_t unless null.
  void forward(const Step& step, const float* previous, float* memory, float* usage, float* reads,
               float* written) {
    float* heads = step.heads;
#pragma omp simd
    for (int64_t j = 0; j < gates(); ++j) heads[j] = fast_tanh(heads[j]);
    for (int64_t h = 0; h < c.R; ++h) heads[gates() + h] = sigmoid(heads[gates() + h]);
    least_used(usage, step.targets);
    for (int64_t n = 0; n < c.targets; ++n)
      for (int64_t j = 0; j < c.W; ++j) step.extra[n * c.W + j] = memory[j * M_ + step.targets[n]];
    write_weights(step, previous);

    if (!c.write_first) read(step, memory, reads);
    erase(memory, step.targets);
    multiply(c.W, c.R, M_, heads + vectors(), 1, c.W, w, M_, memory, M_, true);  // eq 8
    if (c.write_first) read(step, memory, reads);

    for (int64_t i = 0; i < c.M; ++i) usage[i] *= c.decay;  // eq 5
    for (int64_t h = 0; h < c.R; ++h)
      for (int64_t i = 0; i < c.M; ++i) usage[i] += step.weights[h * M_ + i] + w[h * M_ + i];
    if (written)
      for (int64_t h = 0; h < c.R; ++h) std::copy_n(w + h * M_, c.M, written + h * c.M);
  }

  // In: memory = M_t, previous = w^r_{t−1}, and the gradients dmemory (of M_t), dreads, dweights (of w^r_t),
  // dwritten (of w^w_t; may be null). checkpoint is M_{t−1}, or null.
  // Out: memory = M_{t−1}, dmemory (of M_{t−1}), dprevious (of w^r_{t−1}), dheads (of the pre-activations).
  void backward(const Step& step, const float* previous, const float* checkpoint, float* memory,
                float* dmemory, const float* dreads, float* dweights, const float* dwritten, float* dprevious,
                float* dheads) {
    const float* heads = step.heads;
    write_weights(step, previous);
    if (c.write_first) backward_read(step, memory, dmemory, dreads, dweights, dheads);

    // eq 8: M_t = erased M_{t−1} + Σ_h w^w(h) ⊗ a(h)
    const float* a = heads + vectors();
    multiply(c.R, c.W, M_, a, c.W, 1, dmemory, M_, dprevious, M_, false);  // the gradient of w^w, for now
    multiply_transposed(c.R, W_, M_, w, M_, dmemory, M_, dvectors, W_);
    erase(dmemory, step.targets);
    if (checkpoint) {
      std::copy_n(checkpoint, W_ * M_, memory);
    } else {
      for (int64_t i = 0; i < c.reads(); ++i) undone[i] = -a[i];
      multiply(c.W, c.R, M_, undone, 1, c.W, w, M_, memory, M_, true);
      for (int64_t n = 0; n < c.targets; ++n)
        for (int64_t j = 0; j < c.W; ++j) memory[j * M_ + step.targets[n]] = step.extra[n * c.W + j];
    }

    for (int64_t h = 0; h < c.R; ++h) {  // eq 7
      float* d = dprevious + h * M_;
      if (dwritten)
        for (int64_t i = 0; i < c.M; ++i) d[i] += dwritten[h * c.M + i];
      const float gate = heads[gates() + h];
      const float dgate = dot(c.M, d, previous + h * M_) - d[step.targets[target(h)]];
      dheads[gates() + h] = dgate * gate * (1 - gate);
      for (int64_t i = 0; i < c.M; ++i) d[i] *= gate;
    }

    if (!c.write_first) backward_read(step, memory, dmemory, dreads, dweights, dheads);

    for (int64_t h = 0; h < c.R; ++h)
      for (int64_t j = 0; j < c.W; ++j) {
        const int64_t k = h * c.W + j, padded = h * W_ + j;
        const float vector = dvectors[padded], key = dkeys[padded] + (c.separate ? 0 : vector);
        dheads[k] = key * (1 - heads[k] * heads[k]);
        if (c.separate) dheads[vectors() + k] = vector * (1 - a[k] * a[k]);
      }
  }

 private:
  // Where the parameters of each kind begin.
  int64_t vectors() const { return c.separate ? c.reads() : 0; }
  int64_t gates() const { return vectors() + c.reads(); }
  int64_t strengths() const { return gates() + c.R; }
  // Which of the least used slots a head writes to.
  int64_t target(int64_t head) const { return c.targets == 1 ? 0 : head; }

  float strength(const float* heads, int64_t h) const {  // β
    return c.learned ? 1 + softplus(heads[strengths() + h]) : 1.0f;
  }

  // eq 6: ties go to the lowest slot.
  void least_used(const float* usage, int32_t* targets) const {
    for (int64_t n = 0; n < c.targets; ++n) {
      float least = INFINITY;
      targets[n] = 0;
      for (int64_t i = 0; i < c.M; ++i)
        if (usage[i] < least && std::find(targets, targets + n, i) == targets + n)
          least = usage[i], targets[n] = static_cast<int32_t>(i);
    }
  }

  // eq 7, to `w`.
  void write_weights(const Step& step, const float* previous) {
    for (int64_t h = 0; h < c.R; ++h) {
      const float gate = step.heads[gates() + h];
      for (int64_t i = 0; i < c.M; ++i) w[h * M_ + i] = gate * previous[h * M_ + i];
      w[h * M_ + step.targets[target(h)]] += 1 - gate;
    }
  }

  void erase(float* memory, const int32_t* targets) const {
    for (int64_t n = 0; n < c.erased; ++n)
      for (int64_t j = 0; j < c.W; ++j) memory[j * M_ + targets[n]] = 0;
  }

  // eqs 2–4
  void read(const Step& step, const float* memory, float* reads) {
    content.address(c.R, step.heads, [&](int64_t h) { return strength(step.heads, h); }, memory, step.weights);
    content.read(c.R, step.weights, memory, reads);
  }

  void backward_read(const Step& step, const float* memory, float* dmemory, const float* dreads,
                     float* dweights, float* dheads) {
    const float* heads = step.heads;
    content.backward_read(c.R, heads, memory, dreads, dweights);
    for (int64_t h = 0; h < c.R; ++h) {
      const float dbeta =
          content.backward_weights(h, step.weights + h * M_, strength(heads, h), dweights + h * M_);
      if (c.learned) dheads[strengths() + h] = dbeta * sigmoid(heads[strengths() + h]);
    }
    content.backward_keys(c.R, heads, step.weights, memory, dmemory, dkeys);
  }

  const Config& c;
  const int64_t M_, W_;
  Content content;
  Buffer w;       // (R, M')  w^w
  Buffer undone;  // (R, W)   −a
  Buffer dkeys;
  Buffer dvectors;
};

}  // namespace mann
