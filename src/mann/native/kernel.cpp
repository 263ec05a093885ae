// The recurrent part of the MANN over whole episodes, forward and backward: LSTM controller and LRUA memory.
//
// Equation numbers are those of Santoro et al. (2016). Sizes: B episodes, T steps, H controller units, M slots,
// W slot width, R heads; X = H + R·W is the length of o_t = (h_t, r_t); P is the length of the heads'
// parameters, keys | vectors? | gates | strengths?. M' and W' are padded with zeros (M_ and W_ in the code).
//
// A thread takes a block of episodes through all the steps. A step is two products of the block's rows with
// weights that stay in the L2 cache, then each episode's memory operations. An episode's memory is held
// transposed, (W', M'), with slots along the vector lanes, and stays in the cache too. Weight gradients are
// left to the caller: each is one large product of the pre-activations' gradients, which are returned here.
//
// Writes are reversible: the backward pass rebuilds M_{t−1} from M_t. It takes the slots that were written as
// least used from a copy, and all of M from a checkpoint now and then, so that rounding errors do not add up.

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "vectors.h"
#include "xla/ffi/api/ffi.h"

namespace mann {
namespace {

namespace ffi = xla::ffi;

constexpr float kEpsilon = 1e-6f;  // addressing.EPSILON

// Sizes and the readings of the paper (`LRUAConfig`), in the order of `_Sizes` in __init__.py.
struct Config {
  int64_t B, T, H, M, W, R;
  int64_t learned;              // key_strength: β is learned, not 1
  int64_t separate;             // written: a vector of its own, not the key
  int64_t write_first;          // order
  int64_t targets;              // least_used: how many slots are marked least used, 1 or R
  int64_t erased;               // how many of these are erased
  int64_t cell_query;           // the query is c_t, not h_t
  int64_t reads_to_controller;  // r_{t−1} is an input of the controller
  int64_t interval;             // steps between checkpoints of the memory
  int64_t checkpoints;          // how many there are
  int64_t steps;                // steps that the record has room for: T, or 1 without a backward pass
  float decay;                  // γ

  int64_t reads() const { return R * W; }
  int64_t X() const { return H + reads(); }
  int64_t P() const { return gates() + R * (learned ? 2 : 1); }
  int64_t M_() const { return round_up(M, 16); }  // M': a multiple of every kLanes
  int64_t W_() const { return round_up(W, 4); }   // W'
  int64_t fed() const { return reads_to_controller ? X() : H; }
  // Where the parameters of each kind begin within P.
  int64_t vectors() const { return separate ? reads() : 0; }
  int64_t gates() const { return vectors() + reads(); }
  int64_t strengths() const { return gates() + R; }
  int64_t target(int64_t head) const { return targets == 1 ? 0 : head; }
};

// One episode's row of the record at one step.
struct Step {
  float* gates;        // (4H)          f, i, o, u after their activations
  float* cell;         // (H)           c_t
  float* heads;        // (P)           k, a, σ(α) after their activations; β before its own
  float* weights;      // (R, M')       w^r_t
  float* overwritten;  // (targets, W)  what the least used slots held
  int32_t* targets;    // (targets)     the least used slots
};

// What is kept of every step for the backward pass: one row for each episode and step, or, without a backward
// pass, one row for each episode, overwritten at every step.
struct Record {
  float *gates, *cells, *heads, *weights, *overwritten;
  float* checkpoints;  // (B, checkpoints, W', M')  M before the steps interval, 2 interval, …
  int32_t* targets;

  Step at(const Config& c, int64_t b, int64_t t) const {
    const int64_t row = b * c.steps + std::min(t, c.steps - 1);
    return {gates + row * 4 * c.H,          cells + row * c.H,
            heads + row * c.P(),            weights + row * c.R * c.M_(),
            overwritten + row * c.targets * c.W, targets + row * c.targets};
  }

  // The copy of M before step t, or null if there is none.
  float* checkpoint(const Config& c, int64_t b, int64_t t) const {
    if (c.steps < c.T || t == 0 || t % c.interval) return nullptr;
    return checkpoints + (b * c.checkpoints + t / c.interval - 1) * c.W_() * c.M_();
  }
};

// Run work(first, rows) for blocks of the B episodes, on this thread and on idle ones of XLA's pool. A helper
// that comes too late finds nothing left to do, so that this thread only ever waits for work that has begun.
template <class Work>
void for_blocks(ffi::ThreadPool pool, int64_t B, const Work& work) {
  struct Shared {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable finished;
    int64_t done = 0;
  };
  const auto shared = std::make_shared<Shared>();
  const int64_t blocks = (B + kRows - 1) / kRows;
  const auto run = [shared, blocks, B, &work] {
    for (int64_t block; (block = shared->next++) < blocks;) {
      work(block * kRows, std::min<int64_t>(kRows, B - block * kRows));
      std::lock_guard<std::mutex> lock(shared->mutex);
      if (++shared->done == blocks) shared->finished.notify_one();
    }
  };
  const int64_t helpers = std::min(blocks, pool.num_threads()) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([run] { run(); });
  run();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->finished.wait(lock, [&] { return shared->done == blocks; });
}

void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_row, float* to,
               int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

// --- one step of one episode ---------------------------------------------------------------------------

void lstm_forward(int64_t H, const float* z, const float* projected, const float* previous, float* gates,
                  float* cell, float* hidden) {
#pragma omp simd
  for (int64_t j = 0; j < H; ++j) {
    const float f = sigmoid(z[j] + projected[j] + 1.0f);
    const float i = sigmoid(z[H + j] + projected[H + j]);
    const float o = sigmoid(z[2 * H + j] + projected[2 * H + j]);
    const float u = fast_tanh(z[3 * H + j] + projected[3 * H + j]);
    const float c = f * previous[j] + i * u;
    gates[j] = f, gates[H + j] = i, gates[2 * H + j] = o, gates[3 * H + j] = u;
    cell[j] = c;
    hidden[j] = o * fast_tanh(c);
  }
}

// dh: the gradient of h_t. dc: that of c_t, replaced by that of c_{t−1}.
void lstm_backward(int64_t H, const float* gates, const float* previous, const float* cell, const float* dh,
                   float* dc, float* dz) {
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

// The memory operations of one episode at a time, with the scratch that they share.
class Memory {
 public:
  explicit Memory(const Config& config)
      : c(config), M_(c.M_()), W_(c.W_()), w(c.R * M_), s(2 * c.R * M_), inverse(M_), diagonal(M_),
        keys(2 * c.R * W_), dkeys(c.R * W_), vectors(c.R * W_), dvectors(c.R * W_) {}

  // In: memory = M_{t−1}, usage = w^u_{t−1}, previous = w^r_{t−1}, step.heads before their activations.
  // Out: memory = M_t, usage = w^u_t, reads = r_t, the rest of the step; write_weights = w^w_t unless null.
  void forward(const Step& step, const float* previous, float* memory, float* usage, float* reads,
               float* write_weights) {
    float* heads = step.heads;
#pragma omp simd
    for (int64_t j = 0; j < c.gates(); ++j) heads[j] = fast_tanh(heads[j]);
    for (int64_t h = 0; h < c.R; ++h) heads[c.gates() + h] = sigmoid(heads[c.gates() + h]);
    least_used(usage, step.targets);
    for (int64_t n = 0; n < c.targets; ++n)
      for (int64_t j = 0; j < c.W; ++j) step.overwritten[n * c.W + j] = memory[j * M_ + step.targets[n]];
    write_weights_of(step, previous);

    if (!c.write_first) read(step, memory, reads);
    erase(memory, step.targets);
    multiply(c.W, c.R, M_, heads + c.vectors(), 1, c.W, w, M_, memory, M_, true);  // eq 8
    if (c.write_first) read(step, memory, reads);

    for (int64_t i = 0; i < c.M; ++i) usage[i] *= c.decay;  // eq 5
    for (int64_t h = 0; h < c.R; ++h)
      for (int64_t i = 0; i < c.M; ++i) usage[i] += step.weights[h * M_ + i] + w[h * M_ + i];
    if (write_weights)
      for (int64_t h = 0; h < c.R; ++h) std::copy_n(w + h * M_, c.M, write_weights + h * c.M);
  }

  // In: memory = M_t, previous = w^r_{t−1}, and the gradients dmemory (of M_t), dreads, dweights (of w^r_t),
  // dwritten (of w^w_t; may be null). checkpoint is M_{t−1}, or null.
  // Out: memory = M_{t−1}, dmemory (of M_{t−1}), dprevious (of w^r_{t−1}), dheads (of the pre-activations).
  void backward(const Step& step, const float* previous, const float* checkpoint, float* memory,
                float* dmemory, const float* dreads, float* dweights, const float* dwritten, float* dprevious,
                float* dheads) {
    const float* heads = step.heads;
    write_weights_of(step, previous);
    if (c.write_first) read_backward(step, memory, dmemory, dreads, dweights, dheads);

    // eq 8: M_t = erased M_{t−1} + Σ_h w^w(h) ⊗ a(h)
    const float* a = heads + c.vectors();
    multiply(c.R, c.W, M_, a, c.W, 1, dmemory, M_, dprevious, M_, false);  // the gradient of w^w, for now
    multiply_transposed(c.R, W_, M_, w, M_, dmemory, M_, dvectors, W_);
    erase(dmemory, step.targets);
    if (checkpoint) {
      std::copy_n(checkpoint, W_ * M_, memory);
    } else {
      for (int64_t i = 0; i < c.reads(); ++i) vectors[i] = -a[i];
      multiply(c.W, c.R, M_, vectors, 1, c.W, w, M_, memory, M_, true);
      for (int64_t n = 0; n < c.targets; ++n)
        for (int64_t j = 0; j < c.W; ++j) memory[j * M_ + step.targets[n]] = step.overwritten[n * c.W + j];
    }

    for (int64_t h = 0; h < c.R; ++h) {  // eq 7
      float* d = dprevious + h * M_;
      if (dwritten)
        for (int64_t i = 0; i < c.M; ++i) d[i] += dwritten[h * c.M + i];
      const float gate = heads[c.gates() + h];
      const float dgate = dot(c.M, d, previous + h * M_) - d[step.targets[c.target(h)]];
      dheads[c.gates() + h] = dgate * gate * (1 - gate);
      for (int64_t i = 0; i < c.M; ++i) d[i] *= gate;
    }

    if (!c.write_first) read_backward(step, memory, dmemory, dreads, dweights, dheads);

    for (int64_t h = 0; h < c.R; ++h)
      for (int64_t j = 0; j < c.W; ++j) {
        const int64_t k = h * c.W + j, padded = h * W_ + j;
        const float written = dvectors[padded], key = dkeys[padded] + (c.separate ? 0 : written);
        dheads[k] = key * (1 - heads[k] * heads[k]);
        if (c.separate) dheads[c.vectors() + k] = written * (1 - a[k] * a[k]);
      }
  }

 private:
  // β of one head.
  float strength(const float* heads, int64_t h) const {
    return c.learned ? 1 + softplus(heads[c.strengths() + h]) : 1.0f;
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
  void write_weights_of(const Step& step, const float* previous) {
    for (int64_t h = 0; h < c.R; ++h) {
      const float gate = step.heads[c.gates() + h];
      for (int64_t i = 0; i < c.M; ++i) w[h * M_ + i] = gate * previous[h * M_ + i];
      w[h * M_ + step.targets[c.target(h)]] += 1 - gate;
    }
  }

  void erase(float* memory, const int32_t* targets) const {
    for (int64_t n = 0; n < c.erased; ++n)
      for (int64_t j = 0; j < c.W; ++j) memory[j * M_ + targets[n]] = 0;
  }

  // Unit keys to `keys`, K(k, M(i)) to `s` (eq 2) and the slots' inverse norms to `inverse`. Further rows of
  // `keys`, up to `rows`, are multiplied with M too, but not scaled.
  void similarity(const float* memory, const float* heads, int64_t rows) {
    for (int64_t h = 0; h < c.R; ++h) {
      const float* k = heads + h * c.W;
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
    for (int64_t h = 0; h < c.R; ++h)
      for (int64_t i = 0; i < M_; ++i) s[h * M_ + i] *= inverse[i];
  }

  void read(const Step& step, const float* memory, float* reads) {
    similarity(memory, step.heads, c.R);
    for (int64_t h = 0; h < c.R; ++h) {  // eq 3
      const float *row = s + h * M_, beta = strength(step.heads, h);
      float* weight = step.weights + h * M_;
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
    multiply_transposed(c.R, W_, M_, step.weights, M_, memory, M_, vectors, W_);  // eq 4
    for (int64_t h = 0; h < c.R; ++h) std::copy_n(vectors + h * W_, c.W, reads + h * c.W);
  }

  void read_backward(const Step& step, const float* memory, float* dmemory, const float* dreads,
                     float* dweights, float* dheads) {
    const float* heads = step.heads;
    for (int64_t h = 0; h < c.R; ++h) std::copy_n(dreads + h * c.W, c.W, keys + (c.R + h) * W_);
    similarity(memory, heads, 2 * c.R);
    float* from_reads = s + c.R * M_;  // eq 4: the gradient of w^r; later w^r itself, to update dmemory
    float *inverse_ = inverse, *diagonal_ = diagonal;
    std::fill_n(diagonal_, M_, 0.0f);
    for (int64_t h = 0; h < c.R; ++h) {  // eq 3, then the slots' norms in eq 2
      const float *weight = step.weights + h * M_, beta = strength(heads, h);
      float *cosine = s + h * M_, *d = dweights + h * M_;
      for (int64_t i = 0; i < M_; ++i) d[i] += from_reads[h * M_ + i];
      const float mean = dot(M_, weight, d);
      for (int64_t i = 0; i < M_; ++i) d[i] = weight[i] * (d[i] - mean);
      const float dbeta = dot(M_, d, cosine);
#pragma omp simd
      for (int64_t i = 0; i < M_; ++i) {
        const float dproduct = beta * d[i] * inverse_[i];  // of the product of unit key and slot
        diagonal_[i] -= dproduct * cosine[i] * inverse_[i];
        cosine[i] = dproduct;
      }
      if (c.learned) dheads[c.strengths() + h] = dbeta * sigmoid(heads[c.strengths() + h]);
    }
    multiply_transposed(c.R, W_, M_, s, M_, memory, M_, dkeys, W_);
    std::copy_n(step.weights, c.R * M_, from_reads);
    multiply(c.W, 2 * c.R, M_, keys, 1, W_, s, M_, dmemory, M_, true);
    for (int64_t j = 0; j < c.W; ++j)
#pragma omp simd
      for (int64_t i = 0; i < M_; ++i) dmemory[j * M_ + i] += diagonal_[i] * memory[j * M_ + i];
    for (int64_t h = 0; h < c.R; ++h) {  // through the keys' norms
      const float *k = heads + h * c.W, *unit = keys + h * W_;
      float* d = dkeys + h * W_;
      const float scale = 1 / std::sqrt(dot(c.W, k, k) + kEpsilon), along = dot(c.W, unit, d);
      for (int64_t j = 0; j < c.W; ++j) d[j] = scale * (d[j] - along * unit[j]);
    }
  }

  const Config& c;
  const int64_t M_, W_;
  Buffer w;         // (R, M')  w^w
  Buffer s;         // (2R, M') cosines, then their gradients; in the backward pass also w^r and its gradient
  Buffer inverse;   // (M')     1 / |M(i)|
  Buffer diagonal;  // (M')     the gradient through |M(i)|
  Buffer keys;      // (2R, W') unit keys; in the backward pass also the gradients of the reads
  Buffer dkeys;
  Buffer vectors;
  Buffer dvectors;
};

// --- whole episodes ------------------------------------------------------------------------------------

struct Forward {
  const float* projected;  // (B, T, 4H)      W_x (x_t, y_{t−1}) + b
  const float* recurrent;  // (X or H, 4H)
  const float* to_heads;   // (H, P)
  const float* bias;       // (P)
  const float* start;      // (B, X)          h_0, r_0
  const float* cell;       // (B, H)          c_0
  const float* memory;     // (B, M, W)       M_0
  const float* weights;    // (B, R, M)       w^r_0
  const float* usage;      // (B, M)          w^u_0
  float* hidden;           // (B, T, X)       h_t, r_t
  float* last_memory;      // (B, M, W)       M_T
  float* last_write;       // (B, R, M)       w^w_T
  float* last_usage;       // (B, M)          w^u_T
};

void forward(const Config& c, const Forward& x, const Record& record, const Weights& recurrent,
             const Weights& to_heads, int64_t first, int64_t rows) {
  const int64_t T = c.T, H = c.H, M_ = c.M_(), X = c.X(), P = c.P(), RM = c.R * M_, WM = c.W_() * M_;
  const int64_t Z = recurrent.columns(), P_ = to_heads.columns();
  Memory memory_of(c);
  Buffer z(rows * Z), parameters(rows * P_), memory(rows * WM), weights(rows * RM);  // weights: w^r_0
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    transpose(c.M, c.W, x.memory + b * c.M * c.W, c.W, memory + n * WM, M_);
    for (int64_t h = 0; h < c.R; ++h)
      std::copy_n(x.weights + (b * c.R + h) * c.M, c.M, weights + n * RM + h * M_);
    std::copy_n(x.usage + b * c.M, c.M, x.last_usage + b * c.M);
  }

  for (int64_t t = 0; t < T; ++t) {
    recurrent.apply(rows, t ? x.hidden + (first * T + t - 1) * X : x.start + first * X, t ? T * X : X, z, Z);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n, at = b * T + t;
      const Step step = record.at(c, b, t);
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell + b * H;
      lstm_forward(H, z + n * Z, x.projected + at * 4 * H, previous, step.gates, step.cell,
                   x.hidden + at * X);
    }

    const float* query = c.cell_query ? record.at(c, first, t).cell : x.hidden + (first * T + t) * X;
    to_heads.apply(rows, query, c.cell_query ? c.steps * H : T * X, parameters, P_);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n, at = b * T + t;
      const Step step = record.at(c, b, t);
      const float* previous = t ? record.at(c, b, t - 1).weights : weights + n * RM;
      float *M = memory + n * WM, *checkpoint = record.checkpoint(c, b, t);
      if (checkpoint) std::copy_n(M, WM, checkpoint);
      for (int64_t j = 0; j < P; ++j) step.heads[j] = parameters[n * P_ + j] + x.bias[j];
      memory_of.forward(step, previous, M, x.last_usage + b * c.M, x.hidden + at * X + H,
                        t == T - 1 ? x.last_write + b * c.R * c.M : nullptr);
    }
  }
  for (int64_t n = 0; n < rows; ++n)
    transpose(c.W, c.M, memory + n * WM, M_, x.last_memory + (first + n) * c.M * c.W, c.W);
}

struct Backward {
  const float *recurrent, *to_heads, *cell, *weights, *last_memory;  // as in Forward
  const float* dhidden;   // (B, T, X)
  const float* dcell;     // (B, H)      of c_T
  const float* dmemory;   // (B, M, W)   of M_T
  const float* dweights;  // (B, R, M)   of w^r_T
  const float* dwritten;  // (B, R, M)   of w^w_T
  float* dz;              // (B, T, 4H)  of the controller's pre-activations
  float* dheads;          // (B, T, P)   of the heads' pre-activations
  float *dstart, *dstart_cell, *dstart_memory, *dstart_weights;  // of start, cell, memory, weights in Forward
};

// `from_gates` (4H, X or H) and `from_heads` (P, H) are the transposed weights.
void backward(const Config& c, const Backward& x, const Record& record, const Weights& from_gates,
              const Weights& from_heads, int64_t first, int64_t rows) {
  const int64_t T = c.T, H = c.H, M_ = c.M_(), X = c.X(), P = c.P(), RM = c.R * M_, WM = c.W_() * M_;
  const int64_t X_ = from_gates.columns(), H_ = from_heads.columns();
  Memory memory_of(c);
  Buffer memory(rows * WM), dmemory(rows * WM), weights(rows * RM);  // M, its gradient, w^r_0
  Buffer dweights(rows * RM), dprevious(rows * RM);                 // of w^r_t, w^r_{t−1}
  Buffer dx(rows * X_), dquery(rows * H_), dh(rows * H), dr(c.reads()), dc(rows * H);
  float *dnow = dweights, *dbefore = dprevious;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    transpose(c.M, c.W, x.last_memory + b * c.M * c.W, c.W, memory + n * WM, M_);
    transpose(c.M, c.W, x.dmemory + b * c.M * c.W, c.W, dmemory + n * WM, M_);
    for (int64_t h = 0; h < c.R; ++h) {
      std::copy_n(x.weights + (b * c.R + h) * c.M, c.M, weights + n * RM + h * M_);
      std::copy_n(x.dweights + (b * c.R + h) * c.M, c.M, dnow + n * RM + h * M_);
    }
    std::copy_n(x.dcell + b * H, H, dc + n * H);
  }

  for (int64_t t = T - 1; t >= 0; --t) {
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n, at = b * T + t;
      const float *d = x.dhidden + at * X, *later = dx + n * X_;
      for (int64_t j = 0; j < H; ++j) dh[n * H + j] = d[j] + later[j];
      for (int64_t j = 0; j < c.reads(); ++j) dr[j] = d[H + j] + (c.reads_to_controller ? later[H + j] : 0);
      const float* previous = t ? record.at(c, b, t - 1).weights : weights + n * RM;
      memory_of.backward(record.at(c, b, t), previous, record.checkpoint(c, b, t), memory + n * WM,
                         dmemory + n * WM, dr, dnow + n * RM,
                         t == T - 1 ? x.dwritten + b * c.R * c.M : nullptr, dbefore + n * RM,
                         x.dheads + at * P);
    }
    std::swap(dnow, dbefore);

    from_heads.apply(rows, x.dheads + (first * T + t) * P, T * P, dquery, H_);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n, at = b * T + t;
      const Step step = record.at(c, b, t);
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell + b * H;
      float* dqueried = (c.cell_query ? dc : dh) + n * H;
      for (int64_t j = 0; j < H; ++j) dqueried[j] += dquery[n * H_ + j];
      lstm_backward(H, step.gates, previous, step.cell, dh + n * H, dc + n * H, x.dz + at * 4 * H);
    }
    from_gates.apply(rows, x.dz + (first * T + t) * 4 * H, T * 4 * H, dx, X_);
  }

  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    std::copy_n(dx + n * X_, c.fed(), x.dstart + b * X);
    std::fill(x.dstart + b * X + c.fed(), x.dstart + (b + 1) * X, 0.0f);
    std::copy_n(dc + n * H, H, x.dstart_cell + b * H);
    transpose(c.W, c.M, dmemory + n * WM, M_, x.dstart_memory + b * c.M * c.W, c.W);
    for (int64_t h = 0; h < c.R; ++h)
      std::copy_n(dnow + n * RM + h * M_, c.M, x.dstart_weights + (b * c.R + h) * c.M);
  }
}

// --- XLA's side ----------------------------------------------------------------------------------------

// The buffers of a call, one after the other.
class Buffers {
 public:
  Buffers(ffi::RemainingArgs args, ffi::RemainingRets rets) : args_(args), rets_(rets) {}
  template <class T = float>
  T* in() { return args_.get<ffi::AnyBuffer>(in_++)->typed_data<T>(); }
  template <class T = float>
  T* out() { return (*rets_.get<ffi::AnyBuffer>(out_++))->typed_data<T>(); }

 private:
  ffi::RemainingArgs args_;
  ffi::RemainingRets rets_;
  size_t in_ = 0, out_ = 0;
};

Config config_of(ffi::Span<const int64_t> s, float decay) {
  return {s[0], s[1], s[2],  s[3],  s[4],  s[5],  s[6],  s[7], s[8],
          s[9], s[10], s[11], s[12], s[13], s[14], s[15], decay};
}

ffi::Error forward_call(ffi::ThreadPool pool, ffi::Span<const int64_t> sizes, float decay,
                        ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const Config c = config_of(sizes, decay);
  Buffers next(args, rets);
  const Forward x{next.in(), next.in(), next.in(),  next.in(),  next.in(),  next.in(), next.in(),
                  next.in(), next.in(), next.out(), next.out(), next.out(), next.out()};
  const Record record{next.out(), next.out(), next.out(),         next.out(),
                      next.out(), next.out(), next.out<int32_t>()};
  const Weights recurrent(c.fed(), 4 * c.H, x.recurrent, 4 * c.H, 1);
  const Weights to_heads(c.H, c.P(), x.to_heads, c.P(), 1);
  for_blocks(pool, c.B, [&](int64_t first, int64_t rows) {
    forward(c, x, record, recurrent, to_heads, first, rows);
  });
  return ffi::Error::Success();
}

ffi::Error backward_call(ffi::ThreadPool pool, ffi::Span<const int64_t> sizes, float decay,
                         ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const Config c = config_of(sizes, decay);
  Buffers next(args, rets);
  const Record record{next.in(), next.in(), next.in(), next.in(), next.in(), next.in(), next.in<int32_t>()};
  const Backward x{next.in(),  next.in(),  next.in(),  next.in(),  next.in(), next.in(),
                   next.in(),  next.in(),  next.in(),  next.in(),  next.out(), next.out(),
                   next.out(), next.out(), next.out(), next.out()};
  const Weights from_gates(4 * c.H, c.fed(), x.recurrent, 1, 4 * c.H);
  const Weights from_heads(c.P(), c.H, x.to_heads, 1, c.P());
  for_blocks(pool, c.B, [&](int64_t first, int64_t rows) {
    backward(c, x, record, from_gates, from_heads, first, rows);
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace mann

#define MANN_BINDING                                \
  xla::ffi::Ffi::Bind()                             \
      .Ctx<xla::ffi::ThreadPool>()                  \
      .Attr<xla::ffi::Span<const int64_t>>("sizes") \
      .Attr<float>("decay")                         \
      .RemainingArgs()                              \
      .RemainingRets()

XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_lrua_forward, mann::forward_call, MANN_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_lrua_backward, mann::backward_call, MANN_BINDING);
