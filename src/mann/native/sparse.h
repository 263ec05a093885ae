// Sparse access, a memory of any size: memory/sparse.py.
//
// An episode's memory stays where XLA has it, (M, W), and is changed in place; a step touches R (2K + 1) of its rows.
// The backward pass needs none of it: writing is linear, and what was read is recorded. Only the search for the most
// similar slots looks further, and it leaves out what it knows: slots at the end that are all alike, as they are after
// a wipe, are looked at once, not each.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "addressing.h"
#include "config.h"
#include "weights.h"

namespace mann {

struct SparseConfig : Config {
  int64_t K;        // slots that a head reads
  float threshold;  // δ: the weight above which a slot counts as used

  int64_t parameters() const { return R * (2 * W + 2); }
  int64_t integers() const { return 2 * R * K + targets; }  // of a step, see SparseStep
};

// The integers of a step: where each head read one step before (R, K), the least recently used slots (targets), and
// where each head reads now (R, K).
struct SparseStep {
  SparseStep(const SparseConfig& c, int32_t* integers)
      : before(integers), targets(before + c.R * c.K), slots(targets + c.targets), shared(c.targets == 1) {}
  int32_t target(int64_t head) const { return targets[shared ? 0 : head]; }

  int32_t *before, *targets, *slots;
  bool shared;
};

// What an episode has besides its memory: lengths of the slots, the order of their use, how many are to be searched.
class SparseEpisode {
 public:
  SparseEpisode(const SparseConfig& config, const float* memory, const float* age)
      : c(config), inverse(c.M), next_(c.M + 1), previous_(c.M + 1), used_(c.M, 0) {
    const float* last = memory + (c.M - 1) * c.W;
    searched = c.M - 1;
    while (searched > 0 && std::equal(last, last + c.W, memory + (searched - 1) * c.W)) --searched;
    std::fill(inverse.begin() + searched, inverse.end(), inverse_length(c.W, last));
    for (int64_t i = 0; i < searched; ++i) inverse[i] = inverse_length(c.W, memory + i * c.W);

    std::vector<int32_t> order(c.M);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [age](int32_t a, int32_t b) { return age[a] > age[b]; });
    int32_t before = end();
    for (const int32_t slot : order) link(before, slot), before = slot;
    link(before, end());
  }

  static float inverse_length(int64_t width, const float* row) {
    return 1 / std::sqrt(dot(width, row, row) + kEpsilon);
  }

  // Slots by the time since their last use, the oldest first; of equals, the lower one first.
  int32_t oldest() const { return next_[end()]; }
  int32_t after(int32_t slot) const { return next_[slot]; }

  // These slots were used at step t (from 1).
  void use(std::vector<int32_t>& slots, int64_t t) {
    std::sort(slots.begin(), slots.end());
    for (const int32_t slot : slots) {
      if (used_[slot] == t) continue;
      used_[slot] = static_cast<int32_t>(t);
      link(previous_[slot], next_[slot]);
      link(previous_[end()], slot);
      link(slot, end());
    }
  }

  // The steps since each slot was used, after T steps.
  void ages(const float* first, float* last) const {
    for (int64_t i = 0; i < c.M; ++i)
      last[i] = used_[i] ? static_cast<float>(c.T - used_[i]) : std::min(first[i] + c.T, 16777216.0f);
  }

 private:
  int32_t end() const { return static_cast<int32_t>(c.M); }
  void link(int32_t a, int32_t b) { next_[a] = b, previous_[b] = a; }

  const SparseConfig& c;

 public:
  std::vector<float> inverse;  // 1 / |M(i)|
  int64_t searched;            // slots from here on are all alike

 private:
  std::vector<int32_t> next_, previous_;  // a ring; M stands for its end
  std::vector<int32_t> used_;             // the step of the last use, 0 for none
};

// The heads' parameters are keys (R, W) | vectors (R, W) | gates (R) | strengths (R). They are recorded after their
// activations, except the strengths.
class Sparse {
 public:
  explicit Sparse(const SparseConfig& config)
      : c(config), RK(c.R * c.K), padded(round_up(c.R, 4) * padded_width()), copied(4 * padded_width()),
        similar(kChunk * c.R), best(RK), unit(c.W), dunit(c.W), dvector(c.W), dlogits(c.K) {}

  // In: memory = M_{t−1}, previous = w^r_{t−1} and slots = where, step.heads before their activations.
  // Out: memory = M_t, reads = r_t, slots = where it was read, the rest of the step; w^w_t to written, of the slots
  // written_slots, unless null.
  void forward(const Step& step, int64_t t, SparseEpisode& episode, const float* previous, int32_t* slots,
               float* memory, float* reads, float* written, int32_t* written_slots) {
    float* heads = step.heads;
    const SparseStep now(c, step.targets);
#pragma omp simd
    for (int64_t j = 0; j < 2 * c.reads(); ++j) heads[j] = fast_tanh(heads[j]);
    for (int64_t h = 0; h < c.R; ++h) heads[gates() + h] = sigmoid(heads[gates() + h]);
    std::copy_n(slots, RK, now.before);
    now.targets[0] = episode.oldest();
    for (int64_t n = 1; n < c.targets; ++n) now.targets[n] = episode.after(now.targets[n - 1]);

    touched.clear();
    write(step, now, episode, previous, memory, written, written_slots);
    search(step, episode, memory, now.slots);
    for (int64_t h = 0; h < c.R; ++h) read(step, h, now.slots + h * c.K, memory, reads + h * c.W);
    std::copy_n(now.slots, RK, slots);
    episode.use(touched, t + 1);
  }

  // In: previous = w^r_{t−1} and the gradients dmemory (of M_t), dreads, dweights (of w^r_t), dwritten (of w^w_t; may
  // be null). Out: dmemory (of M_{t−1}), dprevious (of w^r_{t−1}), dheads (of the pre-activations).
  void backward(const Step& step, const float* previous, float* dmemory, const float* dreads,
                const float* dweights, const float* dwritten, float* dprevious, float* dheads) {
    const float* heads = step.heads;
    const SparseStep now(c, step.targets);
    for (int64_t h = 0; h < c.R; ++h) backward_read(step, h, now.slots + h * c.K, dmemory, dreads, dweights, dheads);

    for (int64_t h = 0; h < c.R; ++h) {  // eqs 7, 8
      const float *vector = heads + c.reads() + h * c.W, gate = heads[gates() + h];
      float* d = dvector;
      std::fill_n(d, c.W, 0.0f);
      float dgate = 0;
      for (int64_t k = 0; k <= c.K; ++k) {
        const bool target = k == c.K;
        const float* row = dmemory + (target ? now.target(h) : now.before[h * c.K + k]) * c.W;
        const float part = target ? -1.0f : previous[h * c.K + k];  // the weight is σ(α) part, or 1 + σ(α) part
        const float weight = target ? 1 - gate : gate * part;
        float dweight = dot(c.W, vector, row);
        if (dwritten) dweight += dwritten[h * (c.K + 1) + k];
        dgate += dweight * part;
        if (!target) dprevious[h * c.K + k] = gate * dweight;
#pragma omp simd
        for (int64_t j = 0; j < c.W; ++j) d[j] += weight * row[j];
      }
      dheads[gates() + h] = dgate * gate * (1 - gate);
      for (int64_t j = 0; j < c.W; ++j) dheads[c.reads() + h * c.W + j] = d[j] * (1 - vector[j] * vector[j]);
    }
    for (int64_t n = 0; n < c.targets; ++n) std::fill_n(dmemory + now.targets[n] * c.W, c.W, 0.0f);
  }

 private:
  static constexpr int64_t kChunk = 64;  // slots that are compared at a time

  struct Found {
    float cosine;
    int32_t slot;
  };

  int64_t padded_width() const { return round_up(c.W, kLanes); }
  int64_t gates() const { return 2 * c.reads(); }
  float raw_strength(const float* heads, int64_t h) const { return heads[gates() + c.R + h]; }
  float strength(const float* heads, int64_t h) const { return 1 + softplus(raw_strength(heads, h)); }  // β

  // eqs 7, 8
  void write(const Step& step, const SparseStep& now, SparseEpisode& episode, const float* previous, float* memory,
             float* written, int32_t* written_slots) {
    for (int64_t n = 0; n < c.targets; ++n) std::fill_n(memory + now.targets[n] * c.W, c.W, 0.0f);
    for (int64_t h = 0; h < c.R; ++h) {
      const float *vector = step.heads + c.reads() + h * c.W, gate = step.heads[gates() + h];
      float whole = 1 - gate;  // of the least recently used slot, which may have been read as well
      for (int64_t k = 0; k <= c.K; ++k) {
        const bool target = k == c.K;
        const int32_t slot = target ? now.target(h) : now.before[h * c.K + k];
        const float weight = target ? 1 - gate : gate * previous[h * c.K + k];
        float* row = memory + slot * c.W;
#pragma omp simd
        for (int64_t j = 0; j < c.W; ++j) row[j] += weight * vector[j];
        if (!target && slot == now.target(h)) whole += weight;
        if ((target ? whole : weight) > c.threshold) touched.push_back(slot);
        if (written) written[h * (c.K + 1) + k] = weight, written_slots[h * (c.K + 1) + k] = slot;
      }
    }
    for (int64_t i = 0; i < RK + c.targets; ++i) {
      const int32_t slot = now.before[i];  // those read before, then the targets
      episode.inverse[slot] = SparseEpisode::inverse_length(c.W, memory + slot * c.W);
      episode.searched = std::max<int64_t>(episode.searched, slot + 1);
    }
  }

  // The K most similar slots of every head, the best first; of equals, the lower one first.
  void search(const Step& step, const SparseEpisode& episode, const float* memory, int32_t* slots) {
    for (int64_t h = 0; h < c.R; ++h) {
      const float *key = step.heads + h * c.W, scale = SparseEpisode::inverse_length(c.W, key);
      for (int64_t j = 0; j < c.W; ++j) padded[h * padded_width() + j] = key[j] * scale;
    }
    found = 0;
    // Those at the end are all alike: only the first K of them can be among the best.
    const int64_t last = std::min(c.M, episode.searched + c.K);
    for (int64_t first = 0; first < last; first += kChunk) {
      const int64_t count = std::min(kChunk, last - first);
      compare(count, c.M - first, memory + first * c.W, episode.inverse.data() + first);
      for (int64_t h = 0; h < c.R; ++h) take(h, first, count);
      found = std::min(c.K, found + count);
    }
    for (int64_t i = 0; i < RK; ++i) slots[i] = best[i].slot;
  }

  // eq 2: `similar` (R, kChunk) of `count` slots; `left` slots of the memory begin there. Equal slots are computed in the
  // same way, whatever their place, so that they are exactly equally similar. A vector may reach into the next slot,
  // where the padded key is 0; at the end of the memory there is none, and rows are copied.
  void compare(int64_t count, int64_t left, const float* rows, const float* inverse) {
    constexpr int kHeads = 4, kSlots = 4;
    const int64_t W_ = padded_width();
    for (int64_t i = 0; i < count; i += kSlots) {
      const float* row[kSlots];
      for (int s = 0; s < kSlots; ++s) row[s] = rows + std::min(i + s, count - 1) * c.W;
      if ((left - i - kSlots) * c.W < W_ - c.W)
        for (int s = 0; s < kSlots; ++s) row[s] = std::copy_n(row[s], c.W, copied + s * W_) - c.W;
      for (int64_t h = 0; h < c.R; h += kHeads) {
        Vec sum[kHeads * kSlots] = {};
        for (int64_t j = 0; j < W_; j += kLanes)
          for (int s = 0; s < kSlots; ++s) {
            const Vec x = load(row[s] + j);
            for (int r = 0; r < kHeads; ++r) sum[r * kSlots + s] += load(padded + (h + r) * W_ + j) * x;
          }
        alignas(64) float result[kHeads * kSlots];
        for (int n = 0; n < kHeads * kSlots; n += kLanes) store(result + n, sums<kLanes>(sum + n));
        for (int64_t r = 0; r < std::min<int64_t>(kHeads, c.R - h); ++r)
          for (int64_t s = 0; s < std::min<int64_t>(kSlots, count - i); ++s)
            similar[(h + r) * kChunk + i + s] = result[r * kSlots + s] * inverse[i + s];
      }
    }
  }

  // Put what is better than the worst of the best among them. Equals stay behind those that came before.
  void take(int64_t h, int64_t first, int64_t count) {
    Found* list = best.data() + h * c.K;
    const float* row = similar + h * kChunk;
    int64_t size = found;
    if (size == c.K) {
      float largest = row[0];
#pragma omp simd reduction(max : largest)
      for (int64_t i = 0; i < count; ++i) largest = row[i] > largest ? row[i] : largest;
      if (!(largest > list[size - 1].cosine)) return;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (size == c.K && !(row[i] > list[size - 1].cosine)) continue;
      int64_t place = size < c.K ? size++ : size - 1;
      for (; place > 0 && row[i] > list[place - 1].cosine; --place) list[place] = list[place - 1];
      list[place] = {row[i], static_cast<int32_t>(first + i)};
    }
  }

  // eqs 3, 4 of one head
  void read(const Step& step, int64_t h, const int32_t* slots, const float* memory, float* reads) {
    const Found* list = best.data() + h * c.K;
    const float beta = strength(step.heads, h);
    float *weights = step.weights + h * c.K, *held = step.extra + h * c.K * c.W, sum = 0;
    for (int64_t k = 0; k < c.K; ++k) sum += weights[k] = fast_exp(beta * (list[k].cosine - list[0].cosine));
    std::fill_n(reads, c.W, 0.0f);
    for (int64_t k = 0; k < c.K; ++k, held += c.W) {
      weights[k] *= 1 / sum;
      std::copy_n(memory + slots[k] * c.W, c.W, held);
#pragma omp simd
      for (int64_t j = 0; j < c.W; ++j) reads[j] += weights[k] * held[j];
      if (weights[k] > c.threshold) touched.push_back(slots[k]);
    }
  }

  void backward_read(const Step& step, int64_t h, const int32_t* slots, float* dmemory, const float* dreads,
                     const float* dweights, float* dheads) {
    const float *key = step.heads + h * c.W, *weights = step.weights + h * c.K, *d = dreads + h * c.W;
    const float *held = step.extra + h * c.K * c.W, beta = strength(step.heads, h);
    const float scale = SparseEpisode::inverse_length(c.W, key);
    float mean = 0, dbeta = 0;
    for (int64_t j = 0; j < c.W; ++j) unit[j] = key[j] * scale;
    for (int64_t k = 0; k < c.K; ++k) {
      dlogits[k] = dweights[h * c.K + k] + dot(c.W, d, held + k * c.W);
      mean += weights[k] * dlogits[k];
    }
    std::fill_n(static_cast<float*>(dunit), c.W, 0.0f);
    for (int64_t k = 0; k < c.K; ++k) {
      const float *row = held + k * c.W, inverse = SparseEpisode::inverse_length(c.W, row);
      const float cosine = dot(c.W, unit, row) * inverse, dlogit = weights[k] * (dlogits[k] - mean);
      const float dproduct = beta * dlogit * inverse, dlength = dproduct * cosine * inverse;
      dbeta += dlogit * cosine;
      float* drow = dmemory + slots[k] * c.W;
#pragma omp simd
      for (int64_t j = 0; j < c.W; ++j) {
        dunit[j] += dproduct * row[j];
        drow[j] += weights[k] * d[j] + dproduct * unit[j] - dlength * row[j];
      }
    }
    const float along = dot(c.W, unit, dunit);
    for (int64_t j = 0; j < c.W; ++j)
      dheads[h * c.W + j] = scale * (dunit[j] - along * unit[j]) * (1 - key[j] * key[j]);
    dheads[gates() + c.R + h] = dbeta * sigmoid(raw_strength(step.heads, h));
  }

  const SparseConfig& c;
  const int64_t RK;
  Buffer padded;            // (R, W) keys of unit length, padded
  Buffer copied;            // some slots, padded
  Buffer similar;           // (R, kChunk)
  std::vector<Found> best;  // (R, K) the best so far
  int64_t found = 0;        // how many of them there are, per head
  Buffer unit, dunit, dvector, dlogits;
  std::vector<int32_t> touched;  // slots used at this step
};

// --- whole episodes ------------------------------------------------------------------------------------

struct SparseForward {
  In projected, recurrent, to_heads, bias, start, cell;  // as in Forward
  In memory;                  // (B, M, W)     M_0: the same place as last_memory, or copied to it
  In weights;                 // (B, R, K)     w_0
  Rows<const int32_t> slots;  // (B, R, K)     where
  In age;                     // (B, M)        steps since each slot was used
  Out hidden;                 // (B, T, X)     h_t, r_t
  Out last_memory;            // (B, M, W)     M_T
  Rows<int32_t> last_slots;   // (B, R, K)     where w_T is
  Out written;                // (B, R, K + 1) w^w_T
  Rows<int32_t> written_slots;
  Out last_age;  // (B, M)
};

template <class Controller>
void sparse_forward(const SparseConfig& c, const SparseForward& x, const Record& record, const Weights& recurrent,
                    const Weights& to_heads, int64_t first, int64_t rows) {
  const int64_t T = c.T, H = c.H, X = c.X(), P = x.bias.size, RK = c.R * c.K;
  const int64_t Z = recurrent.columns(), P_ = to_heads.columns();
  Sparse memory_of(c);
  std::vector<SparseEpisode> episodes;
  episodes.reserve(rows);
  Buffer z(rows * Z), parameters(rows * P_);
  for (int64_t b = first; b < first + rows; ++b) {
    if (x.last_memory[b] != x.memory[b]) std::copy_n(x.memory[b], c.M * c.W, x.last_memory[b]);
    std::copy_n(x.slots[b], RK, x.last_slots[b]);
    episodes.emplace_back(c, x.memory[b], x.age[b]);
  }

  for (int64_t t = 0; t < T; ++t) {
    const float* before = t ? x.hidden[first * T + t - 1] : x.start[first];
    recurrent.apply(rows, before + c.fed_from, t ? T * X : X, z, Z, nullptr);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell[b];
      Controller::forward(c, z + n * Z, x.projected[b * T + t], previous, record.at(c, b, t), x.hidden[b * T + t]);
    }

    const float* query = c.cell_query ? record.at(c, first, t).cell : x.hidden[first * T + t];
    to_heads.apply(rows, query, c.cell_query ? c.steps * H : T * X, parameters, P_, nullptr);
    const bool last = t == T - 1;
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const Step step = record.at(c, b, t);
      const float* previous = t ? record.at(c, b, t - 1).weights : x.weights[b];
      for (int64_t j = 0; j < P; ++j) step.heads[j] = parameters[n * P_ + j] + x.bias.data[j];
      memory_of.forward(step, t, episodes[n], previous, x.last_slots[b], x.last_memory[b], x.hidden[b * T + t] + H,
                        last ? x.written[b] : nullptr, x.written_slots[b]);
    }
  }
  for (int64_t n = 0; n < rows; ++n) episodes[n].ages(x.age[first + n], x.last_age[first + n]);
}

struct SparseBackward {
  In recurrent, to_heads, cell, weights, hidden;  // as in SparseForward
  In dhidden;   // (B, T, X)
  In dcell;     // (B, H)         of c_T
  In dmemory;   // (B, M, W)      of M_T: the same place as dstart_memory, or copied to it
  In dweights;  // (B, R, K)      of w_T
  In dwritten;  // (B, R, K + 1)  of w^w_T
  Out dz;       // (B, T, G)      of the controller's pre-activations
  Out dheads;   // (B, T, P)      of the heads' pre-activations
  Out dstart, dstart_cell, dstart_memory, dstart_weights;
};

// `from_gates` (G, fed) and `from_heads` (P, H) are the transposed weights.
template <class Controller>
void sparse_backward(const SparseConfig& c, const SparseBackward& x, const Record& record, const Weights& from_gates,
                     const Weights& from_heads, int64_t first, int64_t rows) {
  const int64_t T = c.T, H = c.H, X = c.X(), RK = c.R * c.K;
  const int64_t fed_ = from_gates.columns(), H_ = from_heads.columns();
  Sparse memory_of(c);
  Buffer dnow(rows * RK), dbefore(RK);                                     // of w_t, w_{t−1}
  Buffer dfed(rows * fed_), d(rows * X), dquery(rows * H_), dc(rows * H);  // d: of o_t
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    if (x.dstart_memory[b] != x.dmemory[b]) std::copy_n(x.dmemory[b], c.M * c.W, x.dstart_memory[b]);
    std::copy_n(x.dweights[b], RK, dnow + n * RK);
    std::copy_n(x.dcell[b], x.dcell.size, dc + n * H);
  }

  for (int64_t t = T - 1; t >= 0; --t) {
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      float* do_ = d + n * X;
      std::copy_n(x.dhidden[b * T + t], X, do_);
      for (int64_t j = 0; j < c.fed; ++j) do_[c.fed_from + j] += dfed[n * fed_ + j];
      const float* previous = t ? record.at(c, b, t - 1).weights : x.weights[b];
      memory_of.backward(record.at(c, b, t), previous, x.dstart_memory[b], do_ + H, dnow + n * RK,
                         t == T - 1 ? x.dwritten[b] : nullptr, dbefore, x.dheads[b * T + t]);
      std::copy_n(static_cast<float*>(dbefore), RK, dnow + n * RK);
    }

    from_heads.apply(rows, x.dheads[first * T + t], T * x.dheads.size, dquery, H_, nullptr);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell[b];
      float *dh = d + n * X, *dqueried = c.cell_query ? dc + n * H : dh;
      for (int64_t j = 0; j < H; ++j) dqueried[j] += dquery[n * H_ + j];
      Controller::backward(c, record.at(c, b, t), previous, x.hidden[b * T + t], dh, dc + n * H, x.dz[b * T + t]);
    }
    from_gates.apply(rows, x.dz[first * T + t], T * x.dz.size, dfed, fed_, nullptr);
  }

  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    std::fill_n(x.dstart[b], X, 0.0f);
    std::copy_n(dfed + n * fed_, c.fed, x.dstart[b] + c.fed_from);
    std::copy_n(dc + n * H, x.dstart_cell.size, x.dstart_cell[b]);
    std::copy_n(dnow + n * RK, RK, x.dstart_weights[b]);
  }
}

}  // namespace mann
