// The sizes of a call, and what it keeps of every step.
#pragma once

#include <algorithm>
#include <cstdint>

#include "vectors.h"

namespace mann {

// Sizes and the readings of the paper (`LRUAConfig`), in the order of `_Sizes` in __init__.py. Without a memory,
// M, W, R and N are 0.
struct Config {
  int64_t B, T, H, M, W, R;
  int64_t N;            // heads whose weights are kept: R, and one more for the write head of the NTM
  int64_t fed_from;     // what the controller is fed of o_{t−1} = (h_{t−1}, r_{t−1}): where it begins
  int64_t fed;          // and how long it is
  int64_t cell_query;   // the query is c_t, not h_t
  int64_t interval;     // steps between checkpoints of the memory
  int64_t checkpoints;  // how many there are: 0 without a backward pass
  int64_t steps;        // steps that the record has room for: T, or 1 without a backward pass
  int64_t learned;      // LRUA, key_strength: β is learned, not 1
  int64_t separate;     // LRUA, written: a vector of its own, not the key
  int64_t write_first;  // LRUA, order
  int64_t targets;      // LRUA, least_used: how many slots are marked least used, 1 or R
  int64_t erased;       // LRUA: how many of these are erased
  float decay;          // LRUA: γ
  float strength;       // NTM: where the key strength β starts

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
  float* kept;       //          LRUA: (targets, W) what the least used slots held. NTM: (N, M') content weights
  int32_t* targets;  // (targets) LRUA: the least used slots
};

// What is kept of every step for the backward pass: one row for each episode and step, or, without a backward
// pass, one row for each episode, overwritten at every step.
struct Record {
  Out gates, cells, heads, weights, kept;
  Out checkpoints;  // (B, checkpoints, W', M')  M before the steps 0, interval, 2 interval, …
  Rows<int32_t> targets;

  Step at(const Config& c, int64_t b, int64_t t) const {
    const int64_t row = b * c.steps + std::min(t, c.steps - 1);
    return {gates[row], cells[row], heads[row], weights[row], kept[row], targets[row]};
  }

  // The copy of M before step t, or null if there is none.
  float* checkpoint(const Config& c, int64_t b, int64_t t) const {
    if (c.checkpoints == 0 || t % c.interval) return nullptr;
    return checkpoints[b] + t / c.interval * c.W_() * c.M_();
  }
};

}  // namespace mann
