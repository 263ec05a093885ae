// The sizes of a call, and what it keeps of every step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "vectors.h"
#include "xla/ffi/api/ffi.h"

namespace mann {

// The attributes of a call, by name: those of `_Network.attributes` in __init__.py. Whatever is missing, negative or
// left over is an error, so that the two sides cannot drift apart.
class Attributes {
 public:
  explicit Attributes(xla::ffi::Dictionary attributes) : attributes_(attributes) {}

  int64_t size(std::string_view name) {
    const auto value = get<int64_t>(name);
    if (value < 0) problem_ = std::string(name) + " is negative";
    return value;
  }

  float number(std::string_view name) { return get<float>(name); }

  xla::ffi::Span<const int64_t> sizes(std::string_view name) {
    const auto values = get<xla::ffi::Span<const int64_t>>(name);
    for (const int64_t value : values)
      if (value < 0) problem_ = std::string(name) + " holds a negative number";
    return values;
  }

  // Empty if each attribute was read once.
  std::string problem() const {
    if (problem_.empty() && read_ != attributes_.size()) return "there are attributes that it does not know";
    return problem_;
  }

 private:
  template <class T>
  T get(std::string_view name) {
    ++read_;
    const auto value = attributes_.get<T>(name);
    if (value.has_value()) return *value;
    problem_ = "the attribute " + std::string(name) + " is missing or of another type";
    return T{};
  }

  xla::ffi::Dictionary attributes_;
  size_t read_ = 0;
  std::string problem_;
};

// Sizes and the readings of the paper (`LRUAConfig`). Without a memory, M, W, R and N are 0.
struct Config {
  int64_t B, T, H, M, W, R;
  int64_t N;            // heads whose weights are kept: R, and one more for the write head of the NTM
  int64_t fed_from;     // what the controller is fed of o_{t−1} = (h_{t−1}, r_{t−1}): where it begins
  int64_t fed;          // and how long it is
  int64_t cell_query;   // the query is c_t, not h_t
  int64_t interval;     // steps between checkpoints of the memory
  int64_t targets;      // how many slots are marked least used: LRUA 1 or R, else 0
  int64_t steps;        // steps that the record has room for: T, or 1 without a backward pass
  int64_t checkpoints;  // copies of the memory: 0 without a backward pass
  int64_t bfloat16;     // the products with the weights are in bfloat16, not in single precision
  int64_t learned = 0;      // LRUA, key_strength: β is learned, not 1
  int64_t separate = 0;     // LRUA, written: a vector of its own, not the key
  int64_t write_first = 0;  // LRUA, order
  int64_t erased = 0;       // LRUA: how many of the least used slots are erased
  float decay = 0;          // LRUA: γ
  float strength = 0;       // NTM: where the key strength β starts

  int64_t reads() const { return R * W; }
  int64_t X() const { return H + reads(); }
  int64_t M_() const { return round_up(M, 16); }  // M': a multiple of every kLanes
  int64_t W_() const { return round_up(W, 4); }   // W'
};

// An array by its rows, one for each episode, or for each step of each episode.
template <class T>
struct Rows {
  T* data;
  int64_t size;  // of a row

  T* operator[](int64_t row) const { return data + row * size; }
};
using In = Rows<const float>;
using Out = Rows<float>;

// One episode's row of the record at one step.
struct Step {
  float* gates;      // (4H)     LSTM: f, i, o, u after their activations
  float* cell;       // (H)      LSTM: c_t
  float* heads;      // (P)      the heads' parameters, as the memory's `forward` leaves them
  float* weights;    // (N, M')  w_t
  float* extra;      //          LRUA: (targets, W) what the least used slots held. NTM: (N, M') content weights
  int32_t* targets;  // (targets) LRUA: the least used slots
};

// What is kept of every step for the backward pass: one row for each episode and step, or, without a backward
// pass, one row for each episode, overwritten at every step.
struct Record {
  Out gates, cells, heads, weights, extra;
  Out checkpoints;  // (B, checkpoints, W', M')  M before the steps 0, interval, 2 interval, …
  Rows<int32_t> targets;

  Step at(const Config& c, int64_t b, int64_t t) const {
    const int64_t row = b * c.steps + std::min(t, c.steps - 1);
    return {gates[row], cells[row], heads[row], weights[row], extra[row], targets[row]};
  }

  // The copy of M before step t, or null if there is none.
  float* checkpoint(const Config& c, int64_t b, int64_t t) const {
    if (c.checkpoints == 0 || t % c.interval) return nullptr;
    return checkpoints[b] + t / c.interval * c.W_() * c.M_();
  }
};

}  // namespace mann
